"""Agreement of links with gold links: AER, precision, recall and F1 with bootstrap intervals."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from latentalign.errors import InputError
from latentalign.links.sets import Gold, Links

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Scores:
    """Agreement with gold links over a corpus, with percentile bootstrap intervals over sentences.

    Precision is 1 without predicted links, recall is 1 without sure links, and AER is 0 without both. F1 is 0
    if precision and recall are 0.
    """

    aer: float
    precision: float
    recall: float
    f1: float
    intervals: dict[str, tuple[float, float]] | None = field(repr=False)
    sentences: int
    predicted_links: int
    sure_links: int
    possible_links: int


_RATES = ("aer", "precision", "recall", "f1")


def score(
    gold: Sequence[Gold],
    predicted: Sequence[Links],
    *,
    bootstrap: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> Scores:
    """AER = 1 - (|A∩S| + |A∩P|) / (|A| + |S|), precision |A∩P|/|A|, recall |A∩S|/|S| and F1 of the corpus.

    Och & Ney (2003). Intervals contain `level` of `bootstrap` resamplings of the sentences; None if that is 0.
    """
    require_same_sentences(gold, predicted)
    if bootstrap < 0 or not 0 < level < 1:
        raise InputError(f"bootstrap must be at least 0 and level within (0, 1), not {bootstrap} and {level}")
    counts = np.array(
        [
            (len(a), len(g.sure), len(a & g.sure), len(a & g.possible))
            for g, a in zip(gold, predicted, strict=True)
        ]
    )
    total = counts.sum(axis=0)
    return Scores(
        **dict(zip(_RATES, _rates(total[None])[0].tolist(), strict=True)),
        intervals=_intervals(counts, bootstrap, seed, level=level) if bootstrap else None,
        sentences=len(gold),
        predicted_links=int(total[0]),
        sure_links=int(total[1]),
        possible_links=sum(len(sentence.possible) for sentence in gold),
    )


def _rates(counts: Int[np.ndarray, "n 4"]) -> Float[np.ndarray, "n 4"]:
    """AER, precision, recall and F1 of rows of (|A|, |S|, |A∩S|, |A∩P|)."""
    predicted, sure, in_sure, in_possible = counts.T

    def ratio(top: Array, bottom: Array, empty: float) -> Array:
        result: Array = np.divide(top, bottom, out=np.full(len(top), empty), where=bottom > 0)
        return result

    precision = ratio(in_possible, predicted, 1.0)
    recall = ratio(in_sure, sure, 1.0)
    aer = 1 - ratio(in_sure + in_possible, predicted + sure, 1.0)
    return np.stack([aer, precision, recall, ratio(2 * precision * recall, precision + recall, 0.0)], axis=1)


def _intervals(
    counts: Int[np.ndarray, "n 4"], bootstrap: int, seed: int, *, level: float
) -> dict[str, tuple[float, float]]:
    """Percentile bootstrap intervals of the four rates."""
    rates = np.concatenate([_rates(weights @ counts) for weights in resample(len(counts), bootstrap, seed)])
    found = zip(_RATES, percentiles(rates, level), strict=True)
    return {name: interval for name, interval in found if interval is not None}


def require_same_sentences(gold: Sequence[Gold], predicted: Sequence[object]) -> None:
    """Refuse gold and predicted links that cannot belong to the same text."""
    if len(gold) != len(predicted):
        raise InputError(
            f"{len(gold)} gold sentences but {len(predicted)} predicted ones; give one line per sentence, "
            "and an empty line for a sentence without links"
        )
    if not gold:
        raise InputError("there is no sentence to score: the gold and predicted links are empty")


def resample(n: int, times: int, seed: int) -> Iterator[Int[np.ndarray, "rows n"]]:
    """Bootstrap resamplings of n sentences, in blocks: how often each sentence was drawn."""
    generator = np.random.default_rng(seed)
    block = max(1, 2**20 // n)  # limits the memory of a block of resamplings
    for done in range(0, times, block):
        drawn = generator.integers(n, size=(min(block, times - done), n))
        yield np.stack([np.bincount(row, minlength=n) for row in drawn])


def percentiles(values: Float[np.ndarray, "rows k"], level: float) -> list[tuple[float, float] | None]:
    """The interval that holds `level` of the numbers in each column; None if all are NaN."""

    def interval(column: Array) -> tuple[float, float] | None:
        if not len(column):
            return None
        low, high = np.quantile(column, [(1 - level) / 2, (1 + level) / 2]).tolist()
        return low, high

    return [interval(column[~np.isnan(column)]) for column in values.T]
