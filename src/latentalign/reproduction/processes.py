"""Commands of this package in processes of their own, which end when their parent ends."""

from __future__ import annotations

import ctypes
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Lock
from typing import IO, Any

POLL_SECONDS = 1.0
PR_SET_PDEATHSIG = 1
_RUNNING: set[subprocess.Popen[bytes]] = set()
_STOPPING, _LOCK = Event(), Lock()
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
    with open(log, "ab") as messages, start_command(command, messages) as process:
        try:
            output = wait_for(process, report)
        except BaseException:
            process.terminate()
            raise
        finally:
            _RUNNING.discard(process)
    status = process.returncode
    if status != 0:
        last_line = log.read_text(encoding="utf-8", errors="replace").strip().split("\n")[-1]
        code = status if status > 0 else 128 - status  # the number a shell reports for a signal
        raise CommandFailed(f"`latentalign {arguments[0]}` ended with {code}: {last_line} ({log})", code)
    result: dict[str, Any] = json.loads(output)
    return result


def start_command(command: Sequence[str], messages: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a process that ends with this one, unless all are asked to end."""
    with _LOCK:
        if _STOPPING.is_set():
            raise CommandFailed("not started, because the command was interrupted", 128 + signal.SIGTERM)
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=messages, preexec_fn=end_with_parent
        )
        _RUNNING.add(process)
    return process


def wait_for(process: subprocess.Popen[bytes], report: Callable[[], None]) -> bytes:
    """The output of a process, once it has ended."""
    while True:
        try:
            return process.communicate(timeout=POLL_SECONDS)[0]
        except subprocess.TimeoutExpired:
            report()


@contextmanager
def end_commands_on_interrupt() -> Iterator[None]:
    """If the block is interrupted, ask all commands to end, in whichever thread they run. Training saves first."""
    _STOPPING.clear()
    try:
        yield
    except KeyboardInterrupt:
        with _LOCK:
            _STOPPING.set()
            for process in _RUNNING:
                process.terminate()
        raise


def is_stopping() -> bool:
    """Whether all commands are asked to end."""
    return _STOPPING.is_set()


def end_with_parent() -> None:
    """On Linux, ask for SIGTERM when the parent dies, so that a child saves and ends instead of training unnoticed."""
    if LIBC is not None:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
