"""Processes that each hold one subject to measure and compute only when asked, one at a time."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Protocol

from latentalign.errors import LatentAlignError

Factory = Callable[[], Any]
"""Builds the subject that a process measures. It must be picklable, because the process calls it."""


class ChildFailed(LatentAlignError):
    """A process that could not do its work; the message begins with its name."""


class Worker(Protocol):
    """Holds a subject and runs its methods."""

    def ready(self) -> None:
        """Wait until the subject is built."""

    def ask(self, method: str, *arguments: Any) -> Any:
        """The result of a method of the subject."""

    def close(self) -> None:
        """End the work."""


def serve(pipe: Connection, make: Factory) -> None:
    """Run methods of the subject until the other end closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when this process ends
    with suppress(EOFError, BrokenPipeError):
        fine, subject = attempt(make)
        pipe.send((fine, None if fine else subject))
        while fine:
            method, arguments = pipe.recv()
            pipe.send(attempt(lambda: getattr(subject, method)(*arguments)))  # noqa: B023, called immediately


def attempt(work: Callable[[], Any]) -> tuple[bool, Any]:
    """True and the result, or False and the error message."""
    try:
        return True, work()
    except Exception as error:
        return False, f"{type(error).__name__}: {error}"


class Child:
    """A subject in its own process. It is spawned, so it shares no memory with this one."""

    def __init__(self, name: str, make: Factory) -> None:
        context = multiprocessing.get_context("spawn")
        self.name = name
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, make), daemon=True)
        self.process.start()
        theirs.close()  # now the pipe ends when the child ends

    def ready(self) -> None:
        self._answer()

    def ask(self, method: str, *arguments: Any) -> Any:
        with suppress(OSError):  # the child has ended; the answer says why
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


class WorkerGroup:
    """Several workers that take turns. One that fails is removed, and its error message is kept."""

    def __init__(
        self, jobs: Mapping[str, Factory], *, start: Callable[[str, Factory], Worker] = Child
    ) -> None:
        self.failures: dict[str, str] = {}
        self.members = {name: start(name, make) for name, make in jobs.items()}
        for name in list(self.members):  # all import at the same time; nobody computes before all have
            self._try(name, lambda member: member.ready())

    def __enter__(self) -> WorkerGroup:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in list(self.members):
            self.stop(name)

    def ask(self, name: str, method: str, *arguments: Any) -> Any:
        """The result of one worker's method; None if the worker fails now or has failed before."""
        return self._try(name, lambda member: member.ask(method, *arguments))

    def stop(self, name: str) -> None:
        """End a worker's process, which frees its memory."""
        if name in self.members:
            self.members.pop(name).close()

    def _try(self, name: str, call: Callable[[Worker], Any]) -> Any:
        if name not in self.members:
            return None
        try:
            return call(self.members[name])
        except ChildFailed as error:
            self.failures[name] = str(error)
            self.stop(name)
            return None
