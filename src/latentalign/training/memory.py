"""The memory of a process: its peak, and whether freed blocks are kept for the next update."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import resource
import sys
from collections.abc import Callable
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
    return_freed_memory()
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
    return_freed_memory()
    with suppress(OSError):
        RESET.write_text("5")


TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's `mallopt`."""
LARGEST_KEPT = 32 * 2**20
"""Bytes of the largest blocks that glibc can keep."""
NEVER = -1
OWN_SETTINGS = re.compile("MALLOC_(MMAP_THRESHOLD|MMAP_MAX|TRIM_THRESHOLD|TOP_PAD)_|GLIBC_TUNABLES")
"""Environment variables by which users decide about freed memory themselves."""


def glibc_function(name: str) -> Callable[..., int] | None:
    """A function of the C library; None if it has none of this name."""
    try:
        found: Callable[..., int] = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return None
    return found


def keep_freed_memory() -> bool:
    """Let this process keep freed blocks of memory for its next update; whether that is possible.

    Updates need blocks of similar sizes. By default, glibc returns large ones to the system, which hands them out again
    page by page, filled with zeros. This holds for the whole process. The user's own settings stay as they are.
    """
    mallopt = glibc_function("mallopt")
    if mallopt is None or any(map(OWN_SETTINGS.match, os.environ)):
        return False
    wanted = {MMAP_THRESHOLD: LARGEST_KEPT, TRIM_THRESHOLD: NEVER}
    return all(mallopt(parameter, value) == 1 for parameter, value in wanted.items())


def return_freed_memory() -> None:
    """Give freed blocks that are kept back to the system, where it is known how."""
    trim = glibc_function("malloc_trim")
    if trim is not None:
        trim(0)
