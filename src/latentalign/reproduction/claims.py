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
            seen = all(sign * a > sign * b for a in first for b in second)
            reverse = all(sign * a < sign * b for a in first for b in second)
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
    """A bootstrap interval over test sentences of how much the first is ahead; None where there is no such thing.

    For perplexity in nats per token, for BLEU and accuracy in points; seeds are averaged sentence by sentence.
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
    gains = np.mean([d[key] for d in sides[0]], 0) - np.mean([d[key] for d in sides[1]], 0)
    weights = np.asarray(sides[0][0].get("tokens") or np.ones(len(gains)))
    scale = 100.0 if claim.figure == "accuracy" else 1.0
    low, high = ratio_interval(scale * gains, weights)
    return low, high


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {}
    return found


def ratio_interval(top: np.ndarray, bottom: np.ndarray, *, seed: int = 0) -> tuple[float, float]:
    """A percentile bootstrap interval of sum(top) / sum(bottom) over examples."""
    generator, n = np.random.default_rng(seed), len(top)
    ratios = []
    for _ in range(RESAMPLINGS):
        chosen = generator.integers(n, size=n)
        ratios.append(top[chosen].sum() / bottom[chosen].sum())
    low, high = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
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
        a, b = ([corpus_bleu(one[chosen].sum(0)) for one in side] for side in sides)
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
