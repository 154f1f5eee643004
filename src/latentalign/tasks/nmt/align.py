"""Word alignments of sentence pairs from a trained model: prior, inferred or exact posterior."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from latentalign.core.distributions import AlignmentDistribution, Chain
from latentalign.core.latent import Latent
from latentalign.core.predictives import exact_posterior
from latentalign.errors import InputError
from latentalign.links.words import WordAlignment, word_links
from latentalign.tasks.nmt.decode import group_by_size, pair_batch
from latentalign.tasks.nmt.evidence import KnownPair, attach_evidence
from latentalign.tasks.nmt.recipe import TrainedTranslator
from latentalign.tasks.nmt.tokenizer import Encoded
from latentalign.tasks.nmt.training_data import EVALUATION_TOKENS

USING = ("prior", "inferred", "posterior", "path")


@dataclass(frozen=True, eq=False)
class BatchAlignments:
    """The alignments of a batch of sentence pairs under every distribution that a model has."""

    latent: Latent

    @cached_property
    def posterior(self) -> AlignmentDistribution:
        """The exact posterior p(z | x, y)."""
        if not self.latent.prior.per_query.supports("enumerate"):
            raise InputError("a relaxed model has no exact posterior; align with --using prior or inferred")
        return exact_posterior(self.latent)

    @cached_property
    def best_path(self) -> tuple[Tensor, Tensor]:
        """The most probable path (B, S) of a chain's posterior, and its log-probability (B)."""
        if not isinstance(self.posterior, Chain):
            raise InputError(
                "this run's alignments are independent of each other; only a chain has a best path"
            )
        return self.posterior.best()

    def matrix(self, using: str) -> Tensor:
        """Probabilities (B, S, T) of every alignment under the prior, q or the exact posterior.

        `path` is the exact posterior of the most probable path's alignments, and 0 elsewhere. If a chain has NULL, it
        is the last of the T members.
        """
        if using == "prior":
            return self.latent.prior.shown
        if using == "inferred":
            if self.latent.inferred is None:
                raise InputError("this run has no inference network; align with --using prior or posterior")
            return self.latent.inferred.shown
        if using == "posterior":
            return self.posterior.shown
        shown = self.posterior.shown
        mode = self.best_path[0] if isinstance(self.posterior, Chain) else shown.argmax(-1)
        on_path = torch.zeros_like(shown, dtype=torch.bool).scatter(-1, mode.unsqueeze(-1), True)
        return shown.masked_fill(~on_path, 0.0)


def available_alignments(trained: TrainedTranslator) -> list[str]:
    """The alignments that a model has: the prior; q, the exact posterior and its best path where they exist."""
    using = ["prior"]
    if trained.model.inference is not None:
        using.append("inferred")
    if trained.model.distribution.supports("enumerate"):
        using.append("posterior")
    if trained.model.chain is not None:
        using.append("path")
    return using


@dataclass(frozen=True)
class Pair:
    """A sentence pair as ids and the words they belong to."""

    source: Encoded
    target: Encoded

    @property
    def size(self) -> int:
        return len(self.source.ids) + len(self.target.ids) + 1


def encode_pairs(trained: TrainedTranslator, sources: Sequence[str], targets: Sequence[str]) -> list[Pair]:
    """Encode sentence pairs."""
    encoded = zip(
        trained.vocabulary.encode_source_batch(sources),
        trained.vocabulary.encode_target_batch(targets),
        strict=True,
    )
    return [Pair(source, target) for source, target in encoded]


@torch.no_grad()
def align_pairs(
    trained: TrainedTranslator,
    pairs: Sequence[Pair],
    using: Sequence[str],
    *,
    known: Sequence[KnownPair] | None = None,
    weight: float = 0.0,
) -> Iterator[tuple[int, dict[str, WordAlignment]]]:
    """(position, alignments by name) of every pair, ordered by size; blank sides give empty matrices.

    What is `known` about the pairs counts in the posterior, as evidence of some weight.
    """
    blank = [i for i, p in enumerate(pairs) if not (p.source.ids and p.target.ids)]
    for i in blank:
        shape = (len(pairs[i].target.ids), len(pairs[i].source.ids))
        nothing = word_links(np.zeros(shape), pairs[i].source.words, pairs[i].target.words)
        yield i, dict.fromkeys(using, nothing)
    sizes, null = [p.size for p in pairs], trained.model.has_null
    for group in group_by_size(sizes, skip=set(blank), limit=EVALUATION_TOKENS):
        chosen = [pairs[i] for i in group]
        batch = pair_batch([p.source.ids for p in chosen], [p.target.ids for p in chosen])
        if known is not None:
            batch = attach_evidence(batch, [known[i] for i in group], weight=weight, null=null)
        alignments = BatchAlignments(trained.model.latent(batch.to(trained.device)))
        found = {name: alignments.matrix(name).cpu().double().numpy() for name in using}
        for row, (i, pair) in enumerate(zip(group, chosen, strict=True)):
            yield i, {name: pair_links(pair, matrix[row], null=null) for name, matrix in found.items()}


def pair_links(pair: Pair, matrix: np.ndarray, *, null: bool) -> WordAlignment:
    """The word alignment of a pair from a padded matrix of its batch, whose last column may be NULL."""
    return columns_to_words(pair, cut_padding(pair, matrix, null=null))


def cut_padding(pair: Pair, matrix: np.ndarray, *, null: bool) -> np.ndarray:
    """The part of a padded matrix that belongs to a pair: its subwords, and the last column if that is NULL."""
    rows, columns = matrix[: len(pair.target.ids)], len(pair.source.ids)
    return np.concatenate([rows[:, :columns], rows[:, -1:]], axis=1) if null else rows[:, :columns]


def columns_to_words(pair: Pair, columns: np.ndarray) -> WordAlignment:
    """The word alignment of a pair from that of its subwords, with or without a last column for NULL."""
    null = columns.shape[1] - len(pair.source.ids)
    return word_links(columns, [*pair.source.words, *[-1] * null], pair.target.words)


def align_in_order(
    trained: TrainedTranslator, pairs: Sequence[Pair], using: str, **evidence: Any
) -> list[WordAlignment]:
    """The alignment of every pair, in the order of the pairs. The evidence is that of `align_pairs`."""
    found: dict[int, WordAlignment] = {}
    for i, by_name in align_pairs(trained, pairs, [using], **evidence):
        found[i] = by_name[using]
    return [found[i] for i in range(len(pairs))]
