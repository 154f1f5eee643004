"""What a server refuses, gives up and survives; and whether it ever fails on what its own description allows."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import Callable, Iterable
from importlib.util import find_spec

from faults.lab import Lab, Tally, fraction, spread
from faults.served import HOST, WORDS, Served, ask, exchange, get, post, seconds_of, served

LONG = {"source": [" ".join(WORDS * 30)] * 100, "beam": 50}
"""Hours of work."""
SHORT = post("/api/translate", {"source": [" ".join(WORDS)]})
DEADLINE = 1.0
SOON = 2.0
"""Seconds within which an abandoned computation ends."""
HOSTS = ("127.0.0.1", "localhost", "127.8.9.1", "::1")
HEADERS = (b"content-security-policy:", b"x-content-type-options: nosniff", b"x-frame-options: deny")


def serve(lab: Lab, scale: float) -> Tally:
    """Clients that leave, are slow, send too much or too little, use wrong names; and the end of the server."""
    tally = lab.tally("abuse of a server", "refused or survived")
    run = lab.finished("objective.name=variational-sample", "training.max_steps=40")
    with served(lab, run, "--deadline", DEADLINE) as server:
        kinds = (left_alone, past_deadline, full_queue, half_sent, too_large, malformed)
        for check in kinds:
            for _ in range(fraction(scale, 10)):
                tally.check(f"{check.__name__}: {one}" for one in check(server))
        tally.check([] if ask(server.port, SHORT)[0] == 200 else ["no translation at the end"])
        tally.check(server.end().complaints(143))
    for host in spread(HOSTS, fraction(scale, len(HOSTS))):
        tally.check(names(lab, run, host))
    ends = 5 * [(signal.SIGTERM, 143), (signal.SIGINT, 0)]
    for number, code in spread(ends, fraction(scale, len(ends))):
        tally.check(ended_by(lab, run, number, code))
    return tally


def left_alone(server: Served) -> Iterable[str]:
    """A client that disconnects frees the worker."""
    if asyncio.run(exchange(server.port, post("/api/translate", LONG), leave_after=0.3))[0]:
        yield "it was too fast"
    seconds, status = asyncio.run(seconds_of(server.port, SHORT))
    if status != 200 or seconds > SOON:
        yield f"the next request got {status} after {seconds:.1f} s"


def past_deadline(server: Served) -> Iterable[str]:
    """A computation past its deadline is answered and ends."""
    seconds, status = asyncio.run(seconds_of(server.port, post("/api/translate", LONG)))
    if status != 504 or not DEADLINE <= seconds < DEADLINE + SOON:
        yield f"{status} after {seconds:.1f} s"
    seconds, status = asyncio.run(seconds_of(server.port, SHORT))
    if status != 200 or seconds > SOON:
        yield f"the next request got {status} after {seconds:.1f} s"


def full_queue(server: Served) -> Iterable[str]:
    """Of many requests at once, some are refused at once and all are answered."""

    async def flood() -> list[tuple[int, bytes]]:
        return await asyncio.gather(*(exchange(server.port, post("/api/translate", LONG)) for _ in range(60)))

    statuses = sorted(status for status, _ in asyncio.run(flood()))
    if set(statuses) != {503, 504}:
        yield f"statuses {statuses}"


def half_sent(server: Served) -> Iterable[str]:
    """Fifty half-sent bodies stop nobody else."""
    half = post("/api/translate", b"{", length=10)
    sockets = [socket.create_connection((HOST, server.port), timeout=20) for _ in range(50)]
    for one in sockets:
        one.sendall(half)
    seconds, status = asyncio.run(seconds_of(server.port, get("/api/health")))
    if status != 200 or seconds > 1:
        yield f"health: {status} after {seconds:.1f} s"
    for one in sockets:
        one.close()


def too_large(server: Served) -> Iterable[str]:
    """A hundred megabytes are refused without being kept."""
    before = server.memory()
    status, _ = ask(server.port, post("/api/translate", b" " * 100_000_000))
    if status != 413:
        yield f"status {status}"
    if server.memory() > before + 20:
        yield f"{before:.0f} MB before, {server.memory():.0f} MB after"


def malformed(server: Served) -> Iterable[str]:
    """Bodies and requests that are not what they should be."""
    cases: list[tuple[bytes, set[int]]] = [
        (post("/api/translate", b"["), {422}), (post("/api/translate", b"[" * 100_000), {400}),
        (post("/api/translate", b'{"source": ["\\ud800"]}'), {422}), (post("/api/translate", b"\xff\xfe"), {400, 422}),
        (post("/api/translate", b'{"source": ["a"], "beam": ' + b"9" * 5000 + b"}"), {400, 422}),
        (post("/api/translate", {"source": ["a"], "beam": True}), {422}),
        (post("/api/translate", {"source": ["a"], "beam": "5"}), {422}),
        (post("/api/translate", {"source": ["a"], "length_penalty": float("nan")}), {422}),
        (post("/api/align", {"pairs": [{"source": "a"}]}), {422}), (get("/nowhere"), {404}),
        (get("/api/translate"), {405}), (get("/", host="elsewhere.example"), {400}), (b"not HTTP\r\n\r\n", {400}),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20_000 + b"\r\n", {400}),
    ]  # fmt: skip
    for request, expected in cases:
        status, content = ask(server.port, request)
        if status not in expected or json.loads(content).keys() != {"error"}:
            yield f"{request[-60:]!r}: {status} {content[:80]!r}"


def names(lab: Lab, run: object, host: str) -> Iterable[str]:
    """A server on any loopback address accepts every name of this machine and no other, with all headers."""
    with served(lab, run, "--host", host) as server:
        for name, expected in (
            ("localhost", 200), ("LOCALHOST.", 200), ("127.0.0.1", 200), ("127.9.9.9", 200), ("[::1]", 200),
            ("elsewhere.example", 400), ("localhost.example", 400), ("10.0.0.1", 400),
        ):  # fmt: skip
            address = "127.0.0.1" if host == "localhost" else host
            with socket.create_connection((address, server.port), timeout=20) as one:
                one.sendall(get("/api/about", host=f"{name}:{server.port}"))
                answer = b"".join(iter(lambda: one.recv(65536), b""))
            status = int(answer.split()[1])
            if status != expected or not all(header in answer.lower() for header in HEADERS):
                yield f"{host}, Host: {name}: {answer[:300]!r}"


def ended_by(lab: Lab, run: object, number: int, code: int) -> Iterable[str]:
    """A signal during a computation: every accepted request is answered, and the end comes soon."""

    async def crowd(server: Served) -> tuple[list[int], object]:
        tasks = [asyncio.create_task(exchange(server.port, post("/api/translate", LONG))) for _ in range(8)]
        await asyncio.sleep(1)
        ended = await asyncio.to_thread(server.end, number)
        return [status for status, _ in await asyncio.gather(*tasks)], ended

    with served(lab, run) as server:
        statuses, ended = asyncio.run(crowd(server))
    if statuses != [503] * 8:
        yield f"statuses {statuses}"
    if ended.seconds > 8:
        yield f"it took {ended.seconds:.1f} s"
    yield from ended.complaints(code)


def schema(lab: Lab, scale: float) -> Tally:
    """Requests generated from the server's description: every answer is described there, and none is a 500."""
    tally = lab.tally("requests made from the description of the API", "answered as described")
    if find_spec("schemathesis") is None:
        tally.skipped = "schemathesis is not installed"
        return tally
    run = lab.finished("objective.name=variational-sample", "training.max_steps=40")
    with served(lab, run) as server:
        found = lab.ask(lambda: generate(server.port, fraction(scale, 500)))
        for complaint in found["wrong"]:
            tally.check([complaint])
        tally.tried += found["sent"] - len(found["wrong"])
        tally.check([] if ask(server.port, SHORT)[0] == 200 else ["no translation afterwards"])
        tally.check(server.end().complaints(143))
    return tally


def generate(port: int, examples: int) -> dict[str, object]:
    """Send generated requests, valid and invalid ones, to every address of a server."""
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, seed, settings
    from schemathesis.checks import not_a_server_error
    from schemathesis.generation import GenerationMode
    from schemathesis.specs.openapi import checks

    address = f"http://{HOST}:{port}"
    api = schemathesis.openapi.from_url(f"{address}/openapi.json")
    wanted = [
        not_a_server_error, checks.status_code_conformance, checks.content_type_conformance,
        checks.response_schema_conformance,
    ]  # fmt: skip
    wrong: list[str] = []
    sent = 0
    for operation in (result.ok() for result in api.get_all_operations()):
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

            @seed(0)
            @settings(
                max_examples=examples,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def send(case: schemathesis.Case) -> None:
                nonlocal sent
                sent += 1
                response = case.call(base_url=address, timeout=60)
                try:
                    case.validate_response(response, checks=wanted)
                except BaseException as error:
                    wrong.append(f"{case.operation.label}: {error}"[:500])

            run_quietly(send)
    return {"sent": sent, "wrong": wrong}


def run_quietly(test: Callable[[], None]) -> None:
    """Run a generated test; an address without a body has no invalid requests."""
    from hypothesis.errors import Unsatisfiable

    try:
        test()
    except Unsatisfiable:
        return
