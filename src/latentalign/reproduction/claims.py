"""Orderings that the paper claims: seen in these results or not, and on what evidence."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from sacrebleu.metrics import BLEU

from latentalign.reproduction.paper import Claim
from latentalign.reproduction.rows import by_row

RESAMPLINGS = 1000
LEVEL = 0.95
Details = Callable[[str, int], Path]


def judge(
    claims: Sequence[Claim], results: Sequence[dict[str, Any]], details: Details
) -> list[dict[str, Any]]:
    """Every claim whose rows were trained, with a verdict: seen, not seen or undecided."""
    rows = by_row(results)
    found = []
    for claim in claims:
        if claim.better not in rows or claim.worse not in rows:
            continue
        first = [r[claim.figure] for r in rows[claim.better]]
        second = [r[claim.other or claim.figure] for r in rows[claim.worse]]
        if None in first or None in second:
            continue
        sign = 1 if claim.higher_is_better else -1
        lead = sign * (fmean(first) - fmean(second))
        interval = resampled(claim, rows, details)
        if interval is None:
            same = claim.better == claim.worse  # one row measured in two ways: seed by seed
            pairs = [*zip(first, second, strict=True)] if same else [(a, b) for a in first for b in second]
            seen = all(sign * a > sign * b for a, b in pairs)
            reverse = all(sign * a < sign * b for a, b in pairs)
        else:
            seen, reverse = interval[0] > 0, interval[1] < 0
        found.append(
            {
                "claim": claim.text,
                "better": fmean(first),
                "worse": fmean(second),
                "lead": lead,
                "interval": interval,
                "seeds": [len(first), len(second)],
                "verdict": "seen" if seen else "not seen" if reverse else "undecided",
            }
        )
    return found


def resampled(
    claim: Claim, rows: dict[str, list[dict[str, Any]]], details: Details
) -> tuple[float, float] | None:
    """A bootstrap interval over test examples and seeds of how much the first is ahead; None where there is none.

    For perplexity in nats per token, for BLEU and accuracy in points. Questions about one picture are drawn together.
    """
    if claim.other is not None or claim.figure not in ("ppl", "nll", "bleu", "accuracy"):
        return None
    sides = [[read(details(r["row"], r["seed"])) for r in rows[name]] for name in (claim.better, claim.worse)]
    if not all(sides[0]) or not all(sides[1]):
        return None
    if claim.figure == "bleu":
        return bleu_interval(*([d["bleu_statistics"] for d in side] for side in sides))
    key = "log_prob" if claim.figure in ("ppl", "nll") else "accuracies"
    if any(key not in d for side in sides for d in side):
        return None
    first, second = (np.array([d[key] for d in side]) for side in sides)
    weights = np.asarray(sides[0][0].get("tokens") or np.ones(first.shape[1]))
    pictures = sides[0][0].get("pictures" if key == "log_prob" else "all_pictures")
    if pictures is not None:
        first, second, weights = (summed(x, pictures) for x in (first, second, weights))
    scale = 100.0 if claim.figure == "accuracy" else 1.0
    return ratio_interval(scale * first, scale * second, weights)


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {}
    return found


def summed(values: np.ndarray, groups: Sequence[int]) -> np.ndarray:
    """Sums of the last axis over examples of the same group."""
    _, places = np.unique(np.asarray(groups), return_inverse=True)
    flat = np.atleast_2d(values)
    found = np.stack([np.bincount(places, weights=row) for row in flat])
    return found if values.ndim > 1 else found[0]


def drawn_seeds(generator: np.random.Generator, count: int) -> np.ndarray:
    """Seeds of one resampling, with replacement."""
    return generator.integers(count, size=count)


def ratio_interval(
    first: np.ndarray, second: np.ndarray, weights: np.ndarray, *, seed: int = 0
) -> tuple[float, float]:
    """A percentile bootstrap interval of the weighted mean of first - second, (seeds, examples) each."""
    generator, n = np.random.default_rng(seed), first.shape[1]
    leads = []
    for _ in range(RESAMPLINGS):
        chosen = generator.integers(n, size=n)
        a, b = (x[drawn_seeds(generator, len(x))][:, chosen].mean(0).sum() for x in (first, second))
        leads.append((a - b) / weights[chosen].sum())
    low, high = np.quantile(leads, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return low, high


def bleu_interval(
    first: Sequence[Sequence[Sequence[int]]], second: Sequence[Sequence[Sequence[int]]], *, seed: int = 0
) -> tuple[float, float]:
    """A percentile bootstrap interval of the mean BLEU of the first's seeds less that of the second's."""
    generator = np.random.default_rng(seed)
    sides = [np.asarray(side) for side in (first, second)]
    n = sides[0].shape[1]
    leads = []
    for _ in range(RESAMPLINGS):
        chosen = generator.integers(n, size=n)
        seeds = [drawn_seeds(generator, len(side)) for side in sides]
        a, b = (
            [corpus_bleu(side[k][chosen].sum(0)) for k in ks] for side, ks in zip(sides, seeds, strict=True)
        )
        leads.append(fmean(a) - fmean(b))
    low, high = np.quantile(leads, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return low, high


def corpus_bleu(statistics: np.ndarray) -> float:
    """BLEU of summed sentence statistics: lengths of output and reference, matches and counts of n-grams."""
    hypothesis, reference, *counts = (int(x) for x in statistics)
    found = BLEU.compute_bleu(
        correct=counts[:4], total=counts[4:], sys_len=hypothesis, ref_len=reference, smooth_method="exp"
    )
    return float(found.score)
