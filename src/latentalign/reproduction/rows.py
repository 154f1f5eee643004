"""Rows of a table: each trained and evaluated in a process of its own, and never twice."""

from __future__ import annotations

import ctypes
import json
import math
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from latentalign import config as recipes
from latentalign.errors import InputError, LatentAlignError
from latentalign.storage import write_bytes, write_json
from latentalign.training.run import Run
from latentalign.training.session import Recipe, first_recipe

C = TypeVar("C", bound=Recipe)


@dataclass(frozen=True)
class Row:
    """A line of a table: an objective, and what is set differently from the recipe."""

    name: str
    objective: str
    overrides: tuple[str, ...] = ()


LONG = ("variational-enum", "sum-and-sample", "relaxed", "marginal", "hard-enum", "semi-amortized", "svi")
"""Objectives whose trainings take long, the longest first."""


@dataclass(frozen=True)
class Plan:
    """What to train: a recipe, rows and seeds, and where everything goes."""

    recipe: str
    rows: Sequence[Row]
    seeds: Sequence[int]
    out: Path
    figures: tuple[str, ...]
    """What `evaluate` measures that goes into the results."""
    config: Recipe
    """The recipe with what is set differently in all rows."""
    overrides: tuple[str, ...] = ()
    jobs: int = 1
    """Rows trained at a time."""
    details: tuple[str, ...] = ()
    """Options of `evaluate` that make it write details; none, and there are no details."""
    copied: tuple[str, ...] = ()
    """Keys of the details that go into the results."""
    order: tuple[str, ...] = ()
    """Names of all rows that results may have, in the order of the tables."""

    def run(self, row: str, seed: int) -> Path:
        return self.out / "runs" / f"{row}-{seed}"

    def finished(self, row: str, seed: int) -> Path:
        return self.out / "rows" / f"{row}-{seed}.json"

    def warm_start(self, objective: str, seed: int) -> Path:
        """Where the rows of a seed have what they train first."""
        return self.out / "warm-starts" / f"{objective}-{seed}"

    def details_of(self, row: str, seed: int) -> Path:
        return self.out / "details" / f"{row}-{seed}.json"

    def settings_of(self, row: str, seed: int) -> Path:
        """Where it is written how a row is trained, before anything is."""
        return self.out / "settings" / f"{row}-{seed}.json"

    def work(self) -> list[tuple[Row, int]]:
        """Every training; of several at a time the longest begin first, so that none is left alone at the end."""
        found = [(row, seed) for row in self.rows for seed in self.seeds]
        place = {name: i for i, name in enumerate(LONG)}
        return (
            sorted(found, key=lambda item: place.get(item[0].objective, len(LONG)))
            if self.jobs > 1
            else found
        )

    @property
    def epochs(self) -> int:
        return self.config.training.epochs

    def settings(self, row: Row) -> dict[str, Any]:
        """What decides a row's figures: what all rows share, and what is this row's own."""
        shared = recipes.flatten(self.config)
        shared = {name: value for name, value in shared.items() if name not in FREE}
        text = json.dumps(shared).replace(str(self.out), "OUT")  # the folder may be moved
        return {"shared": json.loads(text), "own": [row.objective, *sorted(row.overrides)]}

    @property
    def device(self) -> str:
        """Where rows are trained, evaluated and diagnosed."""
        return self.config.training.device


FREE = {"objective.name", "training.seed", "training.threads", "training.checkpoint_steps", "training.log_steps",
        "training.device"}  # fmt: skip
"""Settings that are the row's own or change no figure."""


def require_test(recipe: str, config: C) -> C:
    """The recipe, if it has all that rows need."""
    if config.data.test is None:  # type: ignore[attr-defined]
        raise InputError(f"{recipe}: rows are compared on a test set, and the recipe has no [data.test]")
    return config


def recipe_of(data: str, task: str) -> str:
    """The recipe that a name of data stands for."""
    return data if data.endswith(".toml") or "/" in data else f"{task}/{data}"


def settings_of(overrides: Sequence[str], budget: float | None) -> list[str]:
    """What is set differently from the recipe in all rows."""
    return [*overrides, *([f"training.max_minutes={budget}"] if budget else [])]


def choose(names: Sequence[str], known: Sequence[Row]) -> list[Row]:
    """Rows by name."""
    by_name = {row.name: row for row in known}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise InputError(f"unknown row {unknown[0]!r}; choose from {', '.join(by_name)}")
    return [by_name[name] for name in names]


@dataclass(frozen=True)
class Failure:
    """A row that could not be trained or evaluated, and the exit code of what failed."""

    row: str
    seed: int
    reason: str
    code: int

    def __str__(self) -> str:
        return f"{self.row}, seed {self.seed}: {self.reason}"


def train_rows(plan: Plan) -> tuple[list[dict[str, Any]], list[Failure]]:
    """Train and evaluate what is not finished yet; all rows that were ever finished here, and what failed."""
    require_same_settings(plan)
    work = plan.work()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[news]}"),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console) as bars, ThreadPoolExecutor(plan.jobs) as pool:
        whole = bars.add_task("rows", total=len(work), news=f"0 of {len(work)}")
        shared = WarmStarts(plan)

        def attempted(item: tuple[Row, int]) -> Failure | None:
            failure = attempt(plan, *item, shared=shared, bars=bars)
            bars.advance(whole)
            done = round(bars.tasks[whole].completed)
            bars.update(whole, news=f"{done} of {len(work)}")
            return failure

        failures = [failure for failure in pool.map(attempted, work) if failure is not None]
    results = finished_rows(plan)
    if not results:
        error = InputError(f"no row could be trained: {'; '.join(map(str, failures))}")
        error.exit_code = failures[0].code
        raise error
    for failure in failures:
        console.print(f"failed: {failure}", highlight=False, markup=False)
    return results, failures


def finished_rows(plan: Plan) -> list[dict[str, Any]]:
    """What is known of all rows that were ever finished here, in the order of the tables."""
    found = [json.loads(path.read_bytes()) for path in sorted((plan.out / "rows").glob("*.json"))]
    places = {name: place for place, name in enumerate(plan.order)}
    known = [record for record in found if record["row"] in places]
    return sorted(known, key=lambda record: (places[record["row"]], record["seed"]))


def require_same_settings(plan: Plan) -> None:
    """Raise when the folder holds rows that were trained, or begun, in another way.

    A setting younger than such a row was at its default for it.
    """
    planned = {(row.name, seed): row for row, seed in plan.work()}
    names = {path.stem for folder in ("rows", "settings") for path in (plan.out / folder).glob("*.json")}
    for name in sorted(names):
        row, _, seed = name.rpartition("-")
        path = plan.settings_of(row, int(seed))
        advice = f"choose another --out, or delete rows, settings and runs of {name} there to train it again"
        if not path.is_file():
            raise InputError(f"{path} is missing: how {name} was trained is not known; {advice}")
        before = json.loads(path.read_bytes())
        known = planned.get((row, int(seed)))
        now = plan.settings(known or Row(row, row))
        for key in now["shared"].keys() - before["shared"].keys():  # it did not exist then
            before["shared"][key] = recipes.default_value(plan.config, key)
        keys = sorted(before["shared"].keys() | now["shared"].keys())
        changed = [
            f"{key} = {before['shared'].get(key)!r}, now {now['shared'].get(key)!r}"
            for key in keys
            if before["shared"].get(key) != now["shared"].get(key)
        ]
        if known and before["own"] != now["own"]:
            changed.append(f"{' '.join(before['own'])}, now {' '.join(now['own'])}")
        if changed:
            raise InputError(
                f"{path}: {name} was trained with other settings ({'; '.join(changed)}); {advice}"
            )


def attempt(plan: Plan, row: Row, seed: int, *, shared: WarmStarts, bars: Progress) -> Failure | None:
    """Train and evaluate a row unless that was done before; what went wrong if it failed."""
    bar = bars.add_task(f"  {row.name}, seed {seed}", total=plan.epochs, news="")
    path = plan.finished(row.name, seed)
    if path.is_file():
        bars.update(bar, completed=plan.epochs, news="finished before")
        return None
    try:
        for place in (path, plan.settings_of(row.name, seed)):
            place.parent.mkdir(parents=True, exist_ok=True)
        write_json(plan.settings_of(row.name, seed), plan.settings(row))
        shared.give(row, seed, lambda first: tell(first, bars, bar, of="first: "))
        record = one_row(plan, row, seed, tell=lambda: tell(plan.run(row.name, seed), bars, bar))
        write_json(path, record)
    except (RowFailed, OSError, ValueError, LatentAlignError) as error:
        bars.update(bar, news="failed")
        return Failure(row.name, seed, str(error), getattr(error, "exit_code", 1))
    figure = next((name for name in plan.figures if record[name] is not None), None)
    news = f"{figure} {record[figure]:.3f}, finished" if figure else "finished"
    bars.update(bar, completed=plan.epochs, news=news)
    return None


def tell(run: Path, bars: Progress, bar: TaskID, of: str = "") -> None:
    """Show how far a training is, from its metrics; `of` names another than the row's own."""
    history = Run(run).history()
    if history:
        measured = [r for r in history if r["kind"] == "validation"]
        speed = next((r["tokens_per_second"] for r in reversed(history) if r["kind"] == "training"), 0.0)
        ppl = f"ppl {measured[-1]['ppl']:.3f}, " if measured else ""
        news = f"{of}{ppl}bound {history[-1]['bound']:.3f}, {speed:,.0f} tokens/s"
        bars.update(bar, completed=0 if of else len(measured), news=news)


class WarmStarts:
    """What rows train first on an easier objective, trained once for all rows of a seed.

    A row finds it in its run as if it had trained it there itself. Rows with settings of their own, other than of
    their objective or of the search, do that.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.locks = {seed: Lock() for seed in plan.seeds}
        self.trained: set[Path] = set()

    def give(self, row: Row, seed: int, tell: Callable[[Path], None]) -> None:
        """Put what a row has to train first into its run, trained by the first row that asks; others wait for it."""
        plan, own = self.plan, Run(self.plan.run(row.name, seed)).warm_start
        settings = [
            *plan.overrides,
            *row.overrides,
            f"objective.name={row.objective}",
            f"training.seed={seed}",
        ]
        first = first_recipe(recipes.load(plan.recipe, type(plan.config), settings))
        special = any(not o.startswith(("objective.", "search.")) for o in row.overrides)
        if first is None or special or own.exists():
            return
        shared = plan.warm_start(first.objective.name, seed)
        with self.locks[seed]:
            if shared not in self.trained:
                recipe = shared.with_suffix(".toml")
                recipe.parent.mkdir(parents=True, exist_ok=True)
                write_bytes(recipe, recipes.dump(first).encode())
                log = plan.out / "logs" / f"warm-start-{shared.name}.log"
                child(
                    ["train", str(recipe), f"--out={shared}", "--resume", "--json"], log, lambda: tell(shared)
                )
                self.trained.add(shared)
        partial = own.with_name(f"{own.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(shared, partial, ignore=shutil.ignore_patterns("cache"))
        partial.rename(own)


class RowFailed(Exception):
    """A row's process ended badly; the others go on."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def one_row(plan: Plan, row: Row, seed: int, *, tell: Callable[[], None]) -> dict[str, Any]:
    """Train one row and evaluate it on the test set."""
    run = plan.run(row.name, seed)
    options = [f"--set={o}" for o in (*plan.overrides, *row.overrides, f"training.seed={seed}")]
    log = plan.out / "logs" / f"{row.name}-{seed}.log"
    train = [
        "train",
        plan.recipe,
        f"--out={run}",
        f"--objective={row.objective}",
        "--resume",
        *options,
        "--json",
    ]
    trained = child(train, log, tell)
    evaluate = ["evaluate", str(run), "--json", f"--device={plan.device}"]
    path = plan.details_of(row.name, seed)
    if plan.details:
        path.parent.mkdir(parents=True, exist_ok=True)
        evaluate += [f"--details={path}", *plan.details]
    measured = child(evaluate, log, tell)
    known = json.loads(path.read_bytes()) if plan.details else {}
    costs = ("seconds", "tokens_per_second", "peak_memory_mb", "epochs", "steps", "warm_start", "samples")
    return {
        "row": row.name,
        "objective": row.objective,
        "seed": seed,
        **{name: finite(measured.get(name)) for name in plan.figures},
        **{name: trained[name] for name in costs},
        **{name: known.get(name) for name in plan.copied},
    }


def finite(value: Any) -> Any:
    """A figure; None for one that is beyond all numbers."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def child(arguments: Sequence[str], log: Path, tell: Callable[[], None]) -> dict[str, Any]:
    """A subcommand in a process of its own: messages into a log, one JSON object back."""
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "latentalign", *arguments]
    with (
        open(log, "ab") as messages,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=messages, preexec_fn=end_with_parent
        ) as process,
    ):
        while True:
            try:
                answer, _ = process.communicate(timeout=1.0)
                break
            except subprocess.TimeoutExpired:
                tell()
    if process.returncode != 0:
        said = log.read_text(encoding="utf-8", errors="replace").strip().split("\n")[-1]
        code = (
            process.returncode if process.returncode > 0 else 128 - process.returncode
        )  # as a shell says it
        raise RowFailed(f"`latentalign {arguments[0]}` ended with {code}: {said} ({log})", code)
    found: dict[str, Any] = json.loads(answer)
    return found


LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def end_with_parent() -> None:
    """On Linux, a child whose parent dies gets SIGTERM, so that it saves and ends instead of training on unseen."""
    if LIBC is not None:
        LIBC.prctl(1, signal.SIGTERM)


def by_row(results: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Results by row, in the order of the tables."""
    found: dict[str, list[dict[str, Any]]] = {}
    for record in results:
        found.setdefault(record["row"], []).append(record)
    return found
