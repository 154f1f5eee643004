"""Word alignments of sentence pairs from a trained model: prior, inferred or exact posterior."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from latentalign.core.latent import Latent
from latentalign.core.predictives import exact_posterior
from latentalign.errors import InputError
from latentalign.links.words import WordAlignment, word_links
from latentalign.tasks.nmt.decode import group_by_size, pair_batch
from latentalign.tasks.nmt.recipe import TrainedTranslator
from latentalign.tasks.nmt.tokenizer import Encoded
from latentalign.tasks.nmt.training_data import EVALUATION_TOKENS

USING = ("prior", "inferred", "posterior", "path")


def alignment_matrix(latent: Latent, using: str) -> Tensor:
    """Probabilities (B, S, T) of every alignment under the prior, q or the exact posterior.

    `path` is the exact posterior of the most probable path's alignments, and 0 elsewhere. If a chain has NULL, it is
    the last of the T members.
    """
    if using == "prior":
        return latent.prior.mean
    if using == "inferred":
        if latent.inferred is None:
            raise InputError("this run has no inference network; align with --using prior or posterior")
        return latent.inferred.mean
    if not latent.prior.per_query.supports("enumerate"):
        raise InputError("a relaxed model has no exact posterior; align with --using prior or inferred")
    posterior = exact_posterior(latent)
    if using == "posterior":
        return posterior.mean
    on_path = torch.zeros_like(posterior.mask).scatter(-1, posterior.mode.unsqueeze(-1), True)
    return posterior.mean.masked_fill(~on_path, 0.0)


def available_alignments(trained: TrainedTranslator) -> list[str]:
    """The alignments that a model has: the prior, and q and the exact posterior where they exist."""
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
    trained: TrainedTranslator, pairs: Sequence[Pair], using: Sequence[str]
) -> Iterator[tuple[int, dict[str, WordAlignment]]]:
    """(position, alignments by name) of every pair, ordered by size; blank sides give empty matrices."""
    blank = [i for i, p in enumerate(pairs) if not (p.source.ids and p.target.ids)]
    for i in blank:
        shape = (len(pairs[i].target.ids), len(pairs[i].source.ids))
        nothing = word_links(np.zeros(shape), pairs[i].source.words, pairs[i].target.words)
        yield i, dict.fromkeys(using, nothing)
    sizes, null = [p.size for p in pairs], trained.model.has_null
    for group in group_by_size(sizes, skip=set(blank), limit=EVALUATION_TOKENS):
        chosen = [pairs[i] for i in group]
        batch = pair_batch([p.source.ids for p in chosen], [p.target.ids for p in chosen])
        latent = trained.model.latent(batch.to(trained.device))
        found = {name: alignment_matrix(latent, name).double().cpu().numpy() for name in using}
        for row, (i, pair) in enumerate(zip(group, chosen, strict=True)):
            yield i, {name: pair_links(pair, matrix[row], null=null) for name, matrix in found.items()}


def pair_links(pair: Pair, matrix: np.ndarray, *, null: bool) -> WordAlignment:
    """The word alignment of a pair from a padded matrix of its batch, whose last column may be NULL."""
    s, t = len(pair.target.ids), len(pair.source.ids)
    if not null:
        return word_links(matrix[:s, :t], pair.source.words, pair.target.words)
    columns = np.concatenate([matrix[:s, :t], matrix[:s, -1:]], axis=1)
    return word_links(columns, [*pair.source.words, -1], pair.target.words)


def align_in_order(trained: TrainedTranslator, pairs: Sequence[Pair], using: str) -> list[WordAlignment]:
    """The alignment of every pair, in the order of the pairs."""
    found: dict[int, WordAlignment] = {}
    for i, by_name in align_pairs(trained, pairs, [using]):
        found[i] = by_name[using]
    return [found[i] for i in range(len(pairs))]
