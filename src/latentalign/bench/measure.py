"""The measurement: each row has its own process, rows take turns in rounds, one process computes at a time."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from statistics import median
from typing import Any

import torch

from latentalign.bench.rows import Row, label
from latentalign.bench.sentences import FixedLength
from latentalign.bench.subjects import Decoding, Gemm, Training
from latentalign.bench.worker import Child, ChildFailed, Factory, Worker, WorkerGroup
from latentalign.bench.workload import Workload

GROWTH_ROWS = ("soft", "marginal", "variational-sample")
PREDICT = ("soft", "kmax:5", "exact")
PREDICT_TRAINED = ("certified:0.01",)
"""The sharper the prior, the less this costs, so it is measured on trained models."""
GROWTH_BATCH = 8

Start = Callable[[str, Factory], Worker]
Report = Callable[[str], None]
"""Receives what is measured next."""


@dataclass(frozen=True)
class Effort:
    """How much is measured, and how long."""

    rounds: int = 7
    batches: int = 4
    """Batches in a pass; a turn consists of whole passes."""
    turn: float = 1.5
    """Minimum time of a turn in seconds."""
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
    """Workload, rows and effort of a measurement."""

    workload: Workload
    rows: Sequence[Row]
    effort: Effort = FULL
    predict: Sequence[str] = PREDICT
    threads: int = 2

    @property
    def growth_rows(self) -> list[Row]:
        """Rows that are also measured at growing sizes."""
        return [row for row in self.rows if row.name in GROWTH_ROWS and not row.objective.options]

    @property
    def steps(self) -> int:
        """The number of progress reports."""
        e = self.effort
        points = len(self.growth_rows) * (len(e.lengths) + len(e.vocabularies))
        ways = len(self.predict) * len(e.beams) * len(e.decode_batches)
        return len(self.rows) * (e.rounds + 2) + points + ways * e.decode_rounds


def measure(plan: Plan, report: Report, *, start: Start = Child) -> dict[str, Any]:
    """The whole result as a JSON object; `failures` holds error messages by name."""
    failures: dict[str, str] = {}
    rows = measure_rows(plan, report, start=start, failures=failures)
    return {
        **rows,
        "growth": measure_growth(plan, report, start=start, failures=failures),
        "decode": measure_decode(plan, report, start=start, failures=failures),
        "failures": failures,
        "workload": plan.workload.about(),
        "threads": plan.threads,
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
    }


def measure_rows(plan: Plan, report: Report, *, start: Start, failures: dict[str, str]) -> dict[str, Any]:
    """The GEMM rate and all rows: medians over rounds in which each has a turn."""
    effort = plan.effort
    rows = {label(row.name, row.options): row for row in plan.rows}
    jobs: dict[str, Factory] = {
        name: partial(Training, plan.workload, row, threads=plan.threads, batches=effort.batches)
        for name, row in rows.items()
    }
    speeds: dict[str, list[float]] = {name: [] for name in rows}
    with WorkerGroup({"matrix products": partial(Gemm, plan.threads), **jobs}, start=start) as workers:
        for name in rows:
            report(f"{name}: warming up")
            workers.ask(name, "warm_up")
        rates = []
        for number in range(effort.rounds):
            rates.append(workers.ask("matrix products", "rate"))
            if rates[-1] is None:
                raise ChildFailed(workers.failures["matrix products"])
            for name in rows:
                report(f"{name}: round {number + 1} of {effort.rounds}")
                speeds[name].append(workers.ask(name, "turn", effort.turn))
        found = []
        for name, row in rows.items():
            report(f"{name}: counting")
            memory, counts = workers.ask(name, "peak"), workers.ask(name, "counts")
            if counts is not None:
                record = {"objective": row.name, "options": row.options}
                found.append(record | figures(speeds[name], memory, counts, rates=rates, soft=speeds["soft"]))
    failures |= workers.failures
    return {"gemm_gflops": round(median(rates), 2), "rows": found}


def figures(
    speeds: Sequence[float],
    memory: float,
    counts: dict[str, float],
    *,
    rates: Sequence[float],
    soft: Sequence[float | None],
) -> dict[str, Any]:
    """A row's medians. Ratios are formed within each round, because all rows see the same noise there."""
    shares = [speed * counts["gflop_per_token"] / rate for speed, rate in zip(speeds, rates, strict=True)]
    costs = [own / speed for own, speed in zip(soft, speeds, strict=True) if own is not None]
    return {
        "tokens_per_second": round(median(speeds), 1),
        "peak_memory_mb": round(memory, 1),
        "gemm_share": round(median(shares), 4),
        "cost_vs_soft": round(median(costs), 4) if len(costs) == len(speeds) else None,
        **{name: float(f"{value:.6g}") for name, value in counts.items()},
    }


def measure_growth(
    plan: Plan, report: Report, *, start: Start, failures: dict[str, str]
) -> list[dict[str, Any]]:
    """Speed and memory at growing lengths and vocabularies, each point in its own process."""
    base, effort = plan.workload.random(), plan.effort
    sizes = [("T", n, replace(base, lengths=FixedLength(n), batch=GROWTH_BATCH)) for n in effort.lengths]
    sizes += [("V", n, replace(base, vocabulary=n)) for n in effort.vocabularies]
    found = []
    for axis, size, workload in sizes:
        jobs = {
            f"{label(row.name, row.options)} at {axis} = {size}": partial(
                Training, workload, row, threads=plan.threads, batches=1
            )
            for row in plan.growth_rows
        }
        with WorkerGroup(jobs, start=start) as workers:
            for name, row in zip(jobs, plan.growth_rows, strict=True):
                report(name)
                workers.ask(name, "warm_up")
                speed, memory = workers.ask(name, "turn", effort.turn), workers.ask(name, "peak")
                workers.stop(name)
                if memory is not None:
                    point = {"axis": axis, "size": size, "objective": label(row.name, row.options)}
                    measured = {"tokens_per_second": round(speed, 1), "peak_memory_mb": round(memory, 1)}
                    found.append({**point, **measured})
        failures |= workers.failures
    return found


def measure_decode(
    plan: Plan, report: Report, *, start: Start, failures: dict[str, str]
) -> list[dict[str, Any]]:
    """Sentences per second for every predictive, beam and batch: medians over rounds."""
    effort = plan.effort
    make = partial(Decoding, plan.workload, threads=plan.threads, sentences=effort.sentences)
    ways = list(product(plan.predict, effort.beams, effort.decode_batches))
    speeds: dict[tuple[str, int, int], list[float]] = {way: [] for way in ways}
    # One process for each predictive, so that the others survive a failure.
    with WorkerGroup({f"decoding {how}": make for how in plan.predict}, start=start) as workers:
        for _, way in product(range(effort.decode_rounds), ways):
            how, beam, batch = way
            report(f"decoding {how}: beam {beam}, batch {batch}")
            speed = workers.ask(f"decoding {how}", "speed", how, beam, batch)
            if speed is not None:
                speeds[way].append(speed)
    failures |= workers.failures
    return [
        {"predict": how, "beam": beam, "batch": batch, "sentences_per_second": round(median(speed), 2)}
        for (how, beam, batch), speed in speeds.items()
        if speed
    ]
