"""The worker of a server: one thread computes, and requests wait for it in a bounded queue.

Endpoints are coroutines that `await worker.run(request, work)`. `work(check)` runs in the thread; it calls `check()`
whenever it can stop, which raises once nobody waits for the result. The event loop never computes, so it can always
answer. Only the thread uses the model: threads that compute side by side would slow each other down.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request

T = TypeVar("T")
I = TypeVar("I")  # noqa: E741
Check = Callable[[], None]
"""Raises if the computation is no longer wanted."""

DEADLINE = 60.0
"""Seconds within which a request is computed, by default."""
MOST_WAITING = 32
"""Most requests in the queue: more would hardly have a result before their deadline."""
MOST_TOGETHER = 32
"""Most requests that are computed together."""
GRACE = 2.0
"""Seconds that the current computation may take when the server ends."""
RETRY = {"Retry-After": "1"}
ENDING = "the server is ending"


class AbandonedError(Exception):
    """Nobody waits for the result of a computation any more."""


@dataclass(eq=False)
class _Ticket:
    """A request that waits for its result."""

    item: Any
    key: Hashable
    work: Callable[[Sequence[Any], Check], Sequence[Any]]
    result: asyncio.Future[Any]

    def resolve(self, value: Any) -> None:
        """Deliver a result or an exception, from any thread."""
        self.result.get_loop().call_soon_threadsafe(self._set, value)

    def _set(self, value: Any) -> None:
        if self.result.done():
            return
        if isinstance(value, BaseException):
            self.result.set_exception(value)
        else:
            self.result.set_result(value)


class Worker:
    """One thread that computes for all requests."""

    def __init__(self, *, deadline: float = DEADLINE, most_waiting: int = MOST_WAITING) -> None:
        self.deadline, self.most_waiting = deadline, most_waiting
        self._changed = threading.Condition()
        self._waiting: deque[_Ticket] = deque()
        self._running: list[_Ticket] = []
        self._closed = False
        self._thread: threading.Thread | None = None

    async def run(self, request: Request, work: Callable[[Check], T]) -> T:
        """The result of `work`, or the exception that it raises.

        503 if the queue is full or the server ends, 504 after the deadline. If the client disconnects, the
        computation is abandoned.
        """
        return await self.run_together(request, None, key=None, work=lambda _, check: [work(check)])

    async def run_together(
        self,
        request: Request,
        item: I,
        *,
        key: Hashable,
        work: Callable[[Sequence[I], Check], Sequence[T]],
    ) -> T:
        """The same for one item of a batch: waiting items with an equal key are computed in one call of `work`.

        An item whose key is None is computed alone.
        """
        ticket = _Ticket(item, key, work, asyncio.get_running_loop().create_future())
        self._accept(ticket)
        gone = asyncio.ensure_future(wait_for_disconnect(request))
        try:
            await asyncio.wait(
                {ticket.result, gone}, timeout=self.deadline, return_when=asyncio.FIRST_COMPLETED
            )
            if ticket.result.done():
                return ticket.result.result()  # type: ignore[no-any-return]
            if gone.done():
                raise HTTPException(499, "the client has disconnected")
            raise HTTPException(
                504, f"no result within {self.deadline:g} seconds; send fewer or shorter sentences"
            )
        finally:
            gone.cancel()
            ticket.result.cancel()
            self._forget(ticket)

    async def close(self, grace: float = GRACE) -> None:
        """Refuse what waits and what comes; let the current computation end, or abandon it after some seconds."""
        with self._changed:
            self._closed = True
            waiting, self._waiting = self._waiting, deque()
            self._changed.notify()
        for ticket in waiting:
            ticket.resolve(HTTPException(503, ENDING, RETRY))
        stop = time.monotonic() + grace
        while self._running and time.monotonic() < stop:
            await asyncio.sleep(0.02)
        for ticket in list(self._running):
            ticket.resolve(HTTPException(503, ENDING, RETRY))

    def join(self, seconds: float) -> bool:
        """Wait for the thread to end after `close`; whether it has ended."""
        if self._thread is not None:
            self._thread.join(seconds)
        return self._thread is None or not self._thread.is_alive()

    def _accept(self, ticket: _Ticket) -> None:
        with self._changed:
            if self._closed:
                raise HTTPException(503, ENDING, RETRY)
            if len(self._waiting) >= self.most_waiting:
                message = f"{len(self._waiting)} requests are waiting already; try again later"
                raise HTTPException(503, message, RETRY)
            self._waiting.append(ticket)
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="worker", daemon=True)
                self._thread.start()

    def _forget(self, ticket: _Ticket) -> None:
        """Take a ticket out of the queue if it still waits."""
        with self._changed:
            if ticket in self._waiting:
                self._waiting.remove(ticket)

    def _loop(self) -> None:
        while self._take():
            tickets = self._running
            try:
                self._compute(tickets)
            finally:
                self._running = []
            del tickets

    def _take(self) -> bool:
        """Wait for tickets to compute; False when the worker is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if self._closed:
                return False
            first = self._waiting.popleft()
            others = [t for t in self._waiting if first.key is not None and t.key == first.key]
            self._running = [first, *others[: MOST_TOGETHER - 1]]
            for ticket in self._running[1:]:
                self._waiting.remove(ticket)
            return True

    def _compute(self, tickets: Sequence[_Ticket]) -> None:
        """Compute tickets together; if that fails, each of them alone, so that each gets its own error."""

        def check() -> None:
            if all(ticket.result.done() for ticket in tickets):
                raise AbandonedError

        try:
            check()
            results = tickets[0].work([ticket.item for ticket in tickets], check)
            for ticket, result in zip(tickets, results, strict=True):
                ticket.resolve(result)
        except AbandonedError:
            return
        except Exception as error:
            if len(tickets) == 1:
                tickets[0].resolve(error)
            else:
                for ticket in tickets:
                    self._compute([ticket])


async def wait_for_disconnect(request: Request) -> None:
    """Return when the client of a request, whose body has been read, disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
