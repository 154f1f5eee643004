"""A trained model behind a page, and a few addresses that take and give JSON: what serving needs in any task.

Nothing is kept between requests. The model computes for one of them at a time, holding `app.state.model`: threads that
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
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import AfterValidator, BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from latentalign.core.predictives import SamplePredict, parse_predict
from latentalign.errors import InputError, LatentAlignError

SAMPLES = 1000
"""Of a prior, at most."""


class Asking(BaseModel):
    """What is asked of a model; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def bounded(text: str) -> str:
    """A way to predict that does not ask for more samples than memory holds."""
    how = parse_predict(text)
    if isinstance(how, SamplePredict) and how.n > SAMPLES:
        raise ValueError(f"at most sample:{SAMPLES}")
    return text


Predict = Annotated[str, AfterValidator(bounded)]


def application(page: str, about: dict[str, Any]) -> FastAPI:
    """An application with its page, what is served, and every foreseen fault as `{"error": what}`."""
    app = FastAPI(title=about["title"], docs_url=None, redoc_url=None)  # their pages need the network
    app.state.model = threading.Lock()
    app.get("/", response_class=HTMLResponse, include_in_schema=False)(lambda: page)
    app.get("/api/about")(lambda: about)

    def foreseen(_: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error": str(error)}, 422 if isinstance(error, InputError) else 500)

    def misshaped(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:])
        if first["type"] == "json_invalid":
            return JSONResponse(
                {"error": f"the body is not JSON: {first['ctx']['error']}, character {place}"}, 422
            )
        return JSONResponse(
            {"error": f"{place or 'body'}: {first['msg'].removeprefix('Value error, ')}"}, 422
        )

    def refused(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        return JSONResponse({"error": str(error.detail)}, error.status_code)

    app.add_exception_handler(LatentAlignError, foreseen)
    app.add_exception_handler(RequestValidationError, misshaped)
    app.add_exception_handler(HTTPException, refused)
    return app


class Server(uvicorn.Server):
    """Ends when it is told to, whatever is being computed: a thread cannot be stopped, and nothing is lost."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.config.app.state.model.locked():  # type: ignore[union-attr]
            os._exit(0 if sig == signal.SIGINT else 128 + sig)
        super().handle_exit(sig, frame)


def listen(app: FastAPI, host: str, port: int, *, tell: Callable[[str], None]) -> None:
    """Serve until interrupted; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot listen on {host}, port {port}: {reason}") from None
    if host in ("127.0.0.1", "localhost"):  # a page of another site cannot ask under its own name
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])
    name = f"[{host}]" if ":" in host else host
    with listening, suppress(KeyboardInterrupt):
        tell(f"open http://{name}:{listening.getsockname()[1]} in a browser; ctrl-C ends it")
        Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
