"""How far the probabilities of links can be trusted: calibration errors, reliability, precision against coverage.

A link is right if the gold links call it sure or possible. Intervals are percentile bootstrap intervals over sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from latentalign.links.scores import percentiles, require_same_sentences, resample
from latentalign.links.sets import Gold, LinkProbabilities

Array = np.ndarray[Any, np.dtype[Any]]
Interval = tuple[float, float]

BINS = 10
"""Bins of equal width, as in Guo et al. (2017). The last one includes probability 1."""
COVERAGES = tuple(share / 10 for share in range(1, 11))
LEAST_CANDIDATE = 0.01
"""Candidates that are less probable do not count: nearly all pairs of words are right to be improbable."""


@dataclass(frozen=True)
class ReliabilityBin:
    """The links whose probability is in [low, high), or in [low, high] for the last bin."""

    low: float
    high: float
    links: int
    probability: float | None
    """Mean probability; None without links."""
    precision: float | None
    """Share of right links; None without links."""
    interval: Interval | None


@dataclass(frozen=True)
class CoveragePoint:
    """What remains if only the most probable links are kept."""

    coverage: float
    """Share of the predicted links that are kept."""
    links: int
    at_least: float
    """Probability of the least probable link that is kept."""
    precision: float
    precision_interval: Interval | None
    recall: float
    """Share of the sure gold links that are kept; 1 without sure links."""
    recall_interval: Interval | None


@dataclass(frozen=True)
class Reliability:
    """Agreement of probabilities with the share of right links. Figures are None if there are no links."""

    links: int
    ece: float | None
    """Expected calibration error: mean over links of |precision - mean probability| of their bin."""
    ece_interval: Interval | None
    brier: float | None
    """Mean of (probability - right)², where right is 0 or 1."""
    brier_interval: Interval | None
    bins: list[ReliabilityBin]


@dataclass(frozen=True)
class Calibration(Reliability):
    """Reliability of the predicted links, their precision against coverage, and the reliability of all candidates."""

    curve: list[CoveragePoint]
    candidates: Reliability | None
    """All links with a probability of at least 0.01, predicted or not; None if the file has only predicted ones."""


def calibrate(
    gold: Sequence[Gold],
    predicted: Sequence[LinkProbabilities],
    candidates: Sequence[LinkProbabilities] | None = None,
    *,
    bootstrap: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> Calibration:
    """How well the probabilities of predicted links, and of all candidates, say how often they are right."""
    require_same_sentences(gold, predicted)
    resampled = partial(resample, len(gold), bootstrap, seed)
    links = _Judged.of(gold, predicted, resampled, level)
    everything = None
    if candidates is not None:
        likely = [{k: p for k, p in found.items() if p >= LEAST_CANDIDATE} for found in candidates]
        everything = reliability(_Judged.of(gold, likely, resampled, level))
    return Calibration(**vars(reliability(links)), curve=precision_by_coverage(links), candidates=everything)


@dataclass(frozen=True)
class _Judged:
    """The links of a corpus in order of decreasing probability, and resamplings of its sentences."""

    probability: Float[np.ndarray, " links"]
    right: Int[np.ndarray, " links"]
    sure: Int[np.ndarray, " links"]
    sentence: Int[np.ndarray, " links"]
    sure_by_sentence: Int[np.ndarray, " n"]
    resampled: Callable[[], Iterator[Array]]
    """Blocks (resamplings, n): how often each sentence was drawn."""
    level: float

    @classmethod
    def of(
        cls,
        gold: Sequence[Gold],
        links: Sequence[LinkProbabilities],
        resampled: Callable[[], Iterator[Array]],
        level: float,
    ) -> _Judged:
        rows = [
            (p, link in g.possible, link in g.sure, n)
            for n, (g, found) in enumerate(zip(gold, links, strict=True))
            for link, p in found.items()
        ]
        rows.sort(key=lambda row: -row[0])
        columns: Array = np.array(rows, dtype=np.float64).reshape(len(rows), 4).T
        right, sure, sentence = columns[1:].astype(np.int64)
        sure_by_sentence = np.array([len(g.sure) for g in gold])
        return cls(columns[0], right, sure, sentence, sure_by_sentence, resampled, level)

    @property
    def sentences(self) -> int:
        return len(self.sure_by_sentence)

    @cached_property
    def bin(self) -> Array:
        return np.minimum((self.probability * BINS).astype(np.int64), BINS - 1)

    def interval(self, figure: Callable[[Array], Array]) -> list[Interval | None]:
        """Intervals of figures (rows, k) of sentence weights (rows, n); None where no resampling has the figure."""
        values = [figure(weights) for weights in self.resampled()]
        return percentiles(np.concatenate(values), self.level) if values else []

    def by_sentence(self, value: Array, bins: int = 1, bin: Array | None = None) -> Array:
        """Sums of a value over the links of each sentence and bin: (n, bins)."""
        place = self.sentence * bins + (0 if bin is None else bin)
        sums = np.bincount(place, value, minlength=self.sentences * bins)
        return sums.reshape(self.sentences, bins)


def reliability(links: _Judged) -> Reliability:
    """Calibration error, Brier score and the table of bins."""
    one = np.ones(len(links.probability))
    count, probability, right = (
        links.by_sentence(value, BINS, links.bin) for value in (one, links.probability, links.right)
    )
    squares = links.by_sentence((links.probability - links.right) ** 2)

    def errors(weights: Array) -> Array:
        total = (weights @ count).sum(1)
        gaps = np.abs(weights @ right - weights @ probability).sum(1)
        return np.stack([_ratio(gaps, total), _ratio((weights @ squares)[:, 0], total)], axis=1)

    def precision(weights: Array) -> Array:
        return _ratio(weights @ right, weights @ count)

    once = np.ones((1, links.sentences))
    ece, brier = map(_number, errors(once)[0])
    ece_interval, brier_interval = links.interval(errors) or (None, None)
    intervals = links.interval(precision) or [None] * BINS
    totals = count.sum(0)
    means, shares = _ratio(probability.sum(0), totals), precision(once)[0]
    bins = [
        ReliabilityBin(
            low=b / BINS,
            high=(b + 1) / BINS,
            links=int(totals[b]),
            probability=_number(means[b]),
            precision=_number(shares[b]),
            interval=intervals[b],
        )
        for b in range(BINS)
    ]
    return Reliability(len(one), ece, ece_interval, brier, brier_interval, bins)


def precision_by_coverage(links: _Judged) -> list[CoveragePoint]:
    """Precision and recall of the most probable links. Among equally probable links, the mean over their orders."""
    p, total = links.probability, len(links.probability)
    if not total:
        return []
    ends = np.append(
        np.flatnonzero(np.diff(p)), total - 1
    )  # the last link of each group of equal probability

    def rates(weights: Array) -> Array:
        return np.array([_rates_of_one(links, ends, row) for row in weights])

    once = rates(np.ones((1, links.sentences)))[0]
    intervals = links.interval(rates) or [None] * (2 * len(COVERAGES))
    points = []
    for i, coverage in enumerate(COVERAGES):
        kept, recall = max(1, round(coverage * total)), i + len(COVERAGES)
        at = float(p[kept - 1])
        figures = float(once[i]), intervals[i], float(once[recall]), intervals[recall]
        points.append(CoveragePoint(coverage, kept, at, *figures))
    return points


def _rates_of_one(links: _Judged, ends: Array, weights: Array) -> Array:
    """Precision at every coverage, then recall at every coverage, if sentences count as often as `weights` says."""
    weight = weights[links.sentence]

    def kept(value: Array) -> Array:
        sums: Array = np.append(0, np.cumsum(weight * value)[ends])
        return sums

    count, wanted = kept(np.ones_like(links.right)), np.array(COVERAGES)
    total, sure = count[-1], weights @ links.sure_by_sentence
    right, found = (np.interp(wanted * total, count, kept(value)) for value in (links.right, links.sure))
    precision = right / (wanted * total) if total else np.full(len(wanted), np.nan)
    return np.concatenate([precision, found / sure if sure else np.ones(len(wanted))])


def _ratio(top: Array, bottom: Array) -> Array:
    """NaN where there is nothing to divide by."""
    result: Array = np.divide(top, bottom, out=np.full(np.shape(top), np.nan), where=bottom > 0)
    return result


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
