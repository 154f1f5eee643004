"""Tries every promise in a process of its own and counts how often it is kept."""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from faults import damage, interruptions, load, refusals, serving, storage
from faults.lab import Lab, OutOfTimeError, Tally

PROMISES: dict[str, Callable[[Lab, float], Tally]] = {
    "resume": interruptions.resume,
    "processes": interruptions.processes,
    "kill": interruptions.kill,
    "instants": interruptions.instants,
    "sigterm": interruptions.sigterm,
    "disk": storage.disk,
    "damage": damage.damage,
    "commands": damage.damage_met_by_commands,
    "foreign": damage.foreign,
    "pickle": damage.pickle_in_place,
    "occupied": refusals.occupied,
    "diverged": refusals.diverged,
    "config": damage.config,
    "metrics": damage.metrics,
    "cache": damage.cache,
    "serve": serving.serve,
    "schema": serving.schema,
    "load": load.load,
}
LONGEST = ("load", "kill", "processes", "diverged")
"""Promises that take longest and start first."""
SHOWN = 5
"""Largest number of broken cases printed for one promise."""
MEMORY = Path("/dev/shm")
"""Runs may be kept in memory, because killing a process loses nothing that was written."""


def main(description: str) -> int:
    """Try the chosen promises and return 1 if one is broken."""
    options = parse_options(description)
    began, figures = time.monotonic(), {}
    chosen = sorted(options.only or PROMISES, key=lambda name: name not in LONGEST)
    # Each promise gets a new process, so that children are forked from one that has computed nothing.
    with ProcessPoolExecutor(options.jobs, get_context("spawn"), max_tasks_per_child=1) as pool:
        tasks = [pool.submit(try_promise, name, options, began + 60 * options.minutes) for name in chosen]
        for done in as_completed(tasks):
            name, tally, seconds = done.result()
            figures[name] = tally
            print(f"{tally.line()}  [{name}, {seconds:.0f} s]", flush=True)
            for case in tally.broken[:SHOWN]:
                print(f"    {case}", flush=True)
            if len(tally.broken) > SHOWN:
                print(f"    and {len(tally.broken) - SHOWN} more", flush=True)
    minutes = (time.monotonic() - began) / 60
    print(f"{sum(t.tried for t in figures.values())} injections in {minutes:.1f} minutes", flush=True)
    if options.markdown:
        write_figures(options.markdown, figures)
    return int(not all(tally.holds for tally in figures.values()))


def try_promise(name: str, options: argparse.Namespace, deadline: float) -> tuple[str, Tally, float]:
    """Put one promise to the test, in a folder of its own."""
    began = time.monotonic()
    place = options.folder or (MEMORY if MEMORY.is_dir() else None)
    with tempfile.TemporaryDirectory(prefix="faults-", dir=place) as folder:
        lab = Lab(Path(folder), seconds=deadline - began)
        try:
            tally = PROMISES[name](lab, options.scale)
        except OutOfTimeError:
            tally = lab.current
            tally.check([f"not done within {options.minutes:g} minutes"])
        except Exception as error:
            tally = lab.current
            tally.check([f"{type(error).__name__}: {error}"])
    return name, tally, time.monotonic() - began


def parse_options(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--only", action="append", choices=list(PROMISES), help="repeatable")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the injections")
    parser.add_argument("--minutes", type=float, default=20.0, help="a bound on everything together")
    parser.add_argument("--jobs", type=int, default=2, help="promises at a time")
    parser.add_argument("--folder", type=Path, help="where runs are made and thrown away")
    parser.add_argument("--markdown", type=Path, metavar="PAGE", help="write the figures into a page")
    return parser.parse_args()


def write_figures(page: Path, figures: dict[str, Tally]) -> None:
    """Replace the rows of the page's table that were measured."""
    text = page.read_text(encoding="utf-8")
    for name, tally in figures.items():
        kept = f"{tally.kept} of {tally.tried}" + (f"; {tally.note}" if tally.note else "")
        row = f"| `{name}` | {tally.skipped or kept} |"
        text, found = re.subn(rf"^\| `{name}` \| [^|]* \|$", row, text, flags=re.MULTILINE)
        if not found:
            raise SystemExit(f"{page} has no row for {name}")
    page.write_text(text, encoding="utf-8")
