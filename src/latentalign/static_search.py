"""Beam search in which no size depends on values, for devices whose values must not be read at every step.

Every sentence keeps all places of its beam until the search of the batch ends; a place without a hypothesis has log p =
-inf. Outputs are collected in tables on the device. The program reads two flags per step, both at once: whether a
hypothesis is left, and whether the model has diverged. Results are those of `BeamSearch`, which uses this code on such
devices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentalign.core.devices import read_numbers
from latentalign.search import BY_SCORE, NEVER, BeamSearch, Hypothesis, State, Step, _Live, _Picks, _Sentences


@dataclass(frozen=True)
class _Found:
    """The outputs of every sentence in the order of their discovery; the last column is for what is not kept."""

    log_prob: Float[Tensor, "B columns"]
    score: Float[Tensor, "B columns"]
    length: Int[Tensor, "B columns"]
    finished: Bool[Tensor, "B columns"]
    tokens: Int[Tensor, "B columns longest"]
    count: Int[Tensor, " B"]
    """Finished outputs."""

    @classmethod
    def empty(cls, sentences: _Sentences, beam: int, longest: int) -> _Found:
        """No output yet."""
        shape = (len(sentences.number), beam + 1)
        never = torch.full(shape, NEVER, dtype=sentences.to_beat.dtype, device=sentences.number.device)
        none = torch.zeros(shape, dtype=torch.long, device=never.device)
        tokens = torch.zeros((*shape, longest), dtype=torch.long, device=never.device)
        return cls(never, never.clone(), none, none.bool(), tokens, none[:, 0].clone())

    def add(
        self,
        new: Bool[Tensor, "B beam"],
        first: Int[Tensor, "B 1"],
        *,
        tokens: Int[Tensor, "B beam t"],
        log_prob: Float[Tensor, "B beam"],
        score: Float[Tensor, "B beam"],
        finished: bool,
    ) -> None:
        """Write the new outputs of every sentence into its columns from `first` on."""
        columns = torch.where(new, first + new.cumsum(1) - 1, new.shape[1])
        length = tokens.shape[2]
        self.log_prob.scatter_(1, columns, log_prob)
        self.score.scatter_(1, columns, score)
        self.length.scatter_(1, columns, length)
        self.finished.scatter_(1, columns, finished)
        self.tokens[..., :length].scatter_(1, columns.unsqueeze(-1).expand(tokens.shape), tokens)

    def read(self, eos: int, nbest: int) -> list[list[Hypothesis]]:
        """The best outputs of every sentence, best first."""
        columns = self.log_prob.shape[1] - 1
        lists = (x.tolist() for x in (self.log_prob, self.score, self.length, self.finished, self.tokens))
        found = []
        for log_prob, score, length, finished, tokens in zip(*lists, strict=True):
            hypotheses = [
                Hypothesis(
                    (*tokens[i][: length[i]], *([eos] if finished[i] else [])),
                    log_prob=log_prob[i],
                    score=score[i],
                    finished=finished[i],
                )
                for i in range(columns)
                if score[i] > NEVER
            ]
            found.append(sorted(hypotheses, key=BY_SCORE, reverse=True)[:nbest])
        return found


def static_search(
    search: BeamSearch,
    step: Step,
    state: State,
    *,
    source_lengths: Int[Tensor, " B"],
    bos: int,
    eos: int,
    pad: int,
    check: Callable[[], None] | None = None,
) -> list[list[Hypothesis]]:
    """The outputs of `search`, all of whose steps compute B x beam hypotheses."""
    beam = search.beam
    sentences, one = search._start(source_lengths, bos)
    limits = search.limits(source_lengths)
    excluded = search.specials(bos, eos, pad, like=source_lengths)
    row = torch.arange(len(one.sentence) * beam, device=source_lengths.device)
    sentence, place = row // beam, row % beam
    history = one.history.index_select(0, sentence)
    log_prob = one.log_prob.index_select(0, sentence).masked_fill(place > 0, NEVER)
    live = _Live(sentence, place, history, log_prob, torch.zeros_like(log_prob))
    found = _Found.empty(sentences, beam, max(limits, default=0))
    state = {name: value.index_select(0, sentence) for name, value in state.items()}
    for length in range(1, max(limits, default=0) + 1):
        if check is not None:
            check()
        state = search._tell(state, sentences, live)
        log_probs, state = step(live.history[:, -1], state)
        value, token = search._candidates(log_probs, sentences, live, eos=eos, excluded=excluded)
        value = value.masked_fill((live.log_prob == NEVER).unsqueeze(-1), NEVER)
        picks, diverged = search._pick(log_probs, (value, token), sentences, live=live, bonus=None)
        sentences = collect(search, picks, sentences, live, eos=eos, found=found)
        live, parent = advance(picks, sentences, live, eos=eos)
        # All hypotheses of a sentence read the same source, so `sentence` stays as it is.
        state = {n: x if n == "sentence" else x.index_select(0, parent) for n, x in state.items()}
        goes_on, not_a_number = read_numbers([(live.log_prob > NEVER).any(), diverged])
        if not_a_number:
            raise search._diverged(length)
        if not goes_on:
            break
    return found.read(eos, search.nbest)


def collect(
    search: BeamSearch, picks: _Picks, sentences: _Sentences, live: _Live, *, eos: int, found: _Found
) -> _Sentences:
    """Write new outputs into `found`; the sentences with new widths and scores to beat."""
    shape, length = picks.valid.shape, live.history.shape[1]
    ended = picks.valid & (picks.token == eos)
    loss = sentences.source_length.to(picks.log_prob.dtype).unsqueeze(-1) * (search.eos_norm / length)
    score = (picks.log_prob - loss) / search._penalty(length)
    tokens = live.history.index_select(0, picks.parent.flatten())[:, 1:].view(*shape, length - 1)
    before = found.count.unsqueeze(-1)
    found.add(ended, before, tokens=tokens, log_prob=picks.log_prob, score=score, finished=True)
    # A sentence that cannot continue and has no output gets its live hypotheses, unfinished.
    stuck = ~picks.valid.any(1, keepdim=True) & (before == 0)
    log_prob = live.log_prob.view(shape)
    left = stuck & (log_prob > NEVER)
    tokens, score = live.history[:, 1:].view(*shape, length - 1), log_prob / search._penalty(length - 1)
    found.add(left, torch.zeros_like(before), tokens=tokens, log_prob=log_prob, score=score, finished=False)
    found.count.add_(ended.sum(1))
    to_beat = found.score[:, :-1].topk(search.nbest, dim=1).values[:, -1]
    return _Sentences(**{**vars(sentences), "width": search.beam - found.count, "to_beat": to_beat})


def advance(
    picks: _Picks, sentences: _Sentences, live: _Live, *, eos: int
) -> tuple[_Live, Int[Tensor, " n"]]:
    """The hypotheses at all places, and the row of each one's parent."""
    alive = picks.valid & (picks.token != eos)
    # Log-probabilities only fall and the penalty only grows, so no descendant scores above this bound.
    bound = picks.log_prob.masked_fill(~alive, NEVER).amax(dim=1) / sentences.limit_penalty
    alive = alive & (bound > sentences.to_beat).unsqueeze(-1)
    parent = picks.parent.flatten()
    history = torch.cat([live.history.index_select(0, parent), picks.token.view(-1, 1)], dim=1)
    log_prob = picks.log_prob.masked_fill(~alive, NEVER).flatten()
    return _Live(live.sentence, live.place, history, log_prob, live.bonus), parent
