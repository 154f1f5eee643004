"""An application that computes as long as a test wants, and raw connections to it."""

import json
import socket
import threading
import time
from urllib.parse import urlparse

import pytest

pytest.importorskip("fastapi")
from fastapi import Request as HttpRequest

from latentalign.errors import InputError
from latentalign.web.server import Request, make_application

PAGE = "<style>p { color: red }</style><p>page</p><script>document.title = 'x';</script>"


class Asked(Request):
    """A number and a text."""

    number: int
    share: float = 0.0


class Slow:
    """Work that lasts until `go` is set, checking every few milliseconds whether somebody still waits."""

    def __init__(self) -> None:
        self.go, self.started, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.calls: list[list[int]] = []

    def __call__(self, numbers, check):
        self.calls.append(list(numbers))
        self.started.set()
        try:
            while not self.go.wait(0.005):
                check()
            if any(number < 0 for number in numbers):
                raise InputError("number: must not be negative")
            return [{"number": number} for number in numbers]
        finally:
            self.ended.set()


@pytest.fixture
def slow():
    work = Slow()
    yield work
    work.go.set()


@pytest.fixture
def app(slow):
    """POST /api/double answers at once, /api/slow when `slow.go` is set, /api/together with others."""
    made = make_application(PAGE, {"title": "test"})
    worker = made.state.worker

    @made.post("/api/double")
    async def double(asked: Asked, request: HttpRequest) -> dict[str, int]:
        return await worker.run(request, lambda check: {"number": 2 * asked.number})

    @made.post("/api/slow")
    async def wait(asked: Asked, request: HttpRequest) -> dict[str, int]:
        return await worker.run(request, lambda check: slow([asked.number], check)[0])

    @made.post("/api/together")
    async def together(asked: Asked, request: HttpRequest) -> dict[str, int]:
        return await worker.run_together(request, asked.number, key=asked.share, work=slow)

    @made.post("/api/bug")
    async def bug(request: HttpRequest) -> dict[str, int]:
        return await worker.run(request, lambda check: {"number": 1 // 0})

    return made


class Connection:
    """A connection whose bytes a test chooses."""

    def __init__(self, address: str) -> None:
        place = urlparse(address)
        self.socket = socket.create_connection((place.hostname, place.port), timeout=20)

    def send(self, text: str | bytes) -> None:
        self.socket.sendall(text.encode() if isinstance(text, str) else text)

    def post(self, path: str, body, **headers: str) -> None:
        content = json.dumps(body)
        lines = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": str(len(content))}
        lines |= {name.replace("_", "-"): value for name, value in headers.items()}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self.send(f"POST {path} HTTP/1.1\r\n{head}\r\n{content}")

    def response(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and content of the next response."""
        import http.client

        found = http.client.HTTPResponse(self.socket)
        found.begin()
        return found.status, {k.lower(): v for k, v in found.getheaders()}, found.read()

    def close(self) -> None:
        self.socket.close()


@pytest.fixture
def connect():
    """Open raw connections, closed after the test."""
    opened: list[Connection] = []

    def connect_to(client) -> Connection:
        opened.append(Connection(client.address))
        return opened[-1]

    yield connect_to
    for connection in opened:
        connection.close()


@pytest.fixture
def eventually():
    """Wait until something is true."""

    def wait(condition, seconds: float = 10.0) -> None:
        stop = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < stop
            time.sleep(0.005)

    return wait
