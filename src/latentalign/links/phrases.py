"""Phrase pairs that are consistent with word links."""

from __future__ import annotations

from collections import defaultdict
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
    of_target, of_source = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
    for s, t in links:
        of_target[t].append(s)
        of_source[s].append(t)
    for start in sorted(of_target):
        for end in (e for e in range(start, start + longest) if e in of_target):
            inside = [(s, t) for t in range(start, end + 1) for s in of_target.get(t, ())]
            low, high = min(s for s, _ in inside), max(s for s, _ in inside)
            if high - low >= longest:
                break  # a longer phrase has these links too
            if all(start <= t <= end for s in range(low, high + 1) for t in of_source.get(s, ())):
                weakest = min(float(probability[t, s]) for s, t in inside)
                found.append(PhrasePair(low, high + 1, start, end + 1, weakest))
    return found
