"""Sequences without their padding: the first steps of all sequences, then all second steps, the longest first."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Packing:
    """The places of N rows in a grid (B, S): one row for each step of B sequences of at most S steps.

    Sequences are sorted by decreasing length, so those that have a step t + 1 are the first ones of step t.
    """

    shape: tuple[int, int]
    order: Int[Tensor, "B"]
    live: list[int]
    """The number of sequences that have each step."""
    first: int
    """The number of sequences that have a first step."""
    step: Int[Tensor, "N"]
    sequence: Int[Tensor, "N"]
    """Of each row: its step, and the place of its sequence in the order."""
    place: Int[Tensor, "N"]
    """Of each row: its index in the flattened grid."""
    starts: Int[Tensor, "S"]
    """The first row of each step."""
    steps: list[tuple[slice, slice | None]]
    """The rows of each step, and the rows of the same sequences at the previous step."""

    @classmethod
    def of(cls, mask: Bool[Tensor, "B S"]) -> Packing:
        """From a mask whose rows are True up to each sequence's length."""
        batch, steps = mask.shape
        order = mask.sum(1).argsort(descending=True, stable=True)
        alive = mask.index_select(0, order).t()
        step, sequence = alive.nonzero(as_tuple=True)
        counts = alive.sum(1)
        live: list[int] = counts.tolist()
        rows: list[tuple[slice, slice | None]] = []
        start, before = 0, None
        for n in live:
            rows.append((slice(start, start + n), None if before is None else slice(before, before + n)))
            start, before = start + n, start
        first, starts, place = (
            live[0] if live else 0,
            counts.cumsum(0) - counts,
            order[sequence] * steps + step,
        )
        return cls((batch, steps), order, live, first, step, sequence, place, starts, rows)

    def pack(self, value: Float[Tensor, "B S D"]) -> Float[Tensor, "N D"]:
        """The rows of a grid, without padding."""
        return value.flatten(0, 1).index_select(0, self.place)

    def unpack(self, value: Float[Tensor, "N D"]) -> Float[Tensor, "B S D"]:
        """The grid of packed rows, with zeros in padding."""
        grid = value.new_zeros(self.shape[0] * self.shape[1], value.shape[1])
        return grid.index_copy(0, self.place, value).view(*self.shape, value.shape[1])

    def by_step(self, value: Float[Tensor, "N D"]) -> Float[Tensor, "S B D"]:
        """A grid with steps first and sequences sorted by length, with zeros in padding."""
        batch, steps = self.shape
        grid = value.new_zeros(steps * batch, value.shape[1])
        place = self.step * batch + self.sequence
        return grid.index_copy(0, place, value).view(steps, batch, value.shape[1])

    def reversed_rows(self) -> Int[Tensor, "N"]:
        """The row to read in place of each one to reverse every sequence within its length."""
        lengths = self.sequence.bincount(minlength=self.shape[0])
        return self.starts[lengths[self.sequence] - 1 - self.step] + self.sequence

    def before(self) -> Int[Tensor, "M"]:
        """The row of the previous step, for every row except the `first` ones."""
        later = slice(self.first, None)
        return self.starts[self.step[later] - 1] + self.sequence[later]
