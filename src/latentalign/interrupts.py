"""Ctrl-C and SIGTERM: how a command learns that it should end, and the command that continues its work."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from latentalign.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM)
NAMES = {int(signal.SIGINT): "Ctrl-C", int(signal.SIGTERM): "SIGTERM"}


@contextmanager
def handle_signals(handler: Callable[[int], None]) -> Iterator[None]:
    """Call `handler` with the number of a signal that asks this process to end.

    A process that was forked inside the block ends at once instead, without a message. Signals that are ignored, such
    as Ctrl-C in a background job, stay ignored. Only the main thread can handle signals; elsewhere nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner = os.getpid()

    def receive(number: int, frame: FrameType | None) -> None:
        if os.getpid() == owner:
            handler(number)
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    before = {n: signal.getsignal(n) for n in SIGNALS}
    handled = [n for n in SIGNALS if before[n] not in (signal.SIG_IGN, None)]
    for number in handled:
        signal.signal(number, receive)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, before[number])


def raise_interrupted(number: int) -> None:
    """End what is being computed."""
    raise Interrupted(number)


def ignore_signals() -> None:
    """Ignore further requests to end, so that the last message of a process is complete."""
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def first_interruption(error: KeyboardInterrupt) -> Interrupted:
    """The first of several interruptions: a second signal may arrive while the first one is dealt with."""
    found, seen = Interrupted(signal.SIGINT), [error]
    while seen[-1].__context__ is not None and not seen[-1].__suppress_context__:
        seen.append(seen[-1].__context__)  # type: ignore[arg-type]
    return next((e for e in reversed(seen) if isinstance(e, Interrupted)), found)


@contextmanager
def say_how_to_continue(*more: str, without: Sequence[str] = ()) -> Iterator[None]:
    """Add the command that continues to the message of an interruption."""
    try:
        yield
    except KeyboardInterrupt as error:
        stop = first_interruption(error)
        saved = stop.saved or "it was not training yet"
        again = command_again(*more, without=without)
        raise Interrupted(stop.number, f"{saved}; continue with\n{again}") from None


def command_again(*more: str, without: Sequence[str] = (), arguments: Sequence[str] | None = None) -> str:
    """The command line of this process with some options added and others left out, to be typed into a shell."""
    name, *given = sys.argv if arguments is None else arguments
    kept = [argument for argument in given if argument not in without and argument not in more]
    return shlex.join([*program_name(name, os.environ), *kept, *more])


def program_name(name: str, environment: Mapping[str, str]) -> list[str]:
    """How this program was started: by its name, by `python -m`, or by torchrun."""
    processes = environment.get("LOCAL_WORLD_SIZE", "1")
    if int(environment.get("WORLD_SIZE", "1")) > 1:
        return ["torchrun", "--nproc-per-node", processes, "-m", "latentalign"]
    path = Path(name)
    return ["python", "-m", "latentalign"] if path.name == "__main__.py" else [path.name]
