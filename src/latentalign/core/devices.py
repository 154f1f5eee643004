"""What the code has to know about devices: which of them it must not wait for, and which have no float64."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

READABLE = frozenset({"cpu"})
"""Types of devices whose values can be read at no cost."""
WITHOUT_FLOAT64 = frozenset({"mps"})
"""Types of devices that cannot compute in float64."""


def prefers_static_shapes(device: torch.device) -> bool:
    """Whether no size may depend on values: to read one, the program would wait until the device has done its work.

    Such a device computes padding too. On a CPU it is left out, which is faster. Results are the same.
    """
    return device.type not in READABLE


def widest_float(device: torch.device) -> torch.dtype:
    """float64, or float32 on devices without it."""
    return torch.float32 if device.type in WITHOUT_FLOAT64 else torch.float64


def send(tensor: Tensor, device: torch.device | str) -> Tensor:
    """The tensor on a device. The program does not wait for the copy to CUDA, which pinned memory makes possible."""
    if torch.device(device).type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def read_numbers(numbers: Sequence[Tensor]) -> list[float]:
    """Numbers of one device, read together: the program waits for the device once."""
    found: list[float] = torch.stack([x.detach().to(widest_float(x.device)) for x in numbers]).tolist()
    return found
