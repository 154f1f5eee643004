"""Processes that each hold one thing to be measured and work only when asked, one at a time."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Protocol

from latentalign.errors import LatentAlignError

Make = Callable[[], Any]
"""Builds what a process measures; it must be picklable, for it is called over there."""


class ChildFailed(LatentAlignError):
    """What a process could not do, by name."""


class Asked(Protocol):
    """Somebody who holds a subject and runs its methods."""

    def ready(self) -> None:
        """Return when the subject is built and can be asked."""

    def ask(self, method: str, *arguments: Any) -> Any:
        """What the subject's method returns."""

    def close(self) -> None:
        """No more questions."""


def serve(pipe: Connection, make: Make) -> None:
    """Answer questions until the other end hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to end
    with suppress(EOFError, BrokenPipeError):
        fine, subject = attempt(make)
        pipe.send((fine, None if fine else subject))
        while fine:
            method, arguments = pipe.recv()
            pipe.send(attempt(lambda: getattr(subject, method)(*arguments)))  # noqa: B023, called at once


def attempt(work: Callable[[], Any]) -> tuple[bool, Any]:
    """True and what came of it, or False and what went wrong."""
    try:
        return True, work()
    except Exception as error:
        return False, f"{type(error).__name__}: {error}"


class Child:
    """A subject in a process of its own, started anew so that nothing of this one's memory is in it."""

    def __init__(self, name: str, make: Make) -> None:
        context = multiprocessing.get_context("spawn")
        self.name = name
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, make), daemon=True)
        self.process.start()
        theirs.close()  # so that the end of the child is the end of the pipe

    def ready(self) -> None:
        self._answer()

    def ask(self, method: str, *arguments: Any) -> Any:
        with suppress(OSError):  # of a child that is gone; the answer says why
            self.pipe.send((method, arguments))
        return self._answer()

    def _answer(self) -> Any:
        try:
            fine, answer = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            raise ChildFailed(f"{self.name}: its process ended with code {self.process.exitcode}") from None
        if not fine:
            raise ChildFailed(f"{self.name}: {answer}")
        return answer

    def close(self) -> None:
        self.pipe.close()
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


class Crew:
    """Several subjects that take turns; one that fails leaves, and its reason is kept."""

    def __init__(self, jobs: Mapping[str, Make], *, start: Callable[[str, Make], Asked] = Child) -> None:
        self.failures: dict[str, str] = {}
        self.members = {name: start(name, make) for name, make in jobs.items()}
        for name in list(
            self.members
        ):  # all import at the same time, and nobody computes before the last has
            self._try(name, lambda member: member.ready())

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in list(self.members):
            self.dismiss(name)

    def ask(self, name: str, method: str, *arguments: Any) -> Any:
        """The answer of one member; None of one that has failed, now or before."""
        return self._try(name, lambda member: member.ask(method, *arguments))

    def dismiss(self, name: str) -> None:
        """End a member's process, which frees its memory."""
        if name in self.members:
            self.members.pop(name).close()

    def _try(self, name: str, question: Callable[[Asked], Any]) -> Any:
        if name not in self.members:
            return None
        try:
            return question(self.members[name])
        except ChildFailed as error:
            self.failures[name] = str(error)
            self.dismiss(name)
            return None
