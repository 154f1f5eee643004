"""Pairs whose sides are swapped: the source is in the language of the target, and the target in that of the source.

Every frequent word of letters says on which side of the training text it usually stands. In most pairs, the words of
the source say source, and those of the target say target. If they say the opposite, the pair is swapped.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from itertools import islice

import numpy as np

from latentalign.tasks.splits import TextSplit
from latentalign.tasks.text_checks.shifts import Array

LEARN_FROM = 100_000
"""Training pairs from which words are counted, spread evenly."""
LEAST_COUNT = 5
"""Rarer words are not judged by."""
LARGEST = 3.0
"""No word counts more than this, in nats."""
CLEAR = 1.0
"""A pair is swapped if the mean of its source words is smaller than that of its target words by this, in nats."""
FEWEST = 2
"""Frequent words that each side of a pair needs to be judged."""


def weigh_words(train: TextSplit, pairs: int) -> dict[str, float]:
    """log p(word | source) - log p(word | target) of the frequent words of a training text with `pairs` pairs."""
    counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for pair in islice(train.read(), 0, None, max(1, -(-pairs // LEARN_FROM))):
        for count, line in zip(counts, pair, strict=True):
            count.update(filter(str.isalpha, line.lower().split()))  # marks and numbers have no language
    totals = [math.log(max(1, count.total())) for count in counts]
    weights = {}
    for word in counts[0].keys() | counts[1].keys():
        seen = [count[word] for count in counts]
        if sum(seen) >= LEAST_COUNT:
            source, target = (math.log(n + 0.5) - total for n, total in zip(seen, totals, strict=True))
            weights[word] = max(-LARGEST, min(LARGEST, source - target))
    return weights


def find_swapped(split: TextSplit, weights: Mapping[str, float]) -> Array:
    """Positions, from 0, of the pairs of a split whose sides are swapped."""
    found = []
    for place, pair in enumerate(split.read()):
        known = [[weights[word] for word in line.lower().split() if word in weights] for line in pair]
        if min(map(len, known)) >= FEWEST:
            source, target = (sum(values) / len(values) for values in known)
            if source - target < -CLEAR:
                found.append(place)
    return np.array(found, np.int64)
