"""The measurement: every row in its own process, in rounds, one process at work at a time."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from statistics import median
from typing import Any

import torch

from latentalign.bench.rows import label
from latentalign.bench.sentences import Same
from latentalign.bench.subjects import Decoding, Gemm, Training
from latentalign.bench.worker import Asked, Child, ChildFailed, Crew, Make
from latentalign.bench.workload import Workload
from latentalign.training.objective import ObjectiveConfig

GROWING = ("soft", "marginal", "variational-sample")
PREDICT = ("soft", "kmax:5", "exact")
PREDICT_TRAINED = ("certified:0.01",)
"""What costs the less the sharper the model is."""
SENTENCES_OF_GROWTH = 8

Start = Callable[[str, Make], Asked]
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Effort:
    """How long and how much is measured."""

    rounds: int = 7
    batches: int = 4
    """Batches of a pass; a turn is made of whole passes."""
    turn: float = 1.5
    """Seconds that a turn takes at least."""
    lengths: tuple[int, ...] = (10, 20, 40, 80, 160)
    vocabularies: tuple[int, ...] = (2000, 8000, 32000)
    decode_rounds: int = 3
    sentences: int = 128
    beams: tuple[int, ...] = (1, 5, 10)
    decode_batches: tuple[int, ...] = (2, 32, 64)


FULL = Effort()
QUICK = Effort(
    rounds=3,
    batches=1,
    turn=0.5,
    lengths=(10, 40),
    vocabularies=(2000, 8000),
    decode_rounds=1,
    sentences=64,
    decode_batches=(2, 32),
)


@dataclass(frozen=True)
class Plan:
    """What is measured, on what, and how thoroughly."""

    workload: Workload
    rows: Sequence[ObjectiveConfig]
    effort: Effort = FULL
    predict: Sequence[str] = PREDICT
    threads: int = 2

    @property
    def growing(self) -> list[ObjectiveConfig]:
        return [row for row in self.rows if row.name in GROWING and not row.options]

    @property
    def steps(self) -> int:
        """How often `tell` will be told."""
        e = self.effort
        points = len(self.growing) * (len(e.lengths) + len(e.vocabularies))
        ways = len(self.predict) * len(e.beams) * len(e.decode_batches)
        return len(self.rows) * (e.rounds + 2) + points + ways * e.decode_rounds


def measure(plan: Plan, tell: Tell, *, start: Start = Child) -> dict[str, Any]:
    """Everything as one JSON object; what failed is under `failures`, by name."""
    failures: dict[str, str] = {}
    rows = measure_rows(plan, tell, start=start, failures=failures)
    return {
        **rows,
        "growth": measure_growth(plan, tell, start=start, failures=failures),
        "decode": measure_decode(plan, tell, start=start, failures=failures),
        "failures": failures,
        "workload": plan.workload.about(),
        "threads": plan.threads,
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
    }


def measure_rows(plan: Plan, tell: Tell, *, start: Start, failures: dict[str, str]) -> dict[str, Any]:
    """The GEMM rate and every row: medians over rounds in which all of them have a turn."""
    effort = plan.effort
    rows = {label(row.name, row.options): row for row in plan.rows}
    jobs: dict[str, Make] = {
        name: partial(Training, plan.workload, row, threads=plan.threads, batches=effort.batches)
        for name, row in rows.items()
    }
    speeds: dict[str, list[float]] = {name: [] for name in rows}
    with Crew({"matrix products": partial(Gemm, plan.threads), **jobs}, start=start) as crew:
        for name in rows:
            tell(f"{name}: warming up")
            crew.ask(name, "warm_up")
        rates = []
        for number in range(effort.rounds):
            rates.append(crew.ask("matrix products", "rate"))
            if rates[-1] is None:
                raise ChildFailed(crew.failures["matrix products"])
            for name in rows:
                tell(f"{name}: round {number + 1} of {effort.rounds}")
                speeds[name].append(crew.ask(name, "turn", effort.turn))
        found = []
        for name, row in rows.items():
            tell(f"{name}: counting")
            memory, counts = crew.ask(name, "peak"), crew.ask(name, "counts")
            if counts is not None:
                record = {"objective": row.name, "options": row.options}
                found.append(record | figures(speeds[name], memory, counts, rates=rates, soft=speeds["soft"]))
    failures |= crew.failures
    return {"gemm_gflops": round(median(rates), 2), "rows": found}


def figures(
    speeds: Sequence[float],
    memory: float,
    counts: dict[str, float],
    *,
    rates: Sequence[float],
    soft: Sequence[float | None],
) -> dict[str, Any]:
    """A row's medians; what is relative is so within each round, where all saw the same noise."""
    shares = [speed * counts["gflop_per_token"] / rate for speed, rate in zip(speeds, rates, strict=True)]
    costs = [own / speed for own, speed in zip(soft, speeds, strict=True) if own is not None]
    return {
        "tokens_per_second": round(median(speeds), 1),
        "peak_memory_mb": round(memory, 1),
        "gemm_share": round(median(shares), 4),
        "cost_vs_soft": round(median(costs), 4) if len(costs) == len(speeds) else None,
        **{name: float(f"{value:.6g}") for name, value in counts.items()},
    }


def measure_growth(plan: Plan, tell: Tell, *, start: Start, failures: dict[str, str]) -> list[dict[str, Any]]:
    """Speed and memory at growing lengths and vocabularies, each point in a process of its own."""
    base, effort = plan.workload.random(), plan.effort
    sizes = [("T", n, replace(base, lengths=Same(n), batch=SENTENCES_OF_GROWTH)) for n in effort.lengths]
    sizes += [("V", n, replace(base, vocabulary=n)) for n in effort.vocabularies]
    found = []
    for axis, size, workload in sizes:
        jobs = {
            f"{row.name} at {axis} = {size}": partial(
                Training, workload, row, threads=plan.threads, batches=1
            )
            for row in plan.growing
        }
        with Crew(jobs, start=start) as crew:
            for name, row in zip(jobs, plan.growing, strict=True):
                tell(name)
                crew.ask(name, "warm_up")
                speed, memory = crew.ask(name, "turn", effort.turn), crew.ask(name, "peak")
                crew.dismiss(name)
                if memory is not None:
                    point = {"axis": axis, "size": size, "objective": row.name}
                    measured = {"tokens_per_second": round(speed, 1), "peak_memory_mb": round(memory, 1)}
                    found.append({**point, **measured})
        failures |= crew.failures
    return found


def measure_decode(plan: Plan, tell: Tell, *, start: Start, failures: dict[str, str]) -> list[dict[str, Any]]:
    """Sentences a second of every way to predict, beam and batch: medians over rounds through all of them."""
    effort = plan.effort
    make = partial(Decoding, plan.workload, threads=plan.threads, sentences=effort.sentences)
    ways = list(product(plan.predict, effort.beams, effort.decode_batches))
    speeds: dict[tuple[str, int, int], list[float]] = {way: [] for way in ways}
    # A process for each way to predict, so that one that fails does not lose the others.
    with Crew({f"decoding {how}": make for how in plan.predict}, start=start) as crew:
        for _, way in product(range(effort.decode_rounds), ways):
            how, beam, batch = way
            tell(f"decoding {how}: beam {beam}, batch {batch}")
            speed = crew.ask(f"decoding {how}", "speed", how, beam, batch)
            if speed is not None:
                speeds[way].append(speed)
    failures |= crew.failures
    return [
        {"predict": how, "beam": beam, "batch": batch, "sentences_per_second": round(median(speed), 2)}
        for (how, beam, batch), speed in speeds.items()
        if speed
    ]
