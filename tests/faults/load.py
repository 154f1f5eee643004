"""A server under load: sixty-four clients, of which some leave, are slow, or send too much."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from faults.lab import Lab, Tally
from faults.served import HEAVY, WORDS, Served, ask, exchange, get, post, seconds_of, served

CLIENTS = 64
SECONDS = 300.0
"""Of the load; before it, a tenth of that warms the server up."""
LATE = 1.0
"""Seconds within which health and description are answered."""
GROWTH = 0.05
"""By which the memory may differ after the load."""
ANSWERS = {
    "translate": {200, 503, 504}, "heavy": {200, 503, 504}, "align": {200, 503, 504}, "invalid": {422},
    "large": {413}, "chunked": {413}, "slow": {408}, "leave": {0, 200, 503},
}  # fmt: skip
"""The statuses that each kind of request may get; one that leaves may get none."""
SHARES = {
    "translate": 50, "heavy": 14, "align": 12, "invalid": 6, "large": 4, "chunked": 3, "slow": 1, "leave": 10,
}  # fmt: skip


@dataclass
class Load:
    """Requests that were sent, by kind and status, and those that were not answered as they should be."""

    port: int
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    async def run(self, seconds: float, seed: int) -> None:
        """Let all clients send requests for some seconds, and wait for the last answers."""
        stop = time.monotonic() + seconds
        chances = [random.Random(1000 * seed + number) for number in range(CLIENTS)]
        await asyncio.gather(*(self.act(chance, stop) for chance in chances))

    async def act(self, chance: random.Random, stop: float) -> None:
        """The requests of one client."""
        while time.monotonic() < stop:
            kind = chance.choices(list(SHARES), list(SHARES.values()))[0]
            status, content = await self.send(kind, chance)
            self.statuses[kind, status] += 1
            if status not in ANSWERS[kind] or (
                status and ("error" in json.loads(content)) == (status == 200)
            ):
                self.wrong.append(f"{kind}: {status} {content[:200]!r}")
            if status == 503:
                await asyncio.sleep(chance.uniform(0, 1))

    async def send(self, kind: str, chance: random.Random) -> tuple[int, bytes]:
        """One request of some kind."""
        sentence = " ".join(chance.choices(WORDS, k=chance.randint(1, 12)))
        leave_after = None
        if kind == "translate":
            request = post("/api/translate", {"source": [sentence]})
        elif kind in ("heavy", "leave"):
            request = post("/api/translate", HEAVY)
            leave_after = chance.uniform(0, 0.5) if kind == "leave" else None
        elif kind == "align":
            request = post("/api/align", {"pairs": [{"source": sentence, "target": "the dog sees the cat"}]})
        elif kind == "invalid":
            request = post(
                "/api/translate", {"source": [sentence], "beam": chance.choice([True, "5", 0, None, 51]) or 0}
            )
        elif kind == "slow":
            request = post("/api/translate", b'{"source": [', length=100)
        else:
            request = post("/api/translate", b" " * 1_500_000)
            if kind == "chunked":
                head, _, body = request.partition(b"\r\n\r\n")
                head = head.replace(b"Content-Length: 1500000", b"Transfer-Encoding: chunked")
                request = head + b"\r\n\r\n" + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        return await exchange(self.port, request, leave_after=leave_after)


def load(lab: Lab, scale: float) -> Tally:
    """Every request is answered, health within a second; memory and translations are afterwards as before."""
    tally = lab.tally("requests under load", "answered as they should be")
    run = lab.finished("objective.name=variational-sample", "training.max_steps=40")
    seconds = max(2.0, scale * SECONDS)
    with served(lab, run, "--deadline", 20) as server:
        sample = post("/api/translate", {"source": [" ".join(WORDS)], "nbest": 2})
        expected = ask(server.port, sample)
        asyncio.run(Load(server.port).run(max(2.0, seconds / 10), seed=0))
        before = settled_memory(server)
        found = Load(server.port)
        probes = lab.path("probes")
        probe = lab.start(lambda: asyncio.run(watch(server.port, seconds, probes)))
        asyncio.run(found.run(seconds, seed=1))
        probe.wait()
        after = settled_memory(server)
        times = [json.loads(line) for line in probes.read_text().splitlines()]
        count(tally, found, times)
        growth = after / before - 1
        tally.check([f"{before:.0f} MB before, {after:.0f} MB after"] if growth > GROWTH else [])
        tally.check([] if ask(server.port, sample) == expected else ["another translation than before"])
        tally.check(server.end().complaints(143))
    answered = sum(number for (_, status), number in found.statuses.items() if status == 200)
    tally.note = (
        f"{seconds:.0f} s, {answered} of {sum(found.statuses.values())} requests computed; health and description "
        f"within {max(t for t, _ in times):.2f} s; memory {before:.0f} MB before and {after:.0f} MB after"
    )
    return tally


def count(tally: Tally, found: Load, times: list[tuple[float, int]]) -> None:
    """Count every request and every probe."""
    for wrong in found.wrong:
        tally.check([wrong])
    tally.tried += sum(found.statuses.values()) - len(found.wrong)
    for seconds, status in times:
        tally.check([f"health: {status} after {seconds:.2f} s"] if status != 200 or seconds > LATE else [])
    missing = [kind for kind in SHARES if not any(kind == sent for sent, _ in found.statuses)]
    if missing and sum(found.statuses.values()) > 1000:
        tally.check([f"no request of the kinds {missing}"])


async def watch(port: int, seconds: float, out: Path) -> None:
    """Ask for health and description all the time, from a process of its own, and write how long it takes."""
    stop = time.monotonic() + seconds
    with out.open("w") as file:
        while time.monotonic() < stop:
            for path in ("/api/health", "/api/about"):
                file.write(json.dumps(await seconds_of(port, get(path))) + "\n")
            await asyncio.sleep(0.1)


def settled_memory(server: Served) -> float:
    """The memory of a server that has nothing to do."""
    time.sleep(1)
    return server.memory()
