"""Orderings that the paper claims: whether these results show them, and the evidence."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentalign.reproduction.results import Result, by_row

RESAMPLINGS = 1000
LEVEL = 0.95
FEWEST_EXAMPLES = 30
"""With fewer examples, an interval decides nothing."""
DetailsFile = Callable[[str, int], Path]
"""The file with the details of a row and a seed."""
Array = NDArray[Any]


@dataclass(frozen=True)
class Claim:
    """An ordering of two measurements: the first is better than the second."""

    text: str
    figure: str
    better: str
    worse: str
    other: str | None = None
    """The figure of the second measurement, where it differs from the first's."""
    higher_is_better: bool = False
    """Whether a higher figure is better, as for BLEU and accuracy. Such figures are in points, the others in nats."""
    lower_scores_win: bool = False
    """Whether an example's score is better when it is lower, as for entropies. Likelihoods are scored as log f."""


def claim_orderings(
    figure: str,
    phrase: str,
    *pairs: tuple[str, str],
    higher_is_better: bool = False,
    lower_scores_win: bool = False,
) -> list[Claim]:
    """Claims that the first row of each pair has a better figure than the second."""
    return [
        Claim(
            f"{better} has {phrase} than {worse}",
            figure,
            better,
            worse,
            higher_is_better=higher_is_better,
            lower_scores_win=lower_scores_win,
        )
        for better, worse in pairs
    ]


@dataclass(frozen=True)
class CorpusScore:
    """A figure of a whole corpus that follows from summed statistics of its examples, e.g. BLEU."""

    statistics: str
    """The key of the details that holds the statistics of every example."""
    score: Callable[[Array], float]
    """The figure of summed statistics."""


@dataclass(frozen=True)
class Evidence:
    """The lead of the first measurement, the interval of its resamplings, and the number of examples drawn from."""

    lead: float
    interval: tuple[float, float]
    examples: int


@dataclass(frozen=True)
class ClaimVerdict:
    """A claim, both figures, and whether the first leads: seen, not seen or undecided."""

    claim: str
    better: float
    worse: float
    lead: float | None
    interval: tuple[float, float] | None
    unit: str
    examples: int | None
    seeds: list[int]
    verdict: str

    def to_json(self) -> dict[str, Any]:
        """An entry of claims.json."""
        return asdict(self)


def judge_claims(
    claims: Sequence[Claim],
    results: Sequence[Result],
    details_file: DetailsFile,
    *,
    corpus_scores: Mapping[str, CorpusScore] | None = None,
) -> list[ClaimVerdict]:
    """A verdict on every claim whose rows were trained."""
    rows = by_row(results)
    verdicts = []
    for claim in claims:
        if claim.better not in rows or claim.worse not in rows:
            continue
        first = [r.get(claim.figure) for r in rows[claim.better]]
        second = [r.get(claim.other or claim.figure) for r in rows[claim.worse]]
        if None not in first and None not in second:
            evidence = resample(claim, rows, details_file, corpus_scores=corpus_scores or {})
            verdicts.append(judge(claim, first, second, evidence=evidence))
    return verdicts


def judge(
    claim: Claim, first: Sequence[Any], second: Sequence[Any], *, evidence: Evidence | None
) -> ClaimVerdict:
    """The verdict on one claim, from the interval of its lead or, without one, from the seeds."""
    if evidence is None:
        seen, reverse = compare_seeds(claim, first, second)
    else:
        enough = evidence.examples >= FEWEST_EXAMPLES
        seen, reverse = enough and evidence.interval[0] > 0, enough and evidence.interval[1] < 0
    return ClaimVerdict(
        claim=claim.text,
        better=fmean(first),
        worse=fmean(second),
        lead=evidence.lead if evidence else None,
        interval=evidence.interval if evidence else None,
        unit="points" if claim.higher_is_better else "nats",
        examples=evidence.examples if evidence else None,
        seeds=[len(first), len(second)],
        verdict="seen" if seen else "not seen" if reverse else "undecided",
    )


def compare_seeds(claim: Claim, first: Sequence[float], second: Sequence[float]) -> tuple[bool, bool]:
    """Whether all seeds agree with a claim, and whether all contradict it."""
    sign = 1 if claim.higher_is_better else -1
    same = claim.better == claim.worse  # one row measured in two ways: compare seed by seed
    pairs = [*zip(first, second, strict=True)] if same else [(a, b) for a in first for b in second]
    return all(sign * a > sign * b for a, b in pairs), all(sign * a < sign * b for a, b in pairs)


def resample(
    claim: Claim,
    rows: Mapping[str, Sequence[Result]],
    details_file: DetailsFile,
    *,
    corpus_scores: Mapping[str, CorpusScore],
) -> Evidence | None:
    """A bootstrap over test examples and seeds; None when the details hold no scores of examples.

    Perplexities, likelihoods and entropies are in nats, corpus scores and accuracy in points. Examples of one group,
    e.g. questions about one picture, are drawn together.
    """
    sides = [
        [read_details(details_file(r["row"], r["seed"])) for r in rows[name]]
        for name in (claim.better, claim.worse)
    ]
    if not all(sides[0]) or not all(sides[1]):
        return None
    if claim.figure in corpus_scores:
        corpus_score = corpus_scores[claim.figure]
        statistics = [[details[corpus_score.statistics] for details in side] for side in sides]
        return corpus_evidence(*statistics, score=corpus_score.score)
    figures = (claim.figure, claim.other or claim.figure)
    scores = [[d["scores"].get(f) for d in side] for f, side in zip(figures, sides, strict=True)]
    if any(values is None for side in scores for values in side):
        return None
    first, second = (np.array(side) for side in scores)
    weights = np.asarray(sides[0][0].get("tokens") or np.ones(first.shape[1]))
    groups = sides[0][0].get("groups", {}).get(claim.figure)
    if groups is not None:
        first, second, weights = (sum_groups(x, groups) for x in (first, second, weights))
    sign = -1 if claim.lower_scores_win else 1
    return ratio_evidence(sign * first, sign * second, weights, paired=claim.better == claim.worse)


def read_details(path: Path) -> dict[str, Any]:
    """The details of a row; empty when there are none."""
    details: dict[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {}
    return details


def sum_groups(values: Array, groups: Sequence[int]) -> Array:
    """Sums of the last axis over examples of the same group."""
    _, places = np.unique(np.asarray(groups), return_inverse=True)
    flat = np.atleast_2d(values)
    sums = np.stack([np.bincount(places, weights=row) for row in flat])
    return sums if values.ndim > 1 else np.asarray(sums[0])


def draw_resamplings(
    seeds: Sequence[int], examples: int, *, paired: bool, seed: int
) -> Iterator[tuple[Array, list[Array]]]:
    """Examples and, for both sides, seeds, drawn with replacement. Two measurements of one run share their seeds."""
    generator = np.random.default_rng(seed)
    for _ in range(RESAMPLINGS):
        chosen = generator.integers(examples, size=examples)
        drawn = [generator.integers(count, size=count) for count in seeds]
        yield chosen, [drawn[0], drawn[0]] if paired else drawn


def percentile_interval(leads: Sequence[float]) -> tuple[float, float]:
    """The central interval that contains LEVEL of the leads."""
    low, high = np.quantile(leads, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return low, high


def ratio_evidence(
    first: Array, second: Array, weights: Array, *, paired: bool = False, seed: int = 0
) -> Evidence:
    """The weighted mean of first - second, each of shape (seeds, examples)."""
    sides, n = (first, second), first.shape[1]
    leads = []
    for chosen, seeds in draw_resamplings([len(x) for x in sides], n, paired=paired, seed=seed):
        a, b = (x[k][:, chosen].mean(0).sum() for x, k in zip(sides, seeds, strict=True))
        leads.append((a - b) / weights[chosen].sum())
    lead = float((first.mean(0).sum() - second.mean(0).sum()) / weights.sum())
    return Evidence(lead, percentile_interval(leads), n)


def corpus_evidence(
    first: Sequence[Any], second: Sequence[Any], *, score: Callable[[Array], float], seed: int = 0
) -> Evidence:
    """The mean corpus score of the first's seeds minus that of the second's; statistics by seed and example."""
    sides = [np.asarray(side) for side in (first, second)]
    n = sides[0].shape[1]

    def lead(chosen: Array, seeds: Sequence[Array]) -> float:
        a, b = (
            fmean(score(side[k][chosen].sum(0)) for k in ks) for side, ks in zip(sides, seeds, strict=True)
        )
        return a - b

    resamplings = draw_resamplings([len(side) for side in sides], n, paired=False, seed=seed)
    whole = lead(np.arange(n), [np.arange(len(side)) for side in sides])
    return Evidence(whole, percentile_interval([lead(*one) for one in resamplings]), n)
