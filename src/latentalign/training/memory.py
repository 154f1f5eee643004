"""The memory of a process: its peak, and whether freed blocks are kept for the next update."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

STATUS = Path("/proc/self/status")
RESET = Path("/proc/self/clear_refs")


def peak_memory_mb() -> float:
    """The highest resident memory of this process so far, or since it was forgotten.

    On Linux a process begins with the ru_maxrss of the one that started it, which would hide all that a child
    of a large parent takes; VmHWM is the same figure of the child alone.
    """
    found = status("VmHWM")
    if found is not None:
        return found
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return highest / (2**20 if sys.platform == "darwin" else 1024)


def status(name: str) -> float | None:
    """A figure in MB that Linux keeps of this process; None elsewhere."""
    found = re.search(rf"^{name}:\s+(\d+) kB", STATUS.read_text(), re.MULTILINE) if STATUS.exists() else None
    return int(found[1]) / 1024 if found else None


def begin_peak() -> float:
    """Forget the peak where the system can do that; what the next one is to be compared with."""
    gc.collect()
    try:
        RESET.write_text("5")
    except OSError:
        return peak_memory_mb()
    return status("VmRSS") or peak_memory_mb()


def device_peak_mb(device: torch.device) -> float:
    """The highest memory that computing took: on a GPU its own, elsewhere the process's."""
    if device.type == "cuda":
        import torch

        return torch.cuda.max_memory_allocated(device) / 2**20
    return peak_memory_mb()


def forget_peak(device: torch.device) -> None:
    """Let a new peak begin, where the system can do that."""
    if device.type == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats(device)
    with suppress(OSError):
        RESET.write_text("5")


LARGEST_KEPT = 32 * 2**20
"""Bytes of the largest blocks that glibc can keep."""
KEEP_ALL = 2**31 - 1
MALLOPT = {"trim": -1, "mmap": -3}
"""Parameters of glibc's `mallopt`."""


def keep_freed_memory() -> bool:
    """Let this process keep freed blocks of memory for its next update; whether that is possible.

    Every update needs blocks of the same sizes. By default, glibc returns large ones to the system, which hands them
    out again page by page, filled with zeros. The user's own settings of glibc stay as they are.
    """
    if any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    wanted = {"mmap": LARGEST_KEPT, "trim": KEEP_ALL}
    return all(mallopt(MALLOPT[name], size) == 1 for name, size in wanted.items())
