"""Translation probabilities of words, mixed from words, their first letters and their last letters.

p(f | e) is a mixture. Its parts are a sparse table for every unit (word, prefix, suffix) and the chance that f is a
copy of e. The weights of the parts depend on how often e occurs, and are learned: rare words rely on their units,
frequent words on themselves. The table of a unit predicts the unit of f; within the unit, f is as likely as it is
frequent. The tables have a sparse Dirichlet prior and are estimated by variational Bayes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentalign.aligner.corpus import Vocabulary

Array = np.ndarray[Any, np.dtype[Any]]
BUCKETS = 10
"""Groups of words by frequency, in powers of two."""
CHUNK = 2_000_000
"""Word pairs that are computed at once."""
TINY = 1e-30


@dataclass(eq=False)
class Level:
    """The tables of one unit for both directions."""

    kind: str
    length: int
    units: tuple[Vocabulary, Vocabulary]
    """Units of source and target words."""
    counts: tuple[Float[Tensor, " units"], Float[Tensor, " units"]]
    """How often each unit occurs."""
    keys: Int[Array, " n"]
    """Sorted pairs of units, source * |target units| + target."""
    tables: list[Float[Tensor, " n"]] = field(default_factory=list)
    """p(target unit | source unit) and p(source unit | target unit)."""


class Words:
    """The words of both sides, their frequencies and their units."""

    def __init__(
        self, vocabularies: tuple[Vocabulary, Vocabulary], frequencies: tuple[Tensor, Tensor]
    ) -> None:
        self.vocabularies, self.frequencies = vocabularies, frequencies
        self.buckets = tuple(bucket_of(f) for f in frequencies)

    def units(self, kind: str, length: int) -> tuple[tuple[Vocabulary, Vocabulary], tuple[Array, Array]]:
        """The units of both sides and the unit of every word."""
        (a, of_a), (b, of_b) = (v.units(kind, length) for v in self.vocabularies)
        return (a, b), (of_a, of_b)


def bucket_of(frequency: Float[Tensor, " words"]) -> Int[Tensor, " words"]:
    """The group of words of similar frequency."""
    return frequency.clamp_min(1).log2().long().clamp_max(BUCKETS - 1)


def index_tensor(numbers: Array) -> Int[Tensor, " n"]:
    """Indices as a tensor of half the size."""
    return torch.from_numpy(numbers.astype(np.int32))


def expected_probability(counts: Tensor, total: Tensor, sparsity: float, outcomes: int) -> Tensor:
    """exp E[log p] under the Dirichlet posterior of expected counts."""
    return torch.exp(torch.digamma(counts + sparsity) - torch.digamma(total + sparsity * outcomes))


class Lexicon:
    """Translation probabilities of all word pairs of a text, in both directions."""

    def __init__(
        self, words: Words, keys: Int[Array, " pairs"], units: Sequence[tuple[str, int]], sparsity: float
    ):
        self.words, self.sparsity, self.size = words, sparsity, len(keys)
        width = max(1, len(words.vocabularies[1]))
        known = np.maximum(keys, 0)  # the first key is -1, for no pair
        self.pair_words = (index_tensor(known // width), index_tensor(known % width))
        self.levels: list[Level] = []
        self.level_index: list[Int[Tensor, " pairs"]] = []
        self.shares: list[tuple[Tensor, Tensor]] = []
        self.level_words: list[tuple[Tensor, Tensor]] = []
        for kind, length in units:
            self._add_level(kind, length)
        same = np.array(
            [words.vocabularies[1].ids.get(word, -1) for word in words.vocabularies[0].ids], np.int64
        )
        self.copies = torch.from_numpy(same)[self.pair_words[0]] == self.pair_words[1]
        self.copies[0] = False
        parts = len(self.levels) + 1
        self.mixtures = [torch.full((BUCKETS, parts), 1 / parts) for _ in range(2)]
        self.trained = False

    def _add_level(self, kind: str, length: int) -> None:
        """Find the pairs of units of all word pairs."""
        units, unit_of_word = self.words.units(kind, length)
        source, target = (unit_of_word[side][self.pair_words[side].numpy()] for side in (0, 1))
        keys, index = np.unique(source * max(1, len(units[1])) + target, return_inverse=True)
        counts = tuple(
            torch.zeros(max(1, len(units[side]))).index_add_(
                0, torch.from_numpy(unit_of_word[side]), self.words.frequencies[side]
            )
            for side in (0, 1)
        )
        self.levels.append(Level(kind, length, units, (counts[0], counts[1]), keys))
        self.level_index.append(index_tensor(index))
        shares = [
            self.words.frequencies[side] / counts[side][torch.from_numpy(unit_of_word[side])]
            for side in (0, 1)
        ]
        self.shares.append((shares[0], shares[1]))
        width = max(1, len(units[1]))
        self.level_words.append((index_tensor(keys // width), index_tensor(keys % width)))

    def chunks(self) -> Iterator[slice]:
        return (slice(start, start + CHUNK) for start in range(0, self.size, CHUNK))

    def parts(self, direction: int, chunk: slice) -> Float[Tensor, "parts n"]:
        """The parts of p(out | given) of some word pairs; `direction` is the side that is given."""
        given, out = (self.pair_words[side][chunk] for side in (direction, 1 - direction))
        weights = self.mixtures[direction].t()[:, self.words.buckets[direction][given]]
        for number, level in enumerate(self.levels):
            weights[number] *= level.tables[direction][self.level_index[number][chunk]]
            weights[number] *= self.shares[number][1 - direction][out]
        weights[-1] *= self.copies[chunk]
        return weights

    def emissions(self, direction: int) -> Float[Tensor, " pairs"]:
        """p(out | given) of every word pair; 0 for no pair."""
        if not self.trained:
            found = torch.full((self.size,), 1 / max(1, len(self.words.vocabularies[1 - direction])))
        else:
            found = torch.cat([self.parts(direction, chunk).sum(0) for chunk in self.chunks()])
        found[0] = 0.0
        return found

    def update(self, direction: int, counts: Float[Tensor, " pairs"]) -> None:
        """Estimate tables and mixture weights from expected counts of word pairs."""
        counts[0] = 0.0
        collected = [torch.zeros(len(level.keys)) for level in self.levels]
        weights = torch.ones(len(self.levels) + 1, BUCKETS)  # one virtual count each
        for chunk in self.chunks():
            bucket = self.words.buckets[direction][self.pair_words[direction][chunk]]
            own = counts[chunk]
            if self.trained:
                parts = self.parts(direction, chunk)
                shares = parts * (own / parts.sum(0).clamp_min(TINY))
            else:
                shares = own.expand(len(self.levels) + 1, -1)
            for number in range(len(self.levels)):
                collected[number].index_add_(0, self.level_index[number][chunk], shares[number])
            if self.trained:
                for number, share in enumerate(shares):
                    weights[number].index_add_(0, bucket, share)
        if self.trained:
            self.mixtures[direction] = (weights / weights.sum(0)).t().contiguous()
        for number, level in enumerate(self.levels):
            given = self.level_words[number][direction]
            outcomes = len(level.units[1 - direction])
            total = torch.zeros(max(1, len(level.units[direction]))).index_add_(0, given, collected[number])
            table = expected_probability(collected[number], total[given], self.sparsity, outcomes)
            if len(level.tables) == 2:
                level.tables[direction] = table
            else:
                level.tables.append(table)
