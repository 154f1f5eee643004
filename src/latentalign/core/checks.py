"""Checks that look at the values of tensors: one switch for all of them.

Each check reads a number from the device, for which a GPU has to finish its work. Shapes and types are always checked,
because that costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Int
from torch import Tensor

from latentalign.core.devices import prefers_static_shapes
from latentalign.core.errors import TargetError


class _Switch:
    on = True


def set_value_checks(enabled: bool) -> None:
    """Switch the checks of values on (the default) or off, for the whole process.

    Off: NaN scores, targets out of range, members beyond the memory, distributions that are not normalised, and a prior
    and q over different members are no longer reported. Results that are correct stay the same.
    """
    _Switch.on = enabled


@contextmanager
def no_waiting_checks(device: torch.device) -> Iterator[None]:
    """Skip the checks of values in a block that computes on a device for which they would have to wait."""
    before = _Switch.on
    _Switch.on = before and not prefers_static_shapes(device)
    try:
        yield
    finally:
        _Switch.on = before


def may_check(tensor: Tensor) -> bool:
    """Whether the values of a tensor may be checked: it has values, nothing is being compiled, the switch is on."""
    return _Switch.on and not torch.compiler.is_compiling() and not tensor.is_meta


def check_targets(target: Int[Tensor, "N"], outputs: int) -> None:
    """Raise if a target of an existing query is not one of the outputs of the head."""
    if not len(target) or not may_check(target):
        return
    low, high = (int(x) for x in torch.stack(torch.aminmax(target)).tolist())
    if low >= 0 and high < outputs:
        return
    wrong = low if low < 0 else high
    ignored = " (PyTorch's ignore_index)" if wrong == -100 else ""
    raise TargetError(
        f"targets must lie in 0..{outputs - 1} (the head's outputs), got {wrong}{ignored}; mask the padding: "
        f"a query that does not exist may have any target (query_padding_mask of LatentAttention, query_exists "
        f"of LatentChoice)"
    )
