"""Phrase pairs that are consistent with word links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latentalign.links.sets import Links

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class PhrasePair:
    """Source words [source_start, source_end) and target words [target_start, target_end)."""

    source_start: int
    source_end: int
    target_start: int
    target_end: int
    probability: float
    """Of its least probable link."""


def phrase_pairs(links: Links, probability: Array, *, longest: int = 4) -> list[PhrasePair]:
    """All pairs of phrases of at most `longest` words whose links stay inside them (Koehn et al. 2003).

    Phrases begin and end with a linked word. `probability` has a row for every target word.
    """
    found = []
    targets = {t for _, t in links}
    for start in sorted(targets):
        for end in (e for e in sorted(targets) if start <= e < start + longest):
            inside = [(s, t) for s, t in links if start <= t <= end]
            low, high = min(s for s, _ in inside), max(s for s, _ in inside)
            if high - low >= longest or any(low <= s <= high and not start <= t <= end for s, t in links):
                continue
            weakest = min(float(probability[t, s]) for s, t in inside)
            found.append(PhrasePair(low, high + 1, start, end + 1, weakest))
    return found
