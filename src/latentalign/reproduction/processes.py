"""Commands of this package in processes of their own, which end when their parent ends."""

from __future__ import annotations

import ctypes
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

POLL_SECONDS = 1.0
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class CommandFailed(Exception):
    """A command ended with an error; the other rows continue."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def run_command(arguments: Sequence[str], log: Path, report: Callable[[], None]) -> dict[str, Any]:
    """Run a subcommand and return the JSON object that it prints.

    Its messages are appended to a log. `report` is called about once a second while it runs.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "latentalign", *arguments]
    with (
        open(log, "ab") as messages,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=messages, preexec_fn=end_with_parent
        ) as process,
    ):
        while True:
            try:
                output, _ = process.communicate(timeout=POLL_SECONDS)
                break
            except subprocess.TimeoutExpired:
                report()
    status = process.returncode
    if status != 0:
        last_line = log.read_text(encoding="utf-8", errors="replace").strip().split("\n")[-1]
        code = status if status > 0 else 128 - status  # the number a shell reports for a signal
        raise CommandFailed(f"`latentalign {arguments[0]}` ended with {code}: {last_line} ({log})", code)
    result: dict[str, Any] = json.loads(output)
    return result


def end_with_parent() -> None:
    """On Linux, ask for SIGTERM when the parent dies, so that a child saves and ends instead of training unnoticed."""
    if LIBC is not None:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
