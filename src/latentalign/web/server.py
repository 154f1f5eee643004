"""A server for a trained model: a page, and addresses that accept and return JSON. All tasks share it.

Nothing is kept between requests. A request holds the lock `app.state.model` while the model computes: threads that
compute side by side would slow each other down.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Annotated, Any

import uvicorn
from fastapi import FastAPI
from fastapi import Request as HttpRequest
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import AfterValidator, BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from latentalign.core.predictives import parse_predict
from latentalign.errors import InputError, LatentAlignError

MOST_SAMPLES = 1000
"""Samples of a prior that one request may draw."""


class Request(BaseModel):
    """The body of a request; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def require_few_samples(text: str) -> str:
    """A predictive that does not draw more samples than memory holds."""
    how = parse_predict(text)
    if how.draws > MOST_SAMPLES:
        raise ValueError(f"at most sample:{MOST_SAMPLES}")
    return text


Predict = Annotated[str, AfterValidator(require_few_samples)]


def make_application(page: str, about: dict[str, Any]) -> FastAPI:
    """An application with a page and a description of the model. Every expected error becomes `{"error": message}`."""
    app = FastAPI(title=about["title"], docs_url=None, redoc_url=None)  # their pages need the network
    app.state.model = threading.Lock()
    app.get("/", response_class=HTMLResponse, include_in_schema=False)(lambda: page)
    app.get("/api/about")(lambda: about)

    app.add_exception_handler(LatentAlignError, reply_to_known_error)
    app.add_exception_handler(RequestValidationError, reply_to_invalid_body)
    app.add_exception_handler(HTTPException, reply_to_http_error)
    return app


def reply_to_known_error(_: HttpRequest, error: Exception) -> JSONResponse:
    """Errors of this package: 422 for bad input, 500 for the rest."""
    return JSONResponse({"error": str(error)}, 422 if isinstance(error, InputError) else 500)


def reply_to_invalid_body(_: HttpRequest, error: Exception) -> JSONResponse:
    """Name the key that is wrong, and why."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"][1:])
    if first["type"] == "json_invalid":
        message = f"the body is not JSON: {first['ctx']['error']}, character {place}"
    else:
        message = f"{place or 'body'}: {first['msg'].removeprefix('Value error, ')}"
    return JSONResponse({"error": message}, 422)


def reply_to_http_error(_: HttpRequest, error: Exception) -> JSONResponse:
    """Errors of the protocol, e.g. an unknown address."""
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": str(error.detail)}, error.status_code)


class Server(uvicorn.Server):
    """Ends at once when a signal asks for it: a computing thread cannot be stopped, and nothing is lost."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.config.app.state.model.locked():  # type: ignore[union-attr]
            os._exit(0 if sig == signal.SIGINT else 128 + sig)
        super().handle_exit(sig, frame)


def listen(app: FastAPI, host: str, port: int, *, announce: Callable[[str], None]) -> None:
    """Serve until interrupted; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot listen on {host}, port {port}: {reason}") from None
    if host in ("127.0.0.1", "localhost"):  # pages of other sites cannot send requests under their own name
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])
    name = f"[{host}]" if ":" in host else host
    with listening, suppress(KeyboardInterrupt):
        announce(f"open http://{name}:{listening.getsockname()[1]} in a browser; ctrl-C ends it")
        Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
