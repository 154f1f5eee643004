"""Random sentences: their lengths and words, and evenly spaced samples of a list."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from latentalign.tasks.nmt.data import Corpus
from latentalign.tasks.nmt.tokenizer import EOS

T = TypeVar("T")


@dataclass(frozen=True)
class Lengths:
    """Lengths of source and target sentences in tokens, without </s>: log-normal, correlated, within limits."""

    means: tuple[float, float] = (11.1, 11.9)
    deviations: tuple[float, float] = (3.8, 3.8)
    correlation: float = 0.87
    limits: tuple[int, int] = (3, 40)

    def draw(self, n: int, random: np.random.Generator) -> np.ndarray:
        """(2, n) lengths."""
        spread = [d / m for d, m in zip(self.deviations, self.means, strict=True)]
        variance = [math.log1p(s * s) for s in spread]
        shared = math.log1p(self.correlation * spread[0] * spread[1])
        mean = [math.log(m) - v / 2 for m, v in zip(self.means, variance, strict=True)]
        drawn = random.multivariate_normal(mean, [[variance[0], shared], [shared, variance[1]]], n)
        return np.exp(drawn).round().clip(*self.limits).astype(np.int64).T


@dataclass(frozen=True)
class FixedLength:
    """One length for every source and for every target with its </s>."""

    length: int

    def draw(self, n: int, random: np.random.Generator) -> np.ndarray:
        return np.tile([[self.length], [self.length - 1]], n)


def zipf_corpus(lengths: Lengths | FixedLength, sentences: int, vocabulary: int, *, seed: int) -> Corpus:
    """Pairs of sentences whose words follow Zipf's law, without special tokens; the same for the same seed."""
    random = np.random.default_rng(seed)
    share = 1 / np.arange(1, vocabulary - EOS)
    arrays = {"lines": np.arange(1, sentences + 1)}
    for side, each in zip(("source", "target"), lengths.draw(sentences, random), strict=True):
        ids = random.choice(len(share), each.sum(), p=share / share.sum()) + EOS + 1
        arrays |= {f"{side}.ids": ids.astype("<i4"), f"{side}.offsets": np.append(0, each.cumsum())}
    return Corpus(arrays, {})


def evenly_spaced(items: Sequence[T], n: int) -> list[T]:
    """n items, or all if there are fewer, at even distances from the first to the last."""
    n = min(n, len(items))
    return [items[(2 * i + 1) * len(items) // (2 * n)] for i in range(n)]
