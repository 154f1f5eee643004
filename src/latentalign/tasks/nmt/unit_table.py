"""Ids of many lines at once, with arrays: each different unit is encoded once, then lines are gathered from them."""

from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np

Encode = Callable[[Sequence[str]], dict[str, list[int]]]
"""The ids of each of some different units."""


class UnitTable:
    """The ids of all units that occurred so far. A unit is a part of a line that is encoded on its own."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}
        self._ids = np.zeros(0, np.int32)
        self._lengths = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self._number)

    def gather(self, rows: Sequence[Sequence[str]], encode: Encode) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all rows of units, one after the other, and the number of ids of each row."""
        units = list(chain.from_iterable(rows))
        self._add(dict.fromkeys(units).keys() - self._number.keys(), encode)
        numbers = np.fromiter(map(self._number.__getitem__, units), np.int64, len(units))
        lengths = self._lengths[numbers]
        starts = (np.cumsum(self._lengths) - self._lengths)[numbers]
        # Position k of the result is position `starts + (k - first)` of the table, `first` being where its unit begins.
        ends = np.cumsum(lengths)
        total = int(ends[-1]) if len(ends) else 0
        places = np.repeat(starts - (ends - lengths), lengths) + np.arange(total)
        return self._ids[places], self._row_lengths(rows, ends)

    def _add(self, units: set[str], encode: Encode) -> None:
        """Encode new units and append their ids."""
        if not units:
            return
        found = encode(sorted(units))
        start = len(self._number)
        self._number.update(zip(found, range(start, start + len(found)), strict=True))
        lengths = np.fromiter(map(len, found.values()), np.int64, len(found))
        ids = np.fromiter(chain.from_iterable(found.values()), np.int32, int(lengths.sum()))
        self._ids = np.concatenate([self._ids, ids])
        self._lengths = np.concatenate([self._lengths, lengths])

    def _row_lengths(self, rows: Sequence[Sequence[str]], ends: np.ndarray) -> np.ndarray:
        """The number of ids of each row; `ends` says where each unit ends."""
        last = np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)))
        bounds = np.concatenate([np.zeros(1, np.int64), ends])[last]
        return np.diff(bounds, prepend=0)
