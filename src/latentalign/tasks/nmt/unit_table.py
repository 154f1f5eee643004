"""Ids of many lines at once, with arrays: each different unit is encoded once, then lines are gathered from them."""

from collections.abc import Callable, Sequence
from itertools import chain, islice

import numpy as np

Encode = Callable[[Sequence[str]], dict[str, list[int]]]
"""The ids of each of some different units."""


class _Numbers(dict[str, int]):
    """The number of each unit, in the order in which units occur first. A new unit gets the next number."""

    def __missing__(self, unit: str) -> int:
        self[unit] = number = len(self)
        return number


class UnitTable:
    """The ids of all units that occurred so far. A unit is a part of a line that is encoded on its own."""

    def __init__(self) -> None:
        self._number = _Numbers()
        self._ids = np.zeros(0, np.int32)
        self._lengths = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self._lengths)

    def gather(self, rows: Sequence[Sequence[str]], encode: Encode) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all rows of units, one after the other, and the number of ids of each row."""
        units = list(chain.from_iterable(rows))
        numbers = np.fromiter(map(self._number.__getitem__, units), np.int64, len(units))
        self._encode_new(encode)
        lengths = self._lengths[numbers]
        starts = (np.cumsum(self._lengths) - self._lengths)[numbers]
        # Position k of the result is position `starts + (k - first)` of the table, `first` being where its unit begins.
        ends = np.cumsum(lengths)
        total = int(ends[-1]) if len(ends) else 0
        places = np.repeat(starts - (ends - lengths), lengths) + np.arange(total)
        return self._ids[places], self._row_lengths(rows, ends)

    def _encode_new(self, encode: Encode) -> None:
        """Encode the units that have a number but no ids yet, and append their ids."""
        new = list(islice(self._number, len(self), None))
        if not new:
            return
        try:
            found = encode(new)
        except BaseException:  # without ids, these units must not keep their numbers
            for unit in new:
                del self._number[unit]
            raise
        lengths = np.fromiter((len(found[unit]) for unit in new), np.int64, len(new))
        ids = np.fromiter(chain.from_iterable(found[unit] for unit in new), np.int32, int(lengths.sum()))
        self._ids = np.concatenate([self._ids, ids])
        self._lengths = np.concatenate([self._lengths, lengths])

    def _row_lengths(self, rows: Sequence[Sequence[str]], ends: np.ndarray) -> np.ndarray:
        """The number of ids of each row; `ends` says where each unit ends."""
        last = np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)))
        bounds = np.concatenate([np.zeros(1, np.int64), ends])[last]
        return np.diff(bounds, prepend=0)
