"""A web application around a trained model: a page, and addresses that accept and return JSON. All tasks share it.

Nothing is kept between requests. What a model computes runs in the worker, `app.state.worker`; endpoints are
coroutines that wait for it.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI
from fastapi import Request as HttpRequest
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import AfterValidator, BaseModel, ConfigDict
from starlette.exceptions import HTTPException

from latentalign.core.predictives import parse_predict
from latentalign.errors import InputError, LatentAlignError
from latentalign.web.guards import page_policy
from latentalign.web.worker import Worker

MOST_SAMPLES = 1000
"""Samples of a prior that one request may draw."""


class Request(BaseModel):
    """The body of a request. Unknown keys are refused, and so is `true` or `"5"` for a number."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ErrorReply(BaseModel):
    """Every response that is not a success."""

    error: str


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorReply, "description": text}
    for status, text in {
        400: "The request is not HTTP or not JSON, or its Host header is wrong.",
        401: "The token is missing or wrong.",
        403: "The page of another site sent the request.",
        404: "There is nothing at this address.",
        405: "The address does not know this method.",
        408: "The request did not arrive in time.",
        413: "The body is too large.",
        422: "A value in the request is wrong; the message names it.",
        500: "The computation failed.",
        503: "Too many requests wait, or the server is ending; try again.",
        504: "The deadline passed before there was a result.",
    }.items()
}
"""What each error status means, for the description of the API."""


def require_few_samples(text: str) -> str:
    """A predictive that does not draw more samples than memory holds."""
    how = parse_predict(text)
    if how.draws > MOST_SAMPLES:
        raise ValueError(f"at most sample:{MOST_SAMPLES}")
    return text


Predict = Annotated[str, AfterValidator(require_few_samples)]


def make_application(page: str, about: dict[str, Any]) -> FastAPI:
    """An application with a page and a description of the model. Every error becomes `{"error": message}`."""
    # FastAPI's own pages would need the network.
    app = FastAPI(title=about["title"], docs_url=None, redoc_url=None, responses=ERRORS)
    app.state.worker = Worker()
    policy = {"Content-Security-Policy": page_policy(page)}

    @app.get("/", include_in_schema=False)
    async def show_page() -> HTMLResponse:
        return HTMLResponse(page, headers=policy)

    @app.get("/api/health")
    async def health() -> dict[str, str]:
        """Whether the server accepts requests; it answers at once, however much is being computed."""
        return {"status": "ok"}

    @app.get("/api/about")
    async def describe_model() -> dict[str, Any]:
        """What is served; it answers at once as well."""
        return about

    app.add_exception_handler(LatentAlignError, reply_to_known_error)
    app.add_exception_handler(RequestValidationError, reply_to_invalid_body)
    app.add_exception_handler(HTTPException, reply_to_http_error)
    app.add_exception_handler(Exception, reply_to_bug)
    return app


async def reply_to_known_error(_: HttpRequest, error: Exception) -> JSONResponse:
    """Errors of this package: 422 for bad input, 500 for the rest."""
    return JSONResponse({"error": str(error)}, 422 if isinstance(error, InputError) else 500)


async def reply_to_invalid_body(_: HttpRequest, error: Exception) -> JSONResponse:
    """Name the key that is wrong, and why."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"][1:])
    if first["type"] == "json_invalid":
        message = f"the body is not JSON: {first['ctx']['error']}, character {place}"
    elif first["type"] == "model_attributes_type" and not place:
        message = "the body must be a JSON object, sent with the header Content-Type: application/json"
    else:
        message = f"{place or 'body'}: {first['msg'].removeprefix('Value error, ')}"
    return JSONResponse({"error": message}, 422)


async def reply_to_http_error(_: HttpRequest, error: Exception) -> JSONResponse:
    """Errors of the protocol, e.g. an unknown address."""
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)


async def reply_to_bug(_: HttpRequest, error: Exception) -> JSONResponse:
    """Errors that nobody expects; the server prints them."""
    return JSONResponse({"error": f"internal error ({type(error).__name__}); the server's log has more"}, 500)
