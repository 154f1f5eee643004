"""Sentences per second that `latentalign serve` translates: one request at a time, and many at once.

    python benchmarks/serving.py RUN --sentences FILE [--count 200] [--clients 32] [--rounds 3] [--beam N]

Every request has one sentence. The server translates waiting requests together, so many clients get more sentences per
second than one. Both ways take turns, because the speed of a machine changes while others use it; the medians are
compared. The translations have to be the same text, and the largest difference of a log-probability is printed.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def serve(run: Path) -> Iterator[int]:
    """Serve a run on a free port."""
    command = [sys.executable, "-m", "latentalign", "serve", str(run), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            announcement = server.stderr.readline()
            found = re.search(r"http://127.0.0.1:(\d+)", announcement)
            if found is None:
                raise SystemExit(announcement)
            yield int(found[1])
        finally:
            server.terminate()


def translate(port: int, sentences: list[str], options: dict[str, Any]) -> list[dict[str, Any]]:
    """The translations of some sentences, one request after the other on one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    found = []
    for sentence in sentences:
        body = json.dumps({"source": [sentence], **options})
        connection.request("POST", "/api/translate", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        content = json.load(response)
        if response.status != 200:
            raise SystemExit(f"{response.status}: {content}")
        found.append(content["translations"][0][0])
    connection.close()
    return found


def measure(
    port: int, sentences: list[str], clients: int, options: dict[str, Any]
) -> tuple[float, list[dict[str, Any]]]:
    """Sentences per second with some clients at once, and the translations in order."""
    shares = [sentences[start::clients] for start in range(clients)]
    began = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        by_client = list(pool.map(lambda share: translate(port, share, options), shares))
    speed = len(sentences) / (time.perf_counter() - began)
    return speed, [by_client[i % clients][i // clients] for i in range(len(sentences))]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument(
        "--sentences", type=Path, required=True, help="a file with one source sentence per line"
    )
    parser.add_argument("--count", type=int, default=200, help="sentences of a round")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beam", type=int, help="default: as in the run")
    given = parser.parse_args()
    lines = given.sentences.read_text(encoding="utf-8").split("\n")
    sentences = [line for line in lines if line.strip()][: given.count]
    options = {} if given.beam is None else {"beam": given.beam}
    alone, together = [], []
    with serve(given.run) as port:
        measure(port, sentences[:20], 1, options)  # the first requests are slower
        for _ in range(given.rounds):
            speed, expected = measure(port, sentences, 1, options)
            alone.append(speed)
            speed, found = measure(port, sentences, given.clients, options)
            together.append(speed)
    differing = sum(a["text"] != b["text"] for a, b in zip(expected, found, strict=True))
    gap = max(abs(a["log_prob"] - b["log_prob"]) for a, b in zip(expected, found, strict=True))
    one, many = statistics.median(alone), statistics.median(together)
    print(f"one at a time: {one:.1f} sentences per second")
    print(f"{given.clients} clients: {many:.1f} sentences per second, {many / one:.1f} times as many")
    print(f"{differing} of {len(found)} translations differ; log-probabilities differ by at most {gap:.1e}")


if __name__ == "__main__":
    main()
