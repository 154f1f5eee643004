"""Yardsticks for word alignment: the diagonal and IBM model 1 (Brown et al., 1993)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from latentalign.errors import InputError

Links = set[tuple[int, int]]
Tokens = Sequence[str]


def diagonal_links(source_len: int, target_len: int) -> Links:
    """Each target word linked to the source word nearest to the diagonal."""
    if source_len == 0:
        return set()
    return {(min(int((j + 0.5) * source_len / target_len), source_len - 1), j) for j in range(target_len)}


@dataclass(frozen=True)
class IBM1:
    """t(target word | source word), the empty word included, stored for the pairs of words seen together."""

    source_ids: dict[str, int]  # 0 is the empty word
    target_ids: dict[str, int]
    codes: np.ndarray  # sorted: source id * number of target words + target id
    probabilities: np.ndarray

    def translation(self, source: Tokens, target: Tokens) -> np.ndarray:
        """t(target word | source word), one row for each of the empty word and the source words; unseen pairs: 0."""
        rows = np.array([0, *(self.source_ids.get(word, -1) for word in source)])
        columns = np.array([self.target_ids.get(word, -1) for word in target], dtype=np.int64)
        wanted = rows[:, None] * len(self.target_ids) + columns
        places = np.searchsorted(self.codes, wanted).clip(max=len(self.codes) - 1)
        known = (self.codes[places] == wanted) & (rows[:, None] >= 0) & (columns >= 0)
        return np.where(known, self.probabilities[places], 0.0)

    def align(self, source: Tokens, target: Tokens) -> Links:
        """Each target word linked to its most probable source word; none where the empty word is as probable."""
        if not source or not target:
            return set()
        best = self.translation(source, target).argmax(0)
        return {(int(i) - 1, j) for j, i in enumerate(best) if i > 0}


def train_ibm1(pairs: Iterable[tuple[Tokens, Tokens]], *, iterations: int = 5) -> IBM1:
    """IBM model 1 after some rounds of expectation maximisation from uniform probabilities."""
    source_ids: dict[str, int] = {"": 0}
    target_ids: dict[str, int] = {}
    events: list[np.ndarray] = []
    targets: list[np.ndarray] = []
    # one event per (source word or empty word, target word) of a pair
    for source, target in pairs:
        rows = np.array([0, *(source_ids.setdefault(word, len(source_ids)) for word in source)])
        columns = np.array([target_ids.setdefault(word, len(target_ids)) for word in target], dtype=np.int64)
        events.append(np.stack(np.broadcast_arrays(rows[:, None], columns)).reshape(2, -1))
        first = targets[-1][-1] + 1 if targets else 0
        targets.append(np.tile(np.arange(first, first + len(columns)), len(rows)))
        if not len(columns):
            targets.pop(), events.pop()
    if not events:
        raise InputError("IBM model 1 needs at least one pair of sentences with words in it")
    rows, columns = np.concatenate(events, axis=1)
    position = np.concatenate(targets)  # which target position of the corpus an event explains
    codes, event = np.unique(rows * len(target_ids) + columns, return_inverse=True)
    source_of = codes // len(target_ids)
    probabilities = np.full(len(codes), 1.0 / len(target_ids))
    for _ in range(iterations):
        weight = probabilities[event]
        weight /= np.bincount(position, weight)[position]
        counts = np.bincount(event, weight, minlength=len(codes))
        probabilities = counts / np.bincount(source_of, counts)[source_of]
    return IBM1(source_ids, target_ids, codes, probabilities)
