"""Word and phoneme error rates of string transduction, where a line is a word and its tokens are phonemes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

ERROR_RATES = ("wer", "wer_interval", "per", "per_interval")
RESAMPLINGS = 1000


def error_rates(outputs: Sequence[str], references: Sequence[str], *, seed: int = 0) -> dict[str, object]:
    """Both rates in percent, each with its 95 % bootstrap interval over lines."""
    pairs = [
        (output.split(), reference.split()) for output, reference in zip(outputs, references, strict=True)
    ]
    wrong = np.array([output != reference for output, reference in pairs], dtype=np.float64)
    edits = np.array([edit_distance(output, reference) for output, reference in pairs], dtype=np.float64)
    length = np.array([len(reference) for _, reference in pairs], dtype=np.float64)
    drawn = np.random.default_rng(seed).integers(len(pairs), size=(RESAMPLINGS, len(pairs)))

    def rate(part: np.ndarray, whole: np.ndarray) -> tuple[float, list[float]]:
        """A ratio in percent, and its interval."""
        resampled = 100 * part[drawn].sum(1) / np.maximum(whole[drawn].sum(1), 1)
        low, high = np.quantile(resampled, [0.025, 0.975]).tolist()
        return float(100 * part.sum() / max(whole.sum(), 1)), [low, high]

    wer, per = rate(wrong, np.ones_like(wrong)), rate(edits, length)
    return dict(zip(ERROR_RATES, (*wer, *per), strict=True))


def edit_distance(first: Sequence[str], second: Sequence[str]) -> int:
    """The least number of tokens to insert, delete or replace (Levenshtein)."""
    row = list(range(len(second) + 1))
    for i, token in enumerate(first, start=1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(second, start=1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (token != other))
    return row[-1]
