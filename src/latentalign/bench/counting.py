"""Counts of a training step: floating point operations of its matrix products, and emissions."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from latentalign.core.kernels.fused_softmax import logits_of

aten = torch.ops.aten
Shape = torch.Size


def product_operations(left: Shape, right: Shape, **_: Any) -> int:
    """Multiplications and additions of a (batched) matrix or vector times a matrix or vector."""
    return 2 * prod(left) * (right[-1] if len(right) > 1 else 1)


def added_product_operations(_: Shape, left: Shape, right: Shape, **__: Any) -> int:
    """Operations of a product that is added to the first argument; the addition itself is not counted."""
    return product_operations(left, right)


def linear_operations(rows: Shape, weight: Shape, *_: Any, **__: Any) -> int:
    """Operations of x W', as oneDNN computes it."""
    return 2 * prod(rows) * weight[0]


UNCOUNTED = {
    aten.addmm_: added_product_operations,
    aten.baddbmm_: added_product_operations,
    aten.mv: product_operations,
    aten.addmv: added_product_operations,
    aten.addmv_: added_product_operations,
    aten.dot: product_operations,
}
"""Products that PyTorch's counter ignores: those in place, those with vectors, and those that oneDNN is asked for."""
if hasattr(torch.ops.mkldnn, "_linear_pointwise"):
    UNCOUNTED[torch.ops.mkldnn._linear_pointwise] = linear_operations


@dataclass
class Count:
    """Operations and emissions of a block of code."""

    operations: int = 0
    emissions: int = 0
    """Rows that went through the output layer, including those computed again in a backward pass."""


@contextmanager
def count_operations() -> Iterator[Count]:
    """Count what the block computes; the count is complete when the block ends."""
    count = Count()

    def counting_logits(hidden: Tensor, *rest: Any, **named: Any) -> Tensor:
        count.emissions += len(hidden)
        return logits_of(hidden, *rest, **named)

    holders = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("latentalign.core") and vars(module).get("logits_of") is logits_of
    ]
    for module in holders:
        vars(module)["logits_of"] = counting_logits
    try:
        with FlopCounterMode(display=False, custom_mapping=UNCOUNTED) as operations:
            yield count
    finally:
        for module in holders:
            vars(module)["logits_of"] = logits_of
    count.operations = operations.get_total_flops()
