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
from latentalign.tasks.nmt.decode import pair_batch
from latentalign.tasks.nmt.links import WordAlignment, word_links
from latentalign.tasks.nmt.task import EVALUATION_TOKENS, Trained
from latentalign.tasks.nmt.tokenizer import Encoded

USING = ("prior", "inferred", "posterior")


def alignment_of(latent: Latent, using: str) -> Tensor:
    """Probabilities (B, S, T) of every alignment under the prior, q or the exact posterior."""
    if using == "prior":
        return latent.prior.mean
    if using == "inferred":
        if latent.inferred is None:
            raise InputError("this run has no inference network; align with --using prior or posterior")
        return latent.inferred.mean
    if not latent.prior.supports("enumerate"):
        raise InputError("a relaxed model has no exact posterior; align with --using prior or inferred")
    return exact_posterior(latent).mean


@dataclass(frozen=True)
class Pair:
    """A sentence pair as ids and the words they belong to."""

    source: Encoded
    target: Encoded

    @property
    def size(self) -> int:
        return len(self.source.ids) + len(self.target.ids) + 1


def encode_pairs(trained: Trained, sources: Sequence[str], targets: Sequence[str]) -> list[Pair]:
    """Sentence pairs, encoded."""
    encoded = zip(
        trained.tokenizer.encode_source_batch(sources),
        trained.tokenizer.encode_target_batch(targets),
        strict=True,
    )
    return [Pair(source, target) for source, target in encoded]


@torch.no_grad()
def word_alignments(
    trained: Trained, pairs: Sequence[Pair], using: Sequence[str]
) -> Iterator[tuple[int, dict[str, WordAlignment]]]:
    """(position, alignments by name) of every pair, in an order of its own; blank sides give empty matrices."""
    blank = [i for i, p in enumerate(pairs) if not (p.source.ids and p.target.ids)]
    for i in blank:
        shape = (len(pairs[i].target.ids), len(pairs[i].source.ids))
        nothing = word_links(np.zeros(shape), pairs[i].source.words, pairs[i].target.words)
        yield i, dict.fromkeys(using, nothing)
    for group in grouped([p.size for p in pairs], skip=set(blank)):
        chosen = [pairs[i] for i in group]
        batch = pair_batch([p.source.ids for p in chosen], [p.target.ids for p in chosen])
        latent = trained.model.latent(batch.to(trained.model.head.output.weight.device))
        found = {name: alignment_of(latent, name).double().cpu().numpy() for name in using}
        for row, (i, pair) in enumerate(zip(group, chosen, strict=True)):
            s, t = len(pair.target.ids), len(pair.source.ids)
            words = pair.source.words, pair.target.words
            yield i, {name: word_links(matrix[row, :s, :t], *words) for name, matrix in found.items()}


def grouped(sizes: Sequence[int], *, skip: set[int], limit: int = EVALUATION_TOKENS) -> Iterator[list[int]]:
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


def in_order(trained: Trained, pairs: Sequence[Pair], using: str) -> list[WordAlignment]:
    """The alignment of every pair, in the order given."""
    found: dict[int, WordAlignment] = {}
    for i, by_name in word_alignments(trained, pairs, [using]):
        found[i] = by_name[using]
    return [found[i] for i in range(len(pairs))]
