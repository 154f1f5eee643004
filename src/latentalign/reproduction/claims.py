"""Orderings that the paper claims: seen in these results or not, and on what evidence."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from sacrebleu.metrics import BLEU

from latentalign.reproduction.paper import Claim
from latentalign.reproduction.rows import by_row

RESAMPLINGS = 1000
LEVEL = 0.95
FEWEST = 30
"""Examples below which an interval decides nothing."""
Details = Callable[[str, int], Path]


@dataclass(frozen=True)
class Evidence:
    """How much the first is ahead, the interval of resamplings, and how many examples they drew from."""

    lead: float
    interval: tuple[float, float]
    examples: int


def judge(
    claims: Sequence[Claim], results: Sequence[dict[str, Any]], details: Details
) -> list[dict[str, Any]]:
    """Every claim whose rows were trained, with a verdict: seen, not seen or undecided."""
    rows = by_row(results)
    found = []
    for claim in claims:
        if claim.better not in rows or claim.worse not in rows:
            continue
        first = [r.get(claim.figure) for r in rows[claim.better]]
        second = [r.get(claim.other or claim.figure) for r in rows[claim.worse]]
        if None in first or None in second:
            continue
        evidence = resampled(claim, rows, details)
        if evidence is None:
            seen, reverse = every_seed(claim, first, second)
        else:
            enough = evidence.examples >= FEWEST
            seen, reverse = enough and evidence.interval[0] > 0, enough and evidence.interval[1] < 0
        found.append(
            {
                "claim": claim.text,
                "better": fmean(first),
                "worse": fmean(second),
                "lead": evidence.lead if evidence else None,
                "interval": evidence.interval if evidence else None,
                "unit": "points" if claim.higher_is_better else "nats",
                "examples": evidence.examples if evidence else None,
                "seeds": [len(first), len(second)],
                "verdict": "seen" if seen else "not seen" if reverse else "undecided",
            }
        )
    return found


def every_seed(claim: Claim, first: Sequence[float], second: Sequence[float]) -> tuple[bool, bool]:
    """Whether all seeds agree with a claim, and whether all contradict it."""
    sign = 1 if claim.higher_is_better else -1
    same = claim.better == claim.worse  # one row measured in two ways: seed by seed
    pairs = [*zip(first, second, strict=True)] if same else [(a, b) for a in first for b in second]
    return all(sign * a > sign * b for a, b in pairs), all(sign * a < sign * b for a, b in pairs)


def resampled(claim: Claim, rows: dict[str, list[dict[str, Any]]], details: Details) -> Evidence | None:
    """A bootstrap over test examples and seeds; None where there are no scores of examples.

    Perplexities, likelihoods and entropies in nats, BLEU and accuracy in points. Questions about one picture are
    drawn together.
    """
    sides = [[read(details(r["row"], r["seed"])) for r in rows[name]] for name in (claim.better, claim.worse)]
    if not all(sides[0]) or not all(sides[1]):
        return None
    if claim.figure == "bleu":
        return bleu_evidence(*([d["bleu_statistics"] for d in side] for side in sides))
    figures = (claim.figure, claim.other or claim.figure)
    scores = [[d["scores"].get(f) for d in side] for f, side in zip(figures, sides, strict=True)]
    if any(values is None for side in scores for values in side):
        return None
    first, second = (np.array(side) for side in scores)
    weights = np.asarray(sides[0][0].get("tokens") or np.ones(first.shape[1]))
    groups = sides[0][0].get("groups", {}).get(claim.figure)
    if groups is not None:
        first, second, weights = (summed(x, groups) for x in (first, second, weights))
    sign = -1 if claim.figure.startswith("entropy") else 1
    return ratio_evidence(sign * first, sign * second, weights, paired=claim.better == claim.worse)


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {}
    return found


def summed(values: np.ndarray, groups: Sequence[int]) -> np.ndarray:
    """Sums of the last axis over examples of the same group."""
    _, places = np.unique(np.asarray(groups), return_inverse=True)
    flat = np.atleast_2d(values)
    found = np.stack([np.bincount(places, weights=row) for row in flat])
    return found if values.ndim > 1 else found[0]


def resamplings(
    seeds: Sequence[int], examples: int, *, paired: bool, seed: int
) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
    """Examples and, for both sides, seeds, drawn with replacement; a pair of measurements of one run stays one."""
    generator = np.random.default_rng(seed)
    for _ in range(RESAMPLINGS):
        chosen = generator.integers(examples, size=examples)
        drawn = [generator.integers(count, size=count) for count in seeds]
        yield chosen, [drawn[0], drawn[0]] if paired else drawn


def between(leads: Sequence[float]) -> tuple[float, float]:
    """A percentile interval."""
    low, high = np.quantile(leads, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return low, high


def ratio_evidence(
    first: np.ndarray, second: np.ndarray, weights: np.ndarray, *, paired: bool = False, seed: int = 0
) -> Evidence:
    """The weighted mean of first - second, (seeds, examples) each."""
    sides, n = (first, second), first.shape[1]
    leads = []
    for chosen, seeds in resamplings([len(x) for x in sides], n, paired=paired, seed=seed):
        a, b = (x[k][:, chosen].mean(0).sum() for x, k in zip(sides, seeds, strict=True))
        leads.append((a - b) / weights[chosen].sum())
    lead = float((first.mean(0).sum() - second.mean(0).sum()) / weights.sum())
    return Evidence(lead, between(leads), n)


def bleu_evidence(
    first: Sequence[Sequence[Sequence[int]]], second: Sequence[Sequence[Sequence[int]]], *, seed: int = 0
) -> Evidence:
    """The mean BLEU of the first's seeds less that of the second's."""
    sides = [np.asarray(side) for side in (first, second)]
    n = sides[0].shape[1]

    def lead(chosen: np.ndarray, seeds: Sequence[np.ndarray]) -> float:
        a, b = (
            fmean(corpus_bleu(side[k][chosen].sum(0)) for k in ks)
            for side, ks in zip(sides, seeds, strict=True)
        )
        return a - b

    drawn = resamplings([len(side) for side in sides], n, paired=False, seed=seed)
    whole = lead(np.arange(n), [np.arange(len(side)) for side in sides])
    return Evidence(whole, between([lead(*one) for one in drawn]), n)


def corpus_bleu(statistics: np.ndarray) -> float:
    """BLEU of summed sentence statistics: lengths of output and reference, matches and counts of n-grams."""
    hypothesis, reference, *counts = (int(x) for x in statistics)
    found = BLEU.compute_bleu(
        correct=counts[:4], total=counts[4:], sys_len=hypothesis, ref_len=reference, smooth_method="exp"
    )
    return float(found.score)
