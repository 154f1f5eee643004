"""Values of many queries, piece by piece; the gradients of a piece are computed together with its values.

Intermediate results exist for one piece at a time. Nothing is computed twice if all queries have the same weight in
the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import get_device_states, set_device_states

from latentalign.core.kernels.fused_softmax import is_even, refuse_second_derivatives
from latentalign.core.numerics import at_least_float32

Compute = Callable[..., Tensor]
"""compute(piece, *inputs) -> values of the queries of a piece (at least one); it uses no tensor except its inputs."""


class Context:
    """Random state and autocast settings, saved to repeat a computation exactly."""

    def __init__(self, like: Tensor) -> None:
        self.kind = like.device.type
        self.state = torch.get_rng_state()
        self.devices, self.states = get_device_states(like)
        self.precision = torch.is_autocast_enabled(self.kind), torch.get_autocast_dtype(self.kind)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Run a block in the saved context."""
        enabled, dtype = self.precision
        kind = "cuda" if self.kind == "cpu" else self.kind  # restored besides the CPU
        with (
            torch.random.fork_rng(self.devices, device_type=kind),
            torch.autocast(self.kind, dtype=dtype, enabled=enabled),
        ):
            torch.set_rng_state(self.state)
            set_device_states(self.devices, self.states, device_type=kind)
            yield


def add_gradient(total: Tensor | None, gradient: Tensor) -> Tensor:
    """The sum, in memory of its own, because gradients of several tensors may share memory."""
    return at_least_float32(gradient).clone() if total is None else total.add_(gradient)


def gradients(
    compute: Compute, pieces: Sequence[Any], inputs: Sequence[Tensor | None], *, weight: Tensor | None
) -> tuple[Tensor, list[Tensor | None]]:
    """The values of all pieces, and the gradients of their sum weighted by `weight`."""
    values: list[Tensor] = []
    sums: list[Tensor | None] = [None] * len(inputs)
    first = 0
    for piece in pieces:
        with torch.enable_grad():
            leaves = [x if x is None else x.detach().requires_grad_(x.requires_grad) for x in inputs]
            value = compute(piece, *leaves)
        outer = torch.ones_like(value) if weight is None else weight[first : first + len(value)]
        wanted = {i: x for i, x in enumerate(leaves) if x is not None and x.requires_grad}
        found = torch.autograd.grad(value, list(wanted.values()), outer, allow_unused=True)
        for i, gradient in zip(wanted, found, strict=True):
            if gradient is not None:
                sums[i] = add_gradient(sums[i], gradient)
        values.append(value.detach())
        first += len(value)
        del value, found, leaves, wanted
    return torch.cat(values), sums


class Piecewise(torch.autograd.Function):
    """Values piece by piece, together with their gradients."""

    @staticmethod
    def forward(ctx: Any, compute: Compute, pieces: Sequence[Any], *inputs: Tensor | None) -> Tensor:
        ctx.compute, ctx.pieces = compute, pieces
        ctx.context = Context(next(x for x in inputs if x is not None))
        value, sums = gradients(compute, pieces, inputs, weight=None)
        ctx.save_for_backward(*inputs, *sums)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        half = len(ctx.saved_tensors) // 2
        inputs, sums = ctx.saved_tensors[:half], ctx.saved_tensors[half:]
        if is_even(grad):
            return None, None, *(None if s is None else s * grad[0].to(s.dtype) for s in sums)
        with ctx.context.restored():
            return None, None, *gradients(ctx.compute, ctx.pieces, inputs, weight=grad)[1]


def piecewise(compute: Compute, pieces: Sequence[Any], inputs: Sequence[Tensor | None]) -> Tensor:
    """compute(piece, *inputs) of all pieces, one after the other, with gradients to the inputs."""
    if not torch.is_grad_enabled() or not any(x is not None and x.requires_grad for x in inputs):
        return torch.cat([compute(piece, *inputs) for piece in pieces])
    value: Tensor = Piecewise.apply(compute, pieces, *inputs)  # type: ignore[no-untyped-call]
    return value
