"""Sequences without their padding: the first steps of all sequences, then all second steps, the longest first."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentalign.core.devices import prefers_static_shapes


@dataclass(frozen=True, eq=False)
class Packing:
    """The places of N rows in a grid (B, S): one row for each step of B sequences of at most S steps.

    Sequences are sorted by decreasing length, so those that have a step t + 1 are the first ones of step t. On a device
    that prefers static shapes, nothing is sorted and every sequence has all S steps; `mask` then says which count.
    """

    shape: tuple[int, int]
    order: Int[Tensor, "B"]
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
    mask: Bool[Tensor, "B S"] | None = None

    @classmethod
    def whole(cls, mask: Bool[Tensor, "B S"]) -> Packing:
        """All steps of all sequences."""
        batch, steps = mask.shape
        order = torch.arange(batch, device=mask.device)
        starts = torch.arange(steps, device=mask.device) * batch
        step = torch.arange(steps, device=mask.device).repeat_interleave(batch, output_size=steps * batch)
        sequence = order.repeat(steps)
        ends = [t * batch for t in range(steps + 1)]
        rows = [slice(a, b) for a, b in pairwise(ends)]
        before = [None, *rows][:steps]
        return cls(
            (batch, steps),
            order,
            batch if steps else 0,
            step,
            sequence,
            sequence * steps + step,
            starts,
            [*zip(rows, before, strict=True)],
            mask,
        )

    @classmethod
    def of(cls, mask: Bool[Tensor, "B S"]) -> Packing:
        """From a mask whose rows are True up to each sequence's length."""
        if prefers_static_shapes(mask.device):
            return cls.whole(mask)
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
        return cls((batch, steps), order, first, step, sequence, place, starts, rows)

    def pack(self, value: Float[Tensor, "B S D"]) -> Float[Tensor, "N D"]:
        """The rows of a grid, without padding or with zeros in it."""
        if self.mask is not None:
            value = value.masked_fill(~self.mask.unsqueeze(-1), 0.0)
        return value.flatten(0, 1).index_select(0, self.place)

    def unpack(self, value: Float[Tensor, "N D"]) -> Float[Tensor, "B S D"]:
        """The grid of packed rows, with zeros in padding."""
        batch, steps = self.shape
        if self.mask is not None:
            grid = value.view(steps, batch, value.shape[1]).transpose(0, 1)
            return grid.masked_fill(~self.mask.unsqueeze(-1), 0.0)
        grid = value.new_zeros(batch * steps, value.shape[1])
        return grid.index_copy(0, self.place, value).view(*self.shape, value.shape[1])

    def by_step(self, value: Float[Tensor, "N D"]) -> Float[Tensor, "S B D"]:
        """A grid with steps first and sequences sorted by length, with zeros in padding."""
        batch, steps = self.shape
        if self.mask is not None:
            return value.view(steps, batch, value.shape[1])
        grid = value.new_zeros(steps * batch, value.shape[1])
        place = self.step * batch + self.sequence
        return grid.index_copy(0, place, value).view(steps, batch, value.shape[1])

    def reversed_rows(self) -> Int[Tensor, "N"]:
        """The row to read in place of each one to reverse every sequence within its length; padding stays."""
        if self.mask is not None:
            last = self.mask.sum(1)[self.sequence] - 1
            step = torch.where(self.step <= last, last - self.step, self.step)
            return step * self.shape[0] + self.sequence
        lengths = self.sequence.bincount(minlength=self.shape[0])
        return self.starts[lengths[self.sequence] - 1 - self.step] + self.sequence

    def before(self) -> Int[Tensor, "M"]:
        """The row of the previous step, for every row except the `first` ones."""
        later = slice(self.first, None)
        return self.starts[self.step[later] - 1] + self.sequence[later]
