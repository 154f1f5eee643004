"""Translation by beam search, with the alignment marginalised at every step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentalign.core.alignments import OneHot
from latentalign.core.checks import no_waiting_checks
from latentalign.core.choice import LatentChoice
from latentalign.core.devices import prefers_static_shapes, send, widest_float
from latentalign.core.distributions import AlignmentDistribution, Categorical
from latentalign.core.heads import FactoredHead
from latentalign.core.kernels.beam import Beam
from latentalign.core.kernels.fused_softmax import aligned
from latentalign.core.kernels.likelihood import target_log_prob
from latentalign.core.kernels.mixture import single_log_prob
from latentalign.core.numerics import NEG_INF, at_least_float32, in_float64
from latentalign.core.predictives import Predictive
from latentalign.search import BeamSearch, Hypothesis, State
from latentalign.tasks.nmt.constraints import Constraint
from latentalign.tasks.nmt.data import Batch
from latentalign.tasks.nmt.guidance import LexiconGuide
from latentalign.tasks.nmt.model import TranslationModel
from latentalign.tasks.nmt.tokenizer import BOS, EOS, PAD


class ProjectedHead(FactoredHead):
    """A head over memory whose part of the hidden layer was computed beforehand."""

    def __init__(self, head: FactoredHead) -> None:
        super().__init__()
        self.inner, self.output = head, head.output

    def memory_part(self, context: Float[Tensor, "*n H"]) -> Float[Tensor, "*n H"]:
        return context

    def query_part(self, query: Float[Tensor, "*n Dq"]) -> Float[Tensor, "*n H"]:
        return self.inner.query_part(query)

    def hidden(
        self, query_part: Float[Tensor, "*n H"], memory_part: Float[Tensor, "*n H"]
    ) -> Float[Tensor, "*n H"]:
        return self.inner.hidden(query_part, memory_part)

    def adds_members(self) -> bool:
        return self.inner.adds_members()

    def hidden_by_row(self) -> bool:
        return self.inner.hidden_by_row()


@dataclass(eq=False)
class NextWord(LatentChoice):
    """The next word of every live hypothesis, which all read the projected members of their sentence."""

    mean_context: Float[Tensor, "n D"] | None = None
    """X E[z], if the decoder has computed it anyway."""

    def soft(self) -> Float[Tensor, "n V"]:
        if self.mean_context is None or not isinstance(self.head, ProjectedHead):
            return super().soft()
        head, output = self.head.inner, self.head.output
        hidden = head.hidden(head.query_part(self.query), head.memory_part(self.mean_context))
        found = aligned(len(hidden), at_least_float32(hidden[:0]), output.out_features)
        single_log_prob(found, hidden, output.weight, output.bias, log_weight=hidden.new_zeros(len(hidden)))
        return found


class DecodeStep:
    """One step of every live hypothesis; what belongs to a sentence is stored once."""

    def __init__(
        self,
        model: TranslationModel,
        predict: Predictive,
        source: Int[Tensor, "B T"],
        mask: Tensor,
        *,
        guide: LexiconGuide | None = None,
        constraints: Sequence[Sequence[Constraint]] | None = None,
    ) -> None:
        self.model, self.predict, self.mask = model, predict, mask
        self.rows: tuple[Tensor, ...] | None = None
        self.memory, members = model.encode(source, mask)
        self.projected = model.decoder.project(self.memory)
        self.head = ProjectedHead(model.head).eval()
        self.parts = model.head.memory_part(members)
        self.guided, self.bonus = guide is not None, None
        if guide is not None:
            self.bonus = guide.bonus(constraints or [], members.shape[1], source.device)

    def start(self) -> State:
        """The state of one hypothesis per sentence."""
        state = self.model.decoder.start(len(self.memory), self.memory)
        sentence = torch.arange(len(self.memory), device=self.memory.device)
        log_prob = torch.zeros_like(sentence, dtype=widest_float(sentence.device))
        guided = {} if self.bonus is None else self.bonus.start(len(sentence))
        return {**state, "sentence": sentence, "log_prob": log_prob, **guided}

    def __call__(self, tokens: Int[Tensor, "n"], state: State) -> tuple[Float[Tensor, "n V"], State]:
        model, sentence = self.model, state["sentence"]
        memory, mask, projected = self.of_hypotheses(sentence)
        words = model.dropout(model.target_embedding(tokens))
        query, scores, after = model.decoder.step(words, state, memory, projected, mask=mask)
        mean_context: Tensor | None
        prior: AlignmentDistribution
        if model.chain is None:
            prior = model.prior(query, scores, memory, mask=mask)
            mean_context = after["context"] if model.mean_is_context else None
        else:
            chain, mean_context = model.chain.step(scores, mask, query, memory), None
            selected, unselected = chain.move(self.position(tokens, state), 0)
            mass = chain.joined(selected.unsqueeze(1), unselected.unsqueeze(1)).squeeze(1)
            prior = Categorical.from_probs(mass.to(scores.dtype), check=False)
            after |= {"selected": selected, "unselected": unselected, "query": query}
        choice = NextWord(
            prior,
            self.head,
            query,
            self.parts,
            source=sentence,
            max_logits=model.config.max_logits,
            mean_context=mean_context,
        )
        known = {name: state[name] for name in ("log_prob", "places", "last")}
        if self.bonus is not None:
            after |= self.bonus(tokens, state, prior.shown)
        # A bonus may rank words that a beam would not notice, so nothing may be left out.
        beam = None if self.guided else Beam(sentence=sentence, end=EOS, never=(PAD, BOS, EOS), **known)
        return choice.predict(self.predict, beam), {**after, "sentence": sentence, **known}

    def position(self, tokens: Int[Tensor, "n"], state: State) -> Float[Tensor, "n N"] | None:
        """p(position of the chain | the outputs so far): Bayes' rule with the word that was chosen; None at the start.

        Soft attention never looks at single members, so its chain moves as the prior does.
        """
        if "selected" not in state:
            return None
        selected, unselected = state["selected"], state["unselected"]
        if not self.predict.selects_members:
            return selected + unselected
        log_f = in_float64(self.likelihoods(tokens, state))
        log_f = log_f - log_f.amax(-1, keepdim=True)
        width = selected.shape[-1]
        seen = selected * log_f[:, :width].exp()
        if log_f.shape[-1] > width:
            seen = seen + unselected * log_f[:, width:].exp()
        return seen / seen.sum(-1, keepdim=True)

    def likelihoods(self, tokens: Int[Tensor, "n"], state: State) -> Float[Tensor, "n T"]:
        """log p(last word | x, z = i) of every member that the chain may have selected; -inf for the others."""
        sentence, query = state["sentence"], state["query"]
        possible = state["selected"] > 0
        if self.parts.shape[1] > possible.shape[1]:
            possible = torch.cat([possible, state["unselected"].sum(-1, keepdim=True) > 0], -1)
        index = torch.arange(possible.shape[1], device=possible.device).expand(possible.shape)
        weight = torch.zeros_like(index, dtype=query.dtype).masked_fill(~possible, NEG_INF)
        found = target_log_prob(
            self.head,
            query,
            self.parts[sentence],
            tokens,
            OneHot(index, weight, weight),
            max_logits=self.model.config.max_logits,
        )
        return found.masked_fill(~possible, NEG_INF)

    def of_hypotheses(self, sentence: Int[Tensor, "n"]) -> tuple[Tensor, Tensor, Tensor]:
        """Memory, mask and projected memory of each hypothesis, copied only if the hypotheses have changed."""
        # On a GPU, the search never changes `sentence`, and comparing its values would have to wait for them.
        known = self.rows is not None and self.rows[0] is sentence
        if self.rows is not None and not known and not prefers_static_shapes(sentence.device):
            known = torch.equal(self.rows[0], sentence)
        if self.rows is None or not known:
            self.rows = (sentence, self.memory[sentence], self.mask[sentence], self.projected[sentence])
        return self.rows[1], self.rows[2], self.rows[3]


@dataclass(frozen=True)
class Translator:
    """Beam search over a model with a way to predict."""

    model: TranslationModel
    search: BeamSearch
    predict: Predictive
    check: Callable[[], None] | None = None
    """Called before every step of the search, which it may end by raising."""
    guide: LexiconGuide | None = None
    """How strongly a lexicon guides the search, if there is one."""

    @torch.no_grad()
    def __call__(
        self,
        sources: Sequence[Sequence[int]],
        constraints: Sequence[Sequence[Constraint]] | None = None,
    ) -> list[list[Hypothesis]]:
        """The n best outputs of each source sentence (ids, none of them empty), and its constraints if it is guided."""
        source, mask = padded(sources)
        device = self.model.head.output.weight.device
        source, mask = send(source, device), send(mask, device)
        guided: dict[str, Any] = {"guide": self.guide, "constraints": constraints}
        places: dict[str, Any] = {"bos": BOS, "eos": EOS, "pad": PAD, "bonuses": self.guide is not None}
        with no_waiting_checks(device):
            step = DecodeStep(self.model.eval(), self.predict, source, mask, **guided)
            lengths = mask.sum(1)
            return self.search(step, step.start(), source_lengths=lengths, check=self.check, **places)

    def batches(
        self,
        batches: Sequence[Sequence[Sequence[int]]],
        constraints: Sequence[Sequence[Sequence[Constraint]]] | None = None,
    ) -> Iterator[list[list[Hypothesis]]]:
        """The same for each batch, in order; do not change the model meanwhile.

        On a CPU, as many batches run at a time as there are threads, each with one thread and logits of its own: the
        small products of a step gain less from several threads. A predictive that draws random numbers runs batch
        after batch, so that its results can be repeated.
        """
        threads, inputs = torch.get_num_threads(), (batches, *(() if constraints is None else (constraints,)))
        on_cpu = self.model.head.output.weight.device.type == "cpu" and not torch.is_autocast_enabled("cpu")
        if not (self.predict.deterministic and on_cpu) or min(threads, len(batches)) < 2:
            yield from map(self, *inputs)
            return
        self.model.eval()
        try:
            with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
                yield from pool.map(self, *inputs)
        finally:
            torch.set_num_threads(threads)  # some libraries share one number between threads


def group_by_size(sizes: Sequence[int], *, skip: set[int], limit: int) -> Iterator[list[int]]:
    """Positions in order of size, in groups of at most `limit` padded tokens."""
    order = sorted((i for i in range(len(sizes)) if i not in skip), key=lambda i: (sizes[i], i))
    group: list[int] = []
    for i in order:
        if group and (len(group) + 1) * sizes[i] > limit:
            yield group
            group = []
        group.append(i)
    if group:
        yield group


def padded(rows: Sequence[Sequence[int]]) -> tuple[Int[Tensor, "B T"], Tensor]:
    """Rows of ids as one tensor and its mask."""
    tensors = [torch.tensor(list(row), dtype=torch.int64) for row in rows]
    ids = torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=PAD)
    lengths = torch.tensor([len(row) for row in rows])
    return ids, torch.arange(ids.shape[1]) < lengths.unsqueeze(1)


def pair_batch(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Batch:
    """Given sentence pairs as a batch; targets get their end of sentence."""
    source, source_mask = padded(sources)
    target, target_mask = padded([[*row, EOS] for row in targets])
    return Batch(source, source_mask, target, target_mask, torch.arange(len(source)))
