"""Decisions without gold links: the threshold whose links have the largest F1 that the model itself expects."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def best_threshold(candidates: Array, expected_links: float) -> tuple[float, float]:
    """(threshold, expected F1) of the candidates that are worth keeping; (1, 1) without any link to expect.

    If links are right with their probabilities p, keeping k of them finds sum(p) right ones on average. With the
    expected number n of all right links, F1 is about 2 sum(p) / (k + n). The best k are the most probable ones.
    """
    found = np.sort(np.asarray(candidates, dtype=np.float64).ravel())[::-1]
    found = found[found > 0]
    if not len(found) or expected_links <= 0:
        return 1.0, float(not len(found) and expected_links <= 0)
    f1 = 2 * np.cumsum(found) / (np.arange(1, len(found) + 1) + expected_links)
    best = int(f1.argmax())
    return float(found[best]), float(f1[best])
