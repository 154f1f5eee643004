"""Values of many queries piece by piece, with each piece's gradients formed while what it needs is alive.

Memory is then that of one piece, and nothing is computed twice, as long as every query counts alike in the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from latentalign.core.vocabulary import refuse_second_derivatives

Compute = Callable[..., Tensor]
"""compute(piece, *inputs) -> the values of the piece's queries, at least one."""


class Surroundings:
    """Random state and autocast as they are now, to compute something again as it was computed first."""

    def __init__(self, like: Tensor) -> None:
        self.kind = like.device.type
        self.devices = [like.device] if like.is_cuda else []
        self.states = [torch.get_rng_state(), *map(torch.cuda.get_rng_state, self.devices)]
        self.precision = torch.is_autocast_enabled(self.kind), torch.get_autocast_dtype(self.kind)

    @contextmanager
    def restored(self) -> Iterator[None]:
        enabled, dtype = self.precision
        with torch.random.fork_rng(self.devices), torch.autocast(self.kind, dtype=dtype, enabled=enabled):
            torch.set_rng_state(self.states[0])
            for device, state in zip(self.devices, self.states[1:], strict=True):
                torch.cuda.set_rng_state(state, device)
            yield


def gradients(
    compute: Compute,
    pieces: Sequence[Any],
    inputs: Sequence[Tensor],
    also: Sequence[Tensor],
    *,
    weight: Tensor | None,
) -> tuple[Tensor, list[Tensor | None]]:
    """The values of all pieces, and the gradients of their sum, each value counted `weight` times."""
    values: list[Tensor] = []
    sums: list[Tensor | None] = [None] * (len(inputs) + len(also))
    first = 0
    for piece in pieces:
        with torch.enable_grad():
            given = [x.detach().requires_grad_(x.requires_grad) for x in inputs]
            value = compute(piece, *given)
        outer = torch.ones_like(value) if weight is None else weight[first : first + len(value)]
        asked = {i: x for i, x in enumerate([*given, *also]) if x.requires_grad}
        found = torch.autograd.grad(value, list(asked.values()), outer, allow_unused=True)
        for i, gradient in zip(asked, found, strict=True):
            before = sums[i]
            if gradient is not None:  # not in place: two of them may be the same memory
                sums[i] = gradient if before is None else before + gradient
        values.append(value.detach())
        first += len(value)
        del value, found, given, asked
    return torch.cat(values), sums


class Piecewise(torch.autograd.Function):
    """Values piece by piece, the gradients with them."""

    @staticmethod
    def forward(ctx: Any, compute: Compute, pieces: Sequence[Any], inputs: int, *tensors: Tensor) -> Tensor:
        """The first `inputs` tensors are arguments of `compute`; the others it reaches by itself."""
        ctx.compute, ctx.pieces, ctx.inputs = compute, pieces, inputs
        ctx.surroundings = Surroundings(tensors[0])
        value, sums = gradients(compute, pieces, tensors[:inputs], tensors[inputs:], weight=None)
        ctx.save_for_backward(*tensors, *sums)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        half = len(ctx.saved_tensors) // 2
        tensors, sums = ctx.saved_tensors[:half], ctx.saved_tensors[half:]
        if bool((grad == grad[0]).all()):
            return None, None, None, *(None if s is None else s * grad[0].to(s.dtype) for s in sums)
        with ctx.surroundings.restored():
            again = gradients(
                ctx.compute, ctx.pieces, tensors[: ctx.inputs], tensors[ctx.inputs :], weight=grad
            )
        return None, None, None, *again[1]


def piecewise(
    compute: Compute, pieces: Sequence[Any], inputs: Sequence[Tensor], also: Sequence[Tensor]
) -> Tensor:
    """compute(piece, *inputs) of all pieces, one after the other.

    Gradients go to `inputs` and to what `compute` uses `also`, parameters for instance, and to nothing else.
    """
    if not torch.is_grad_enabled():
        return torch.cat([compute(piece, *inputs) for piece in pieces])
    value: Tensor = Piecewise.apply(compute, pieces, len(inputs), *inputs, *also)  # type: ignore[no-untyped-call]
    return value


def depends_only_on(value: Tensor, known: Sequence[Tensor]) -> bool:
    """Whether the gradient of a value goes to nothing but what is known."""
    leaves = {id(x) for x in known}
    seen: set[Any] = {x.grad_fn for x in known}
    waiting = [value.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable") and id(node.variable) not in leaves:
            return False
        waiting += [before for before, _ in node.next_functions]
    return True
