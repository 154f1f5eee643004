"""Linear layers whose products, forward and backward, are computed by the faster library; see `core.products`."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from latentalign.core.products import product, product_over_rows, suits_onednn


class LinearFunction(torch.autograd.Function):
    """x W' + b. Derivatives of any order: where they are asked for, `product` is differentiable."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        out = product(rows_of(x), weight.t(), bias)
        return out if x.dim() == 2 else out.view(*x.shape[:-1], len(weight))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        to_x, to_weight, to_bias = ctx.needs_input_grad
        each = rows_of(grad)
        return (
            product(each, weight).view(x.shape) if to_x else None,
            product_over_rows(each, rows_of(x)) if to_weight else None,
            each.sum(0) if to_bias else None,
        )


def rows_of(x: Float[Tensor, "*n D"]) -> Float[Tensor, "N D"]:
    """All rows as one matrix."""
    return x if x.dim() == 2 else x.flatten(0, -2)


def linear(
    x: Float[Tensor, "*n D"], weight: Float[Tensor, "H D"], bias: Float[Tensor, "H"] | None = None
) -> Float[Tensor, "*n H"]:
    """x W' + b, as `torch.nn.functional.linear`."""
    if not suits_onednn(x, weight.t()) or torch.is_autocast_enabled("cpu"):
        return F.linear(x, weight, bias)
    if not torch.is_grad_enabled():
        return product(rows_of(x), weight.t(), bias).view(*x.shape[:-1], len(weight))
    out: Tensor = LinearFunction.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return out


class Linear(nn.Linear):
    """`torch.nn.Linear` by the faster library."""

    def forward(self, x: Float[Tensor, "*n D"]) -> Float[Tensor, "*n H"]:
        return linear(x, self.weight, self.bias)
