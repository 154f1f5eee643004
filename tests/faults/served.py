"""A served model under test: its process, its memory, and requests whose bytes are chosen."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults.lab import Child, Ended, Lab, command

HOST = "127.0.0.1"
WORDS = ["der", "Hund", "sieht", "die", "kleine", "Katze", "und", "das", "alte", "Haus"]
HEAVY = {"source": [" ".join(WORDS * 7)] * 8, "beam": 20}
"""Eight sentences of some sixty words."""


@dataclass
class Served:
    """A process that serves a run."""

    child: Child
    port: int
    ended: Ended | None = None

    def memory(self) -> float:
        """Megabytes that the process holds."""
        text = Path(f"/proc/{self.child.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024

    def end(self, number: int = signal.SIGTERM) -> Ended:
        """Send a signal and wait for the end."""
        self.child.kill(number)
        began = time.monotonic()
        ended = self.child.wait(30)
        self.ended = Ended(ended.code, ended.errors, time.monotonic() - began)
        return self.ended


@contextmanager
def served(lab: Lab, run: Path, *options: object) -> Iterator[Served]:
    """Serve a run on a free port."""
    child = lab.start(command("serve", run, "--port", 0, *options))
    try:
        yield (found := Served(child, find_port(child)))
    finally:
        if "found" not in locals() or found.ended is None:
            child.kill()
            child.wait()


def find_port(child: Child) -> int:
    """The port that a server announces."""
    while not child.ended():
        announced = re.search(r"open http://\S+:(\d+) ", child.errors.read_text())
        if announced:
            return int(announced[1])
        time.sleep(0.01)
    raise RuntimeError(f"no server: {child.wait().errors}")


def post(path: str, body: Any, *, length: int | None = None) -> bytes:
    """The bytes of a request; `length` is declared instead of the true one."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    size = len(content) if length is None else length
    head = f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + content


def get(path: str, host: str = HOST) -> bytes:
    """The bytes of a request without a body."""
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()


async def exchange(port: int, request: bytes, *, leave_after: float | None = None) -> tuple[int, bytes]:
    """Status and content of the answer; (0, b"") if there is none, or if the client leaves before."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(request)
        async with asyncio.timeout(leave_after or 60):
            answer = await reader.read()
    except TimeoutError:
        answer = b""
    except ConnectionError as error:
        answer = f"HTTP/1.1 000 {error}\r\n\r\n".encode()
    finally:
        writer.transport.abort()
    head, _, content = answer.partition(b"\r\n\r\n")
    return (int(head.split()[1]) if head else 0), content


def ask(port: int, request: bytes) -> tuple[int, bytes]:
    """The same for one request, and wait for the answer."""
    return asyncio.run(exchange(port, request))


async def seconds_of(port: int, request: bytes) -> tuple[float, int]:
    """How long an answer takes, and its status."""
    began = time.monotonic()
    status, _ = await exchange(port, request)
    return time.monotonic() - began, status
