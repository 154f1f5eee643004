"""Listening for connections: addresses, limits of connections, and an orderly end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from latentalign.errors import InputError, Interrupted
from latentalign.web import guards
from latentalign.web.worker import DEADLINE, ENDING, Worker

MOST_CONNECTIONS = 256
"""Open connections; twice as many are answered with 503, and further ones are closed at once."""
HEADER_SECONDS = 10.0
"""Within which the headers of a request have to arrive."""
BODY_SECONDS = 15.0
"""Within which its whole body has to arrive."""
SEND_SECONDS = 30.0
"""Within which a client has to read what was sent to it."""
KEEP_ALIVE_SECONDS = 5


@dataclass(frozen=True)
class ServerSettings:
    """Where to listen, and for whom to compute for how long."""

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    deadline: float = DEADLINE


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 for clients that may be slow, silent or too many."""

    late_headers: asyncio.TimerHandle | None = None
    late_reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > 2 * MOST_CONNECTIONS:
            return transport.abort()
        if len(self.connections) > MOST_CONNECTIONS:
            self.app = guards.with_headers(refuse_connection)
        return self.watch_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.watch_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self.late_headers, self.late_reading):
            if timer is not None:
                timer.cancel()

    def watch_headers(self) -> None:
        """Give up a client whose headers do not arrive in time."""
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            if self.late_headers is None:
                self.late_headers = self.loop.call_later(HEADER_SECONDS, self.give_up_headers)
        elif self.late_headers is not None:
            self.late_headers.cancel()
            self.late_headers = None

    def give_up_headers(self) -> None:
        if not self.transport.is_closing():
            self.refuse(408, f"the headers did not arrive within {HEADER_SECONDS:g} seconds")

    def pause_writing(self) -> None:
        super().pause_writing()
        self.abort_later()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.late_reading is not None:
            self.late_reading.cancel()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self.abort_later()  # closing waits until everything sent has been read

    def abort_later(self) -> None:
        """Drop the connection if the client does not read."""
        self.late_reading = self.loop.call_later(SEND_SECONDS, self.transport.abort)

    def shutdown(self) -> None:
        """Called when the server ends: a request whose body has not arrived is not waited for."""
        if self.conn.their_state is h11.SEND_BODY and not self.cycle.response_started:
            self.refuse(503, ENDING)
        else:
            super().shutdown()

    def send_400_response(self, msg: str) -> None:
        self.refuse(400, msg)

    def refuse(self, status: int, message: str) -> None:
        """Answer a request that no application has seen, and close the connection."""
        body = guards.error_body(message)
        headers = [*self.server_state.default_headers, (b"content-type", b"application/json")]
        headers += [(b"content-length", str(len(body)).encode()), (b"connection", b"close")]
        headers += [(name.encode(), value.encode()) for name, value in guards.HEADERS.items()]
        events = (
            h11.Response(status_code=status, headers=headers, reason=STATUS_PHRASES[status]),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        with suppress(h11.LocalProtocolError):  # a response is under way
            self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
        self.transport.close()


async def refuse_connection(scope: Scope, receive: Receive, send: Send) -> None:
    """The application of connections above the limit."""
    await guards.refuse(send, 503, "too many connections; try again later", {"retry-after": "1"})


class Server(uvicorn.Server):
    """Answers all accepted requests before it ends, if only with 503."""

    def __init__(self, config: uvicorn.Config, worker: Worker) -> None:
        super().__init__(config)
        self.worker = worker

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self.worker.close()
        await super().shutdown(sockets)


def make_server(app: FastAPI, settings: ServerSettings, *, local: bool) -> Server:
    """A server for an application; `local` if it listens on a loopback address."""
    worker: Worker = app.state.worker
    worker.deadline = settings.deadline
    guarded = guards.with_whole_body(app, seconds=BODY_SECONDS)
    if settings.token:
        guarded = guards.with_token(guarded, settings.token)
    if local:
        guarded = guards.only_local_names(guarded)
    options: dict[str, Any] = {
        "http": LimitedProtocol, "ws": "none", "lifespan": "off", "interface": "asgi3", "log_level": "error",
        "access_log": False, "proxy_headers": False, "server_header": False,
        "timeout_keep_alive": KEEP_ALIVE_SECONDS, "timeout_graceful_shutdown": 5,
    }  # fmt: skip
    return Server(uvicorn.Config(guards.with_headers(guarded), **options), worker)


def open_socket(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot listen on {host}, port {port}: {reason}") from None


def listen(app: FastAPI, settings: ServerSettings, *, announce: Callable[[str], None]) -> None:
    """Serve until interrupted."""
    listening = open_socket(settings.host, settings.port)
    address, port = listening.getsockname()[:2]
    local = guards.is_loopback(address)
    server = make_server(app, settings, local=local)
    if not local and not settings.token:
        announce(
            f"warning: everybody who reaches {settings.host} can use this server; set a token with --token"
        )
    name = f"[{settings.host}]" if ":" in settings.host else settings.host
    ended: KeyboardInterrupt | None = None
    try:
        with listening:
            announce(f"open http://{name}:{port} in a browser; ctrl-C ends it")
            server.run(sockets=[listening])
    except KeyboardInterrupt as error:
        ended = error
    terminated = isinstance(ended, Interrupted) and ended.number == signal.SIGTERM  # ctrl-C is a success
    if not server.worker.join(1.0):  # a step that takes seconds cannot be interrupted, and nothing is lost
        sys.stderr.flush()
        os._exit(128 + signal.SIGTERM if terminated else 0)
    if ended is not None and terminated:
        raise ended
