"""Beam search over any step: one batch holds every live hypothesis of every sentence.

A step's state is a dict of tensors with hypotheses first. The step itself keeps what belongs to a sentence (encoder
memory, masks); the state then holds an int64 tensor `sentence` that indexes it, so the search moves only what differs
between hypotheses. If the state holds `log_prob`, the search updates three entries before every step: `log_prob`, the
log-probability of each hypothesis so far; `places`, how many continuations its sentence will keep; and `last`, whether
the hypothesis has to end. A step may leave two more entries: `bonus` (n, V), which is added to the log-probabilities in
the order of the beam and in the score, and `bonus_limit` (n), the largest sum of bonuses that a continuation can reach.

On a CPU, only live hypotheses are computed. On other devices, `static_search.py` computes all places of all beams,
because the number of live ones would have to be read at every step. It knows no bonuses.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentalign.core.devices import prefers_static_shapes, widest_float
from latentalign.core.numerics import top_values
from latentalign.errors import DivergedError, InputError

State = dict[str, Tensor]
NEVER = -math.inf
BY_SCORE = attrgetter("score")
"""Sort key of hypotheses. Sorting is stable: of equal hypotheses, the one found first wins."""


@runtime_checkable
class Step(Protocol):
    """log p(next token | hypothesis) of n hypotheses, from their last tokens and state, and their new state."""

    def __call__(self, tokens: Int[Tensor, " n"], state: State, /) -> tuple[Float[Tensor, "n V"], State]: ...


@dataclass(frozen=True)
class Hypothesis:
    """One output: its tokens after bos, with eos at the end if `finished`, and their log-probability.

    Every hypothesis is finished, unless the step gives eos probability zero where the output has to end.
    """

    tokens: tuple[int, ...]
    log_prob: float
    score: float
    finished: bool


@dataclass(frozen=True)
class _Sentences:
    """The sentences still searched: free places in their beams, and the score that a new output has to beat."""

    number: Int[Tensor, " a"]
    source_length: Int[Tensor, " a"]
    limit: Int[Tensor, " a"]
    limit_penalty: Float[Tensor, " a"]
    width: Int[Tensor, " a"]
    to_beat: Float[Tensor, " a"]


@dataclass(frozen=True)
class _Live:
    """The hypotheses that can still grow, ordered by sentence and then by place in the beam."""

    sentence: Int[Tensor, " n"]  # position in _Sentences
    place: Int[Tensor, " n"]
    history: Int[Tensor, "n t"]  # bos first
    log_prob: Float[Tensor, " n"]
    bonus: Float[Tensor, " n"]  # sum so far


@dataclass(frozen=True)
class _Picks:
    """The best continuations of each sentence, best first; entries that are not `valid` fill up the table."""

    parent: Int[Tensor, "a beam"]
    token: Int[Tensor, "a beam"]
    log_prob: Float[Tensor, "a beam"]
    bonus: Float[Tensor, "a beam"]
    valid: Bool[Tensor, "a beam"]


@dataclass(frozen=True)
class BeamSearch:
    """The `nbest` outputs of highest score = log p(y) / ((5 + |y|) / 6)^length_penalty that a beam finds.

    The beam is ordered by log-probability. A finished hypothesis keeps its place in the beam and is not extended. The
    search of a sentence ends when no place is free, or when its best live hypothesis could not enter the n best even
    if it reached the length limit at no further cost. The limit is max_length_ratio * |x| + max_length_extra and at
    most max_length, eos included; there eos is forced, with the step's own probability. `eos_norm` lowers log p(eos)
    by eos_norm * |x| / |y| in the order of the beam and in the score, not in `log_prob`. So do bonuses of the step.
    Length penalty: Wu et al. 2016, equation 14. Ties go to the lower token, then to the better parent.
    """

    beam: int = 10
    length_penalty: float = 1.0
    max_length_ratio: float = 2.0
    max_length_extra: int = 10
    max_length: int = 250
    eos_norm: float = 0.0
    nbest: int = 1

    def __post_init__(self) -> None:
        for name in ("length_penalty", "max_length_ratio", "max_length_extra", "eos_norm"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise InputError(f"search.{name} is {value}: it must be a number of at least 0")
        if self.beam < 1 or self.max_length < 1:
            raise InputError("beam and max_length must be at least 1")
        if not 1 <= self.nbest <= self.beam:
            raise InputError(f"nbest is {self.nbest}: it must lie between 1 and the beam, {self.beam}")

    @torch.no_grad()
    def __call__(
        self,
        step: Step,
        state: State,
        *,
        source_lengths: Int[Tensor, " B"],
        bos: int,
        eos: int,
        pad: int,
        check: Callable[[], None] | None = None,
        bonuses: bool = False,
    ) -> list[list[Hypothesis]]:
        """The best outputs of each sentence, best first, from a state with one row per sentence.

        A sentence has fewer than `nbest` outputs only if fewer exist. `check` is called before every step; it ends the
        search by raising. `bonuses` says that the step may leave bonuses.
        """
        if prefers_static_shapes(source_lengths.device) and not bonuses:
            from latentalign.static_search import static_search  # it needs this module

            lengths = {"source_lengths": source_lengths}
            return static_search(self, step, state, **lengths, bos=bos, eos=eos, pad=pad, check=check)
        found: list[list[Hypothesis]] = [[] for _ in range(len(source_lengths))]
        excluded = self.specials(bos, eos, pad, like=source_lengths)
        sentences, live = self._start(source_lengths, bos)
        while len(live.history):
            if check is not None:
                check()
            state = self._tell(state, sentences, live)
            log_probs, state = step(live.history[:, -1], state)
            bonus, limit = state.pop("bonus", None), state.get("bonus_limit")
            ranked = log_probs if bonus is None else log_probs + bonus
            candidates = self._candidates(ranked, sentences, live, eos=eos, excluded=excluded)
            picks, diverged = self._pick(log_probs, candidates, sentences, live=live, bonus=bonus)
            if diverged:
                raise self._diverged(live.history.shape[1])
            sentences = self._collect(picks, sentences, live, eos=eos, found=found)
            sentences, live, parent = self._advance(picks, sentences, live, eos=eos, limit=limit)
            state = {name: value.index_select(0, parent) for name, value in state.items()}
        return [hypotheses[: self.nbest] for hypotheses in found]

    def _penalty(self, length: int) -> float:
        return float(((5 + length) / 6) ** self.length_penalty)

    def limits(self, source_lengths: Int[Tensor, " B"]) -> list[int]:
        """The largest number of tokens of each output, eos included."""
        ratio, extra = self.max_length_ratio, self.max_length_extra
        return [max(1, min(self.max_length, math.floor(ratio * n + extra))) for n in source_lengths.tolist()]

    def specials(self, bos: int, eos: int, pad: int, *, like: Tensor) -> Int[Tensor, " m"]:
        """Tokens that are not among the candidates of a hypothesis, except eos as an end of its own; eos is last."""
        return torch.tensor([*sorted({bos, pad} - {eos}), eos], dtype=torch.long, device=like.device)

    def _tell(self, state: State, sentences: _Sentences, live: _Live) -> State:
        """The state with what the search knows, if the step asks for it."""
        if "log_prob" not in state:
            return state
        last = sentences.limit[live.sentence] == live.history.shape[1]
        known = {"log_prob": live.log_prob, "places": sentences.width[live.sentence], "last": last}
        return {**state, **known}

    def _diverged(self, position: int) -> DivergedError:
        return DivergedError(
            f"the model's log-probabilities are NaN at output position {position}: "
            "its parameters are not finite; translate with an earlier model"
        )

    def _start(self, source_lengths: Int[Tensor, " B"], bos: int) -> tuple[_Sentences, _Live]:
        """One hypothesis for each sentence: bos."""
        number = torch.arange(len(source_lengths), device=source_lengths.device)
        limits = self.limits(source_lengths)
        log_prob = torch.zeros(len(number), dtype=widest_float(number.device), device=number.device)
        sentences = _Sentences(
            number,
            source_lengths,
            limit=number.new_tensor(limits),
            limit_penalty=log_prob.new_tensor([self._penalty(limit) for limit in limits]),
            width=torch.full_like(number, self.beam),
            to_beat=torch.full_like(log_prob, NEVER),
        )
        return sentences, _Live(
            number, torch.zeros_like(number), torch.full_like(number, bos)[:, None], log_prob, log_prob
        )

    def _candidates(
        self,
        log_probs: Float[Tensor, "n V"],
        sentences: _Sentences,
        live: _Live,
        *,
        eos: int,
        excluded: Int[Tensor, " m"],
    ) -> tuple[Float[Tensor, "n k"], Int[Tensor, "n k"]]:
        """Possible next tokens of each hypothesis and the values that order the beam.

        eos is lowered by `eos_norm`, and at the length limit it is the only candidate. Each row has enough tokens to
        fill the beam after bos, pad and eos are taken out.
        """
        length = live.history.shape[1]  # of the new outputs: bos counts in place of the new token
        last = sentences.limit[live.sentence] == length
        value, token = _top(log_probs, min(self.beam + len(excluded), log_probs.shape[1]))
        unusable = (token.unsqueeze(-1) == excluded).any(-1) | last[:, None]
        source_length = sentences.source_length[live.sentence].to(live.log_prob.dtype)
        ending = log_probs[:, eos] - source_length * (self.eos_norm / length)
        value = torch.cat([value.masked_fill(unusable, NEVER), ending[:, None].to(value.dtype)], dim=1)
        return value, torch.cat([token, torch.full_like(token[:, :1], eos)], dim=1)

    def _pick(
        self,
        log_probs: Float[Tensor, "n V"],
        candidates: tuple[Float[Tensor, "n k"], Int[Tensor, "n k"]],
        sentences: _Sentences,
        *,
        live: _Live,
        bonus: Float[Tensor, "n V"] | None,
    ) -> tuple[_Picks, Bool[Tensor, ""]]:
        """The best continuations of each sentence among the candidates of its hypotheses, and whether one is NaN."""
        value, token = candidates
        value = (
            value + (live.log_prob + live.bonus)[:, None]
        )  # in double precision, whatever the step computes in
        k, a = value.shape[1], len(sentences.number)
        values = value.new_full((a, self.beam, k), NEVER)
        tokens, rows = token.new_zeros(values.shape), token.new_zeros(a, self.beam)
        at = (live.sentence, live.place)
        values[at], tokens[at], rows[at] = value, token, torch.arange(len(value), device=value.device)
        values, tokens = values.flatten(1), tokens.flatten(1)
        order = tokens.argsort(dim=1, stable=True)
        order = order.gather(1, values.gather(1, order).argsort(dim=1, descending=True, stable=True))
        order = order[:, : self.beam]
        value, token, parent = values.gather(1, order), tokens.gather(1, order), rows.gather(1, order // k)
        valid = (torch.arange(self.beam, device=value.device) < sentences.width[:, None]) & (value > NEVER)
        log_prob = live.log_prob[parent] + log_probs[parent, token]
        added = live.bonus[parent] if bonus is None else live.bonus[parent] + bonus[parent, token]
        return _Picks(parent, token, log_prob, added, valid), value.isnan().any()

    def _collect(
        self, picks: _Picks, sentences: _Sentences, live: _Live, *, eos: int, found: list[list[Hypothesis]]
    ) -> _Sentences:
        """Move finished hypotheses into `found`, best first; the sentences with new widths and scores to beat."""
        ended = picks.valid & (picks.token == eos)
        stuck = ~picks.valid.any(dim=1)
        if stuck.any():
            self._collect_unfinished(stuck, sentences, live, found=found)
        if not ended.any():
            return sentences
        length = live.history.shape[1]
        position, column = ended.nonzero(as_tuple=True)
        log_prob = picks.log_prob[position, column]
        eos_loss = sentences.source_length[position].to(log_prob.dtype) * (self.eos_norm / length)
        score = (log_prob + picks.bonus[position, column] - eos_loss) / self._penalty(length)
        histories = live.history[picks.parent[position, column], 1:].tolist()
        numbers = sentences.number[position].tolist()
        for number, tokens, p, s in zip(numbers, histories, log_prob.tolist(), score.tolist(), strict=True):
            found[number].append(Hypothesis((*tokens, eos), log_prob=p, score=s, finished=True))
        to_beat = sentences.to_beat.clone()
        for place, number in set(zip(position.tolist(), numbers, strict=True)):
            found[number].sort(key=BY_SCORE, reverse=True)
            if len(found[number]) >= self.nbest:
                to_beat[place] = found[number][self.nbest - 1].score
        return replace(sentences, width=sentences.width - ended.sum(dim=1), to_beat=to_beat)

    def _collect_unfinished(
        self, stuck: Bool[Tensor, " a"], sentences: _Sentences, live: _Live, *, found: list[list[Hypothesis]]
    ) -> None:
        """Give a sentence that cannot continue and has no output its live hypotheses, unfinished."""
        for row in stuck[live.sentence].nonzero()[:, 0].tolist():
            hypotheses = found[int(sentences.number[live.sentence[row]])]
            if not any(h.finished for h in hypotheses):
                tokens, log_prob = live.history[row, 1:].tolist(), float(live.log_prob[row])
                score = (log_prob + float(live.bonus[row])) / self._penalty(len(tokens))
                hypotheses.append(Hypothesis(tuple(tokens), log_prob, score, finished=False))
                hypotheses.sort(key=BY_SCORE, reverse=True)

    def _advance(
        self,
        picks: _Picks,
        sentences: _Sentences,
        live: _Live,
        *,
        eos: int,
        limit: Float[Tensor, " n"] | None,
    ) -> tuple[_Sentences, _Live, Int[Tensor, " m"]]:
        """Sentences and hypotheses that are searched further, and the row of each hypothesis' parent."""
        alive = picks.valid & (picks.token != eos)
        # Log-probabilities only fall and the penalty only grows, so no descendant scores above this bound.
        best = picks.log_prob if limit is None else picks.log_prob + limit[picks.parent]
        best = best.masked_fill(~alive, NEVER).amax(dim=1)
        bound = best / sentences.limit_penalty
        if (
            limit is not None
        ):  # with bonuses, the sum may be positive, and is worth most while the output is short
            bound = torch.where(best > 0, best / self._penalty(live.history.shape[1] + 1), bound)
        can_win = bound > sentences.to_beat
        position, place = (alive & can_win[:, None]).nonzero(as_tuple=True)
        parent = picks.parent[position, place]
        history = torch.cat([live.history[parent], picks.token[position, place, None]], dim=1)
        renumbered = can_win.cumsum(dim=0) - 1
        at = (position, place)
        following = _Live(renumbered[position], place, history, picks.log_prob[at], picks.bonus[at])
        remaining = _Sentences(**{name: value[can_win] for name, value in vars(sentences).items()})
        return remaining, following, parent


def _top(values: Float[Tensor, "n V"], k: int) -> tuple[Float[Tensor, "n k"], Int[Tensor, "n k"]]:
    """The k largest of each row and their columns, in order of value and then of column.

    `topk` may choose any of several equal values. Rows in which that matters are selected again, or all rows, where
    reading which ones would take time.
    """
    is_static = prefers_static_shapes(values.device)
    value, column = top_values(values, min(k + 1 - is_static, values.shape[1]))
    if is_static:
        column = _first_of_ties(values, value[:, -1:], k=k)
    elif value.shape[1] > k:
        tied = (value[:, k - 1] == value[:, k]) & (value[:, k] > NEVER)
        if tied.any():
            column[tied, :k] = _first_of_ties(values[tied], value[tied, k - 1 : k], k=k)
    column = column[:, :k].sort(dim=1).values
    value, order = values.gather(1, column).sort(dim=1, descending=True, stable=True)
    return value, column.gather(1, order)


def _first_of_ties(
    values: Float[Tensor, "m V"], least: Float[Tensor, "m 1"], *, k: int
) -> Int[Tensor, "m k"]:
    """Columns of the k largest of each row, whose k-th largest is `least`; of equal values, the first ones."""
    above, equal = values > least, values == least
    keep = above | (equal & (equal.cumsum(dim=1) <= k - above.sum(dim=1, keepdim=True)))
    # Exactly k are kept in every row.
    return keep.to(values.dtype).topk(k, dim=1).indices
