"""The peak memory of a process."""

from __future__ import annotations

import re
import resource
import sys
from contextlib import suppress
from pathlib import Path

import torch

STATUS = Path("/proc/self/status")
RESET = Path("/proc/self/clear_refs")


def peak_memory_mb() -> float:
    """The highest resident memory of this process so far, or since it was forgotten.

    On Linux a process begins with the ru_maxrss of the one that started it, which would hide all that a child
    of a large parent takes; VmHWM is the same figure of the child alone.
    """
    found = re.search(r"^VmHWM:\s+(\d+) kB", STATUS.read_text(), re.MULTILINE) if STATUS.exists() else None
    if found:
        return int(found[1]) / 1024
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return highest / (2**20 if sys.platform == "darwin" else 1024)


def device_peak_mb(device: torch.device) -> float:
    """The highest memory that computing took: on a GPU its own, elsewhere the process's."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return peak_memory_mb()


def forget_peak(device: torch.device) -> None:
    """Let a new peak begin, where the system can do that."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with suppress(OSError):
        RESET.write_text("5")
