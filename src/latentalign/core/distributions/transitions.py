"""Transitions of a chain: which moves from member to member it prefers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from latentalign.core.kernels.chains import DenseKernel, Kernel, MonotoneKernel, TableKernel
from latentalign.core.numerics import NEG_INF


class Transition(ABC):
    """Which moves from member to member a chain prefers."""

    allows_all_moves: ClassVar[bool] = True
    """Whether every move between two members has a positive probability."""

    @abstractmethod
    def kernel(self, members: int, like: Tensor) -> Kernel:
        """K for this many members, in the precision and on the device of `like`."""

    def detach(self) -> Transition:
        """The same transition without gradient."""
        return self

    def to(self, device: Any) -> Transition:
        """The same transition on another device."""
        return self


@dataclass(frozen=True, eq=False)
class Jump(Transition):
    """K(i, i') = exp(table[i' - i]), jumps wider than the table clipped to its ends."""

    table: Float[Tensor, "*moves widths"]
    """Log weights of the jumps -W..W: an odd number of them. One table, or one for every move: (B, S - 1, widths)."""

    def __post_init__(self) -> None:
        if self.table.dim() not in (1, 3) or self.table.shape[-1] % 2 == 0:
            raise ValueError(
                "a table of jumps -W..W has an odd length and one or three dimensions (examples, moves, widths), "
                f"got shape {tuple(self.table.shape)}"
            )

    def kernel(self, members: int, like: Tensor) -> Kernel:
        place = torch.arange(members, device=like.device)
        widest = self.table.shape[-1] // 2
        jump = (place - place.unsqueeze(1)).clamp(-widest, widest) + widest
        table = self.table.to(like.dtype)
        if table.dim() == 1:
            return TableKernel((table - table.detach().amax()).exp()[jump])
        return DenseKernel((table - table.detach().amax(-1, keepdim=True)).exp()[..., jump])

    def detach(self) -> Jump:
        return Jump(self.table.detach())

    def to(self, device: Any) -> Jump:
        return Jump(self.table.to(device))


@dataclass(frozen=True)
class Monotone(Transition):
    """Never backwards, and at most `max_step` members forward where that is set."""

    max_step: int | None = None

    allows_all_moves = False

    def __post_init__(self) -> None:
        if self.max_step is not None and self.max_step < 1:
            raise ValueError(f"max_step must be at least 1, got {self.max_step}")

    def kernel(self, members: int, like: Tensor) -> Kernel:
        return MonotoneKernel(members, self.max_step, like)


@dataclass(frozen=True, eq=False)
class Dense(Transition):
    """K_j(i, i') = exp(log_weights[b, j - 1, i, i']): a matrix of its own for every example and move."""

    log_weights: Float[Tensor, "B moves T T"]

    def kernel(self, members: int, like: Tensor) -> Kernel:
        weights = self.log_weights.to(like.dtype)
        peak = weights.detach().amax((-1, -2), keepdim=True)
        return DenseKernel((weights - peak.masked_fill(peak == NEG_INF, 0.0)).exp())

    def detach(self) -> Dense:
        return Dense(self.log_weights.detach())

    def to(self, device: Any) -> Dense:
        return Dense(self.log_weights.to(device))
