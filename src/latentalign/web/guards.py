"""What stands between the network and an application: headers, the Host check, the token, limits of bodies."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address

from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST_BODY = 1_000_000
"""Bytes of a request's body."""
DISCARD_SECONDS = 5.0
"""How long the rest of a body that is too large is read: many clients look at the answer only afterwards."""
HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}
"""Headers of every response; a response may have a content security policy of its own."""
OPEN = {"/", "/api/health"}
"""Addresses that need no token: the page, which asks for it, and the health of the server."""


def page_policy(page: str) -> str:
    """A content security policy that allows exactly the scripts and styles written into a page."""
    allowed = {"script": "'none'", "style": "'none'"}
    for kind in allowed:
        texts = re.findall(rf"<{kind}>(.*?)</{kind}>", page, flags=re.DOTALL)
        hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]
        allowed[kind] = " ".join(f"'sha256-{one}'" for one in hashes) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed['script']}; style-src {allowed['style']}; "
        "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


def with_headers(app: ASGIApp) -> ASGIApp:
    """An application whose responses all have the headers above."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                given = {name.lower() for name, _ in headers}
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = headers + [one for one in added if one[0] not in given]
            await send(message)

        await app(scope, receive, send_with_headers)

    return guarded


def only_local_names(app: ASGIApp) -> ASGIApp:
    """An application of a loopback address, of which pages of other sites cannot make use.

    The Host header has to name a loopback address: a foreign name may have been pointed at this machine. Browsers say
    in Sec-Fetch-Site whether another site sends a request.
    """

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        headers = header_values(scope)
        if not is_loopback(host_name(headers.get("host", ""))):
            await refuse(send, 400, "the Host header must name this machine, e.g. localhost")
        elif scope["method"] != "GET" and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            await refuse(send, 403, "pages of other sites may not use this server")
        else:
            await app(scope, receive, send)

    return guarded


def with_token(app: ASGIApp, token: str) -> ASGIApp:
    """An application whose requests need `Authorization: Bearer TOKEN`."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        scheme, _, given = header_values(scope).get("authorization", "").partition(" ")
        known = hmac.compare_digest(given.strip().encode("latin-1"), token.encode())
        if scope["path"] in OPEN or (known and scheme.lower() == "bearer"):
            await app(scope, receive, send)
        else:
            message = "this server needs a token: send it as Authorization: Bearer TOKEN"
            await refuse(send, 401, message, {"www-authenticate": "Bearer"})

    return guarded


def with_whole_body(app: ASGIApp, *, seconds: float) -> ASGIApp:
    """An application that sees a request only when its body has arrived: in time and not too large."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.timeout(seconds):
                body = await read_body(scope, receive)
        except TimeoutError:
            return await refuse(send, 408, f"the body did not arrive within {seconds:g} seconds")
        except ValueError:
            return await refuse(
                send, 413, f"the body is too large: at most {LARGEST_BODY:,} bytes are accepted"
            )
        if body is None:
            return None
        pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_again() -> Message:
            return pending.pop() if pending else await receive()

        return await app(scope, receive_again, send)

    return guarded


async def read_body(scope: Scope, receive: Receive) -> bytes | None:
    """The body of a request, or None if the client disconnects; a ValueError if it is too large."""
    headers = header_values(scope)
    if int(headers.get("content-length", "0")) > LARGEST_BODY:
        if "expect" not in headers:  # a client that asks first has sent nothing yet
            await discard_body(receive)
        raise ValueError
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > LARGEST_BODY:
            if more:
                await discard_body(receive)
            raise ValueError
    return bytes(body)


async def discard_body(receive: Receive) -> None:
    """Read the rest of a body for a while and forget it."""
    with suppress(TimeoutError):
        async with asyncio.timeout(DISCARD_SECONDS):
            while (await receive()).get("more_body", False):
                pass


async def refuse(send: Send, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
    """Answer with an error and close the connection."""
    body = error_body(message)
    sent = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
    sent |= headers or {}
    lines = [(name.encode(), value.encode()) for name, value in sent.items()]
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def error_body(message: str) -> bytes:
    """An error as JSON, as in every response of this package."""
    return json.dumps({"error": message}).encode()


def header_values(scope: Scope) -> dict[str, str]:
    """The headers of a request by name, in lower case."""
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


def host_name(host: str) -> str:
    """The name in a Host header: without port, brackets and final dot, in lower case; "" if it is malformed."""
    found = re.fullmatch(r"(?:\[([^\[\]]+)\]|([^:\[\]]+))(?::\d*)?", host.strip())
    return (found[1] or found[2]).lower().removesuffix(".") if found else ""


def is_loopback(name: str) -> bool:
    """Whether a host name or address can only mean this machine."""
    if name == "localhost":
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
