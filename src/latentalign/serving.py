"""A trained model behind a page, and a few addresses that take and give JSON: what serving needs in any task.

Nothing is kept between requests. The model computes for one of them at a time, holding `app.state.model`: threads that
compute side by side would slow each other down.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import BaseModel, ConfigDict

from latentalign.errors import InputError


class Asking(BaseModel):
    """What is asked of a model; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def application(page: str, about: dict[str, Any]) -> FastAPI:
    """An application with its page, what is served, and every foreseen fault as `{"error": what}`."""
    app = FastAPI(title=about["title"], docs_url=None, redoc_url=None)  # their pages need the network
    app.state.model = threading.Lock()
    app.get("/", response_class=HTMLResponse, include_in_schema=False)(lambda: page)
    app.get("/api/about")(lambda: about)

    def bad(_: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error": str(error)}, 422)

    def misshaped(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:])
        return JSONResponse({"error": f"{place or 'body'}: {first['msg']}"}, 422)

    app.add_exception_handler(InputError, bad)
    app.add_exception_handler(RequestValidationError, misshaped)
    return app


def listen(app: FastAPI, host: str, port: int, *, tell: Callable[[str], None]) -> None:
    """Serve until interrupted; port 0 takes a free one."""
    import uvicorn

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise InputError(
            f"cannot listen on {host}, port {port}: {getattr(error, 'strerror', None) or error}"
        ) from None
    name = f"[{host}]" if ":" in host else host
    with listening:
        tell(f"open http://{name}:{listening.getsockname()[1]} in a browser; ctrl-C ends it")
        with suppress(KeyboardInterrupt):
            uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
