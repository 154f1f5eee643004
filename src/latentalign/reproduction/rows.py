"""Rows of a table: each is trained and evaluated in a process of its own, and never twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from latentalign.errors import InputError, LatentAlignError
from latentalign.reproduction.experiment import Row
from latentalign.reproduction.plan import Plan, require_same_settings
from latentalign.reproduction.processes import CommandFailed, run_command
from latentalign.reproduction.results import finite_or_none, read_results
from latentalign.reproduction.warm_starts import WarmStarts
from latentalign.storage import write_json
from latentalign.training.run import Run

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
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[news]}"))
    with (
        Progress(*columns, TimeElapsedColumn(), console=console) as bars,
        ThreadPoolExecutor(plan.jobs) as pool,
    ):
        total = bars.add_task("rows", total=len(runs), news=f"0 of {len(runs)}")
        warm_starts = WarmStarts(plan)

        def train(run: tuple[Row, int]) -> Failure | None:
            failure = train_row(plan, *run, warm_starts=warm_starts, bars=bars)
            bars.advance(total)
            bars.update(total, news=f"{round(bars.tasks[total].completed)} of {len(runs)}")
            return failure

        failures = [failure for failure in pool.map(train, runs) if failure is not None]
    results = read_results(plan.out, plan.row_order)
    if not results:
        error = InputError(f"no row could be trained: {'; '.join(map(str, failures))}")
        error.exit_code = failures[0].code
        raise error
    for failure in failures:
        console.print(f"failed: {failure}", highlight=False, markup=False)
    return results, failures


def train_row(plan: Plan, row: Row, seed: int, *, warm_starts: WarmStarts, bars: Progress) -> Failure | None:
    """Train and evaluate a row unless it is finished; its failure if there was one."""
    bar = bars.add_task(f"  {row.name}, seed {seed}", total=plan.epochs, news="")
    path, settings = plan.result_file(row.name, seed), plan.settings_file(row.name, seed)
    if path.is_file():
        bars.update(bar, completed=plan.epochs, news="finished before")
        return None
    try:
        for file in (path, settings):
            file.parent.mkdir(parents=True, exist_ok=True)
        write_json(settings, plan.settings(row))
        warm_starts.provide(row, seed, lambda run: show_progress(run, bars, bar, warm_start=True))
        record = measure_row(
            plan, row, seed, lambda: show_progress(plan.run_folder(row.name, seed), bars, bar)
        )
        write_json(path, record)
    except (CommandFailed, OSError, ValueError, LatentAlignError) as error:
        bars.update(bar, news="failed")
        return Failure(row.name, seed, str(error), getattr(error, "exit_code", 1))
    figure = next((name for name in plan.experiment.figures if isinstance(record[name], float)), None)
    news = f"{figure} {record[figure]:.3f}, finished" if figure else "finished"
    bars.update(bar, completed=plan.epochs, news=news)
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
        **{name: trained[name] for name in COSTS},
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


def show_progress(run: Path, bars: Progress, bar: TaskID, *, warm_start: bool = False) -> None:
    """Show on a bar how far a training run is, from its metrics."""
    history = Run(run).history()
    if not history:
        return
    validations = [record for record in history if record["kind"] == "validation"]
    updates = [record for record in history if record["kind"] == "training"]
    speed = updates[-1]["tokens_per_second"] if updates else 0.0
    perplexity = f"ppl {validations[-1]['ppl']:.3f}, " if validations else ""
    prefix = "warm start: " if warm_start else ""
    news = f"{prefix}{perplexity}bound {history[-1]['bound']:.3f}, {speed:,.0f} tokens/s"
    bars.update(bar, completed=0 if warm_start else len(validations), news=news)
