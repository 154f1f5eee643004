"""Translation by beam search, with the alignment marginalised at every step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentalign.core.alignments import Mixed, OneHot
from latentalign.core.distributions import Categorical
from latentalign.core.kernels.certified import Beam, beam_predictive
from latentalign.core.kernels.emission import FactoredHead, predictive_log_prob
from latentalign.core.kernels.fused_softmax import add_mixture, aligned, single_log_prob
from latentalign.core.numerics import NEG_INF, at_least_float32
from latentalign.core.predictives import CertifiedPredict, ExactPredict, KMaxPredict, Predict, SoftPredict
from latentalign.nn.attention_decoder import DecoderState
from latentalign.search import BeamSearch, Hypothesis, State
from latentalign.tasks.nmt.data import Batch
from latentalign.tasks.nmt.model import TranslationModel
from latentalign.tasks.nmt.tokenizer import BOS, EOS, PAD


class ProjectedHead(FactoredHead):
    """A head whose share of the source was computed beforehand."""

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


class DecodeStep:
    """One step of every live hypothesis; what belongs to a sentence is kept once."""

    def __init__(
        self,
        model: TranslationModel,
        predict: Predict,
        source: Int[Tensor, "B T"],
        mask: Tensor,
    ) -> None:
        self.model, self.predict, self.mask = model, predict, mask
        self.rows: tuple[Tensor, ...] | None = None
        self.memory = model.encode(source, mask)
        self.projected = model.decoder.score.project(self.memory)
        self.head = ProjectedHead(model.head).eval()
        self.parts = model.head.memory_part(self.memory)

    def start(self) -> State:
        """One hypothesis a sentence."""
        state = self.model.decoder.start(len(self.memory), self.memory)
        sentence = torch.arange(len(self.memory), device=self.memory.device)
        return {**self.pack(state, sentence), "log_prob": torch.zeros_like(sentence, dtype=torch.float64)}

    def pack(self, state: DecoderState, sentence: Int[Tensor, "n"]) -> State:
        """Decoder state as tensors with hypotheses first."""
        hidden = {f"hidden.{i}": h for i, h in enumerate(state.hidden)}
        cells = {f"cell.{i}": c for i, c in enumerate(state.cell)}
        return {**hidden, **cells, "context": state.context, "sentence": sentence}

    def unpack(self, state: State) -> DecoderState:
        layers = range(self.model.decoder.layers)
        hidden, cell = ([state[f"{kind}.{i}"] for i in layers] for kind in ("hidden", "cell"))
        return DecoderState(hidden, cell, state["context"])

    def __call__(self, tokens: Int[Tensor, "n"], state: State) -> tuple[Float[Tensor, "n V"], State]:
        model, sentence = self.model, state["sentence"]
        memory, mask, projected = self.of_hypotheses(sentence)
        words = model.embed_target(tokens)
        query, scores, after = model.decoder.step(words, self.unpack(state), memory, projected, mask=mask)
        prior = model.prior(query, scores, memory, mask=mask)
        told = {name: state[name] for name in ("log_prob", "places", "last")}
        following = {**self.pack(after, sentence), **told}
        if isinstance(self.predict, CertifiedPredict) and isinstance(prior, Categorical):
            return self.certified(query, prior, state), following
        if isinstance(self.predict, SoftPredict) and isinstance(prior, Categorical):
            return self.soft(query, after.context), following
        return self.averaged(query, self.predict(prior), sentence), following

    def of_hypotheses(self, sentence: Int[Tensor, "n"]) -> tuple[Tensor, Tensor, Tensor]:
        """What belongs to each hypothesis' sentence, copied when that has changed since the last step."""
        if self.rows is None or not torch.equal(self.rows[0], sentence):
            self.rows = (sentence, self.memory[sentence], self.mask[sentence], self.projected[sentence])
        return self.rows[1], self.rows[2], self.rows[3]

    def soft(self, query: Float[Tensor, "n Dq"], context: Float[Tensor, "n D"]) -> Float[Tensor, "n V"]:
        """log p(y | x, x~) under the expected context, which the decoder has formed already."""
        head = self.model.head
        hidden = head.hidden(head.query_part(query), head.memory_part(context))
        found = aligned(len(hidden), at_least_float32(hidden[:0]), head.output.out_features)
        nothing = hidden.new_zeros(len(hidden))
        single_log_prob(found, hidden, head.output.weight, head.output.bias, log_weight=nothing)
        return found

    def certified(
        self, query: Float[Tensor, "n Dq"], prior: Categorical, state: State
    ) -> Float[Tensor, "n V"]:
        """The same distribution from the members that can matter to a beam of this width."""
        sentence, head = state["sentence"], self.head
        from_query = head.query_part(query)

        def add(out: Tensor, owner: Tensor, member: Tensor, log_weight: Tensor) -> None:
            hidden = head.hidden(from_query[owner], self.parts[sentence[owner], member])
            output, limit = head.output, self.model.config.max_logits
            weights = {"log_weight": log_weight, "owner": owner, "max_logits": limit}
            add_mixture(out, hidden, output.weight, output.bias, **weights)

        beam = Beam(
            state["log_prob"], sentence, state["places"], state["last"], end=EOS, never=(PAD, BOS, EOS)
        )
        found = beam_predictive(
            prior, add, outputs=head.output.out_features, beam=beam, tolerance=self.predict.tolerance
        )
        lost = (beam.last & (found[:, EOS] == NEG_INF)).nonzero().squeeze(-1)
        if len(lost):  # it ends here, however improbable: in log space nothing underflows
            some = Categorical(prior.log_probs[lost], prior.mask[lost])
            found[lost] = self.averaged(query[lost], some.enumerate(), sentence[lost])
        return found

    def averaged(
        self, query: Float[Tensor, "n Dq"], chosen: OneHot | Mixed, sentence: Int[Tensor, "n"]
    ) -> Float[Tensor, "n V"]:
        """log p(y | x, x~), reading each sentence's projected members where they stand."""
        limit = self.model.config.max_logits
        if isinstance(chosen, OneHot):
            # All sentences' members as one source: hypotheses of a sentence share them without a copy.
            everything = self.parts.flatten(0, 1).unsqueeze(0)
            offset = sentence.unsqueeze(1) * self.parts.shape[1]
            chosen = OneHot(chosen.index + offset, chosen.log_weight, chosen.log_prob)
            return predictive_log_prob(self.head, query, everything, chosen, max_logits=limit)
        return predictive_log_prob(self.head, query, self.parts[sentence], chosen, max_logits=limit)


@dataclass(frozen=True)
class Translator:
    """Beam search over a model with a way to predict."""

    model: TranslationModel
    search: BeamSearch
    predict: Predict

    @torch.no_grad()
    def __call__(self, sources: Sequence[Sequence[int]]) -> list[list[Hypothesis]]:
        """The n best of each source sentence (ids, none of them empty)."""
        source, mask = padded(sources)
        device = self.model.head.output.weight.device
        source, mask = source.to(device), mask.to(device)
        step = DecodeStep(self.model.eval(), self.predict, source, mask)
        return self.search(step, step.start(), source_lengths=mask.sum(1), bos=BOS, eos=EOS, pad=PAD)

    def batches(self, batches: Sequence[Sequence[Sequence[int]]]) -> Iterator[list[list[Hypothesis]]]:
        """The same of each batch, in order; the model must be left alone meanwhile.

        On a CPU as many batches at a time as there are threads, with a thread, and logits, of its own each: the small
        products of a step gain less from several. Where anything is drawn, batch after batch, so that it is the same
        every time.
        """
        threads = torch.get_num_threads()
        certain = isinstance(self.predict, ExactPredict | KMaxPredict | SoftPredict)
        on_cpu = self.model.head.output.weight.device.type == "cpu" and not torch.is_autocast_enabled("cpu")
        if not (certain and on_cpu) or min(threads, len(batches)) < 2:
            yield from map(self, batches)
            return
        self.model.eval()
        try:
            with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
                yield from pool.map(self, batches)
        finally:
            torch.set_num_threads(threads)  # some libraries keep one number for all


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
