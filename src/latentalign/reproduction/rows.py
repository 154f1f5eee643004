"""Rows of a table: each is trained and evaluated in a process of its own, and never twice."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentalign.errors import InputError, LatentAlignError
from latentalign.progress import Bar, Bars, warn
from latentalign.reproduction.experiment import Row
from latentalign.reproduction.plan import Plan, require_same_settings
from latentalign.reproduction.processes import (
    CommandFailed,
    end_commands_on_interrupt,
    is_stopping,
    run_command,
)
from latentalign.reproduction.results import finite_or_none, read_results
from latentalign.reproduction.warm_starts import WarmStarts
from latentalign.storage import write_json
from latentalign.training.run import Run, is_number

PLAIN_SECONDS = 60.0
"""Seconds between plain lines about a row that is being trained."""
COSTS = ("seconds", "tokens_per_second", "peak_memory_mb", "epochs", "steps", "warm_start", "samples")
"""Keys of `train`'s output that are copied into the results."""


@dataclass(frozen=True)
class Failure:
    """A row that could not be trained or evaluated, and the exit code of the command that failed."""

    row: str
    seed: int
    reason: str
    code: int

    def __str__(self) -> str:
        return f"{self.row}, seed {self.seed}: {self.reason}"


def train_rows(plan: Plan) -> tuple[list[dict[str, Any]], list[Failure]]:
    """Train and evaluate all rows that are not finished; the results of all finished rows, and the failures."""
    require_same_settings(plan)
    runs = plan.training_runs()
    with Bars() as bars, ThreadPoolExecutor(plan.jobs) as pool:
        total, warm_starts = bars.add("rows", len(runs), interval=math.inf), WarmStarts(plan)

        def train(run: tuple[Row, int]) -> Failure | None:
            failure = train_row(plan, *run, warm_starts=warm_starts, bars=bars)
            total.update(done=total.done + 1)
            return failure

        with end_commands_on_interrupt(), cancel_on_interrupt(pool):
            failures = [failure for failure in pool.map(train, runs) if failure is not None]
    results = read_results(plan.out, plan.row_order)
    if not results:
        error = InputError(f"no row could be trained: {'; '.join(map(str, failures))}")
        error.exit_code = failures[0].code
        raise error
    return results, failures


@contextmanager
def cancel_on_interrupt(pool: ThreadPoolExecutor) -> Iterator[None]:
    """Start no further work if the block is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        pool.shutdown(wait=False, cancel_futures=True)
        raise


def count_finished(plan: Plan) -> str:
    """How many rows are finished, in words."""
    runs = plan.training_runs()
    finished = sum(plan.result_file(row.name, seed).is_file() for row, seed in runs)
    return f"{finished} of {len(runs)} rows are finished, and unfinished ones continue from their last checkpoint"


def train_row(plan: Plan, row: Row, seed: int, *, warm_starts: WarmStarts, bars: Bars) -> Failure | None:
    """Train and evaluate a row unless it is finished; its failure if there was one."""
    bar = bars.add(f"{row.name}, seed {seed}", plan.epochs, unit="epochs", interval=PLAIN_SECONDS)
    path, settings = plan.result_file(row.name, seed), plan.settings_file(row.name, seed)
    if path.is_file():
        bar.finish("finished before")
        return None
    try:
        for file in (path, settings):
            file.parent.mkdir(parents=True, exist_ok=True)
        write_json(settings, plan.settings(row))
        warm_starts.provide(row, seed, lambda run: show_progress(run, bar, warm_start=True))
        record = measure_row(plan, row, seed, lambda: show_progress(plan.run_folder(row.name, seed), bar))
        write_json(path, record)
    except (CommandFailed, OSError, ValueError, LatentAlignError) as error:
        failure = Failure(row.name, seed, str(error), getattr(error, "exit_code", 1))
        bar.finish("stopped" if is_stopping() else "failed")
        if not is_stopping():
            warn(f"failed: {failure}")
        return failure
    figure = next((name for name in plan.experiment.figures if isinstance(record[name], float)), None)
    news = f"{figure} {record[figure]:.3f}, finished" if figure else "finished"
    bar.finish(news)
    return None


def measure_row(plan: Plan, row: Row, seed: int, report: Callable[[], None]) -> dict[str, Any]:
    """Train one row and evaluate it on the test set."""
    experiment, run = plan.experiment, plan.run_folder(row.name, seed)
    log = plan.log_file(f"{row.name}-{seed}")
    trained = run_command(train_arguments(plan, row, seed), log, report)
    evaluate = ["evaluate", str(run), "--json", f"--device={plan.device}"]
    path = plan.details_file(row.name, seed)
    if experiment.details:
        path.parent.mkdir(parents=True, exist_ok=True)
        evaluate += [f"--details={path}", "--overwrite", *experiment.details]
    measured = run_command(evaluate, log, report)
    details = json.loads(path.read_bytes()) if experiment.details else {}
    return {
        "row": row.name,
        "objective": row.objective,
        "seed": seed,
        **{name: finite_or_none(measured.get(name)) for name in experiment.figures},
        **{name: trained.get(name) for name in COSTS},
        **{name: details.get(name) for name in experiment.detail_figures},
    }


def train_arguments(plan: Plan, row: Row, seed: int) -> list[str]:
    """The command line that trains a row."""
    overrides: Sequence[str] = (*plan.overrides, *row.overrides, f"training.seed={seed}")
    return [
        "train",
        plan.recipe,
        f"--out={plan.run_folder(row.name, seed)}",
        f"--objective={row.objective}",
        "--resume",
        *(f"--set={override}" for override in overrides),
        "--json",
    ]


def show_progress(run: Path, bar: Bar, *, warm_start: bool = False) -> None:
    """Show on a bar how far a training run is, from its metrics."""
    history = Run(run).history()
    if history:
        prefix = ["warm start"] if warm_start else []
        epochs = latest(history, "epochs") or 0.0
        bar.update(done=0.0 if warm_start else epochs, text=", ".join([*prefix, *latest_figures(history)]))


def latest_figures(history: Sequence[Mapping[str, Any]]) -> list[str]:
    """The latest figures of a training run, those that its metrics have."""
    formats = {"ppl": "ppl {}", "bound": "bound {}", "tokens_per_second": "{} tokens/s"}
    found = {name: latest(history, name) for name in formats}
    return [formats[name].format(short(value)) for name, value in found.items() if value is not None]


def short(value: float) -> str:
    """A number for a progress line: a bound may be very large at the start of training."""
    if value < 1e3:
        return f"{value:.3f}"
    return f"{value:,.0f}" if value < 1e6 else f"{value:.2g}"


def latest(history: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """The latest number under a key of the metrics; None if there is none."""
    return next((float(r[name]) for r in reversed(history) if is_number(r.get(name))), None)
