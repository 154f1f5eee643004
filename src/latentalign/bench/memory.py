"""The peak memory of a process."""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path

STATUS = Path("/proc/self/status")


def peak_memory_mb() -> float:
    """The highest resident memory of this process so far.

    On Linux a process begins with the ru_maxrss of the one that started it, which would hide all that a child
    of a large parent takes; VmHWM is the same figure of the child alone.
    """
    found = re.search(r"^VmHWM:\s+(\d+) kB", STATUS.read_text(), re.MULTILINE) if STATUS.exists() else None
    if found:
        return int(found[1]) / 1024
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return highest / (2**20 if sys.platform == "darwin" else 1024)
