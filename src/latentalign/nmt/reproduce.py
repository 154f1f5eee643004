"""Rows of the paper's tables on any data: each trained and evaluated alike, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from latentalign import config as recipes
from latentalign.data import demo
from latentalign.errors import InputError
from latentalign.nmt.align import encode_pairs, in_order
from latentalign.nmt.figures import draw_in_terminal
from latentalign.nmt.link_formats import read_gold
from latentalign.nmt.task import NMTConfig, Trained
from latentalign.textfiles import read_parallel
from latentalign.training.checkpoint import write_bytes_atomic, write_json_atomic
from latentalign.training.run import Run

ROWS = (
    "soft",
    "marginal",
    "hard-enum",
    "hard-sample",
    "relaxed",
    "variational-enum",
    "variational-sample",
    "rws",
    "gumbel",
    "vimco",
    "svi",
    "semi-amortized",
    "sum-and-sample",
)
FIGURES = (
    "ppl", "ppl_exact", "ppl_soft", "ppl_kmax5", "bleu", "entropy_prior", "entropy_inferred", "elbo_gap",
    "aer_prior", "aer_inferred", "aer_posterior",
)  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """What to train: a recipe, rows and seeds, and where everything goes."""

    recipe: str
    rows: Sequence[str]
    seeds: int
    out: Path
    overrides: Sequence[str] = ()
    jobs: int = 1
    """Rows trained at a time, each in a process of its own."""

    def __post_init__(self) -> None:
        unknown = [row for row in self.rows if row not in ROWS]
        if unknown:
            raise InputError(f"unknown row {unknown[0]!r}; choose from {', '.join(ROWS)}")

    def run(self, row: str, seed: int) -> Path:
        return self.out / "runs" / f"{row}-{seed}"

    def finished(self, row: str, seed: int) -> Path:
        return self.out / "rows" / f"{row}-{seed}.json"


def plan_for(
    data: str, rows: Sequence[str], seeds: int, out: Path, overrides: Sequence[str], *, jobs: int = 1
) -> Plan:
    """A plan for the demo, a known corpus or any recipe; the demo's data is generated into `out`."""
    if data != "demo":
        recipe = data if data.endswith(".toml") or "/" in data else f"nmt/{data}"
        return Plan(recipe, rows, seeds, out, tuple(overrides), jobs)
    folder = out / "data"
    if not (folder / "test.gold").is_file():
        demo.write(folder, overwrite=True)
    files = [
        f"data.{split}.{key}={folder / f'{split}.{end}'}"
        for split in ("train", "valid", "test")
        for key, end in (("source", "de"), ("target", "en"), ("gold", "gold"))
        if not (split == "train" and key == "gold")
    ]
    return Plan("nmt/demo", rows, seeds, out, (*files, *overrides), jobs)


def reproduce(plan: Plan) -> list[dict[str, Any]]:
    """Train and evaluate what is not finished yet, then write results.json and tables.md."""
    work = [(row, seed) for row in plan.rows for seed in range(plan.seeds)]
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[news]}"),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console) as bars, ThreadPoolExecutor(plan.jobs) as pool:
        failures = [row for row in pool.map(lambda w: attempt(plan, *w, bars=bars), work) if row is not None]
    results = [json.loads(plan.finished(*w).read_text()) for w in work if plan.finished(*w).is_file()]
    if not results:
        raise InputError(f"no row could be trained: {', '.join(failures)}")
    write_json_atomic(plan.out / "results.json", results)
    write_bytes_atomic(plan.out / "tables.md", markdown(results).encode())
    return results


def attempt(plan: Plan, row: str, seed: int, *, bars: Progress) -> str | None:
    """Train and evaluate a row unless that was done before; its name if it failed."""
    epochs = recipes.load(plan.recipe, NMTConfig, plan.overrides).training.epochs
    bar = bars.add_task(f"{row}, seed {seed}", total=epochs, news="")
    if plan.finished(row, seed).is_file():
        bars.update(bar, completed=epochs, news="finished before")
        return None
    try:
        record = one_row(plan, row, seed, tell=lambda: tell(plan.run(row, seed), bars, bar))
    except RowFailed as error:
        bars.update(bar, news=f"failed: {error}")
        return row
    plan.finished(row, seed).parent.mkdir(parents=True, exist_ok=True)
    write_json_atomic(plan.finished(row, seed), record)
    bars.update(bar, completed=epochs, news=f"ppl {record['ppl']:.3f}, finished")
    return None


def tell(run: Path, bars: Progress, bar: TaskID) -> None:
    """Show how far a training is, from its metrics."""
    history = Run(run).history()
    if history:
        measured = [r for r in history if r["kind"] == "validation"]
        speed = next((r["tokens_per_second"] for r in reversed(history) if r["kind"] == "training"), 0.0)
        ppl = f"ppl {measured[-1]['ppl']:.3f}, " if measured else ""
        news = f"{ppl}bound {history[-1]['bound']:.3f}, {speed:,.0f} tokens/s"
        bars.update(bar, completed=len(measured), news=news)


class RowFailed(Exception):
    """A row's process ended badly; the others go on."""


def one_row(plan: Plan, row: str, seed: int, *, tell: Callable[[], None]) -> dict[str, Any]:
    """Train one row and evaluate it on the test set."""
    run = plan.run(row, seed)
    options = [f"--set={o}" for o in (*plan.overrides, f"training.seed={seed}")]
    if row == "relaxed" and not any(o.startswith("training.warm_start") for o in plan.overrides):
        options.append("--set=training.warm_start_epochs=3")
    log = plan.out / "logs" / f"{row}-{seed}.log"
    train = ["train", plan.recipe, f"--out={run}", f"--objective={row}", "--resume", *options, "--json"]
    trained = child(train, log, tell)
    measured = child(["evaluate", str(run), "--json"], log, tell)
    return {
        "objective": row,
        "seed": seed,
        **{name: measured[name] for name in FIGURES},
        **{name: measured[name] for name in ("chrf", "bleu_signature", "tokens", "sentences")},
        **{
            name: trained[name]
            for name in ("seconds", "tokens_per_second", "peak_memory_mb", "epochs", "steps")
        },
    }


def child(arguments: Sequence[str], log: Path, tell: Callable[[], None]) -> dict[str, Any]:
    """A subcommand in a process of its own: messages into a log, one JSON object back."""
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "latentalign", *arguments]
    with (
        open(log, "ab") as messages,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=messages) as process,
    ):
        while True:
            try:
                answer, _ = process.communicate(timeout=1.0)
                break
            except subprocess.TimeoutExpired:
                tell()
    if process.returncode != 0:
        said = log.read_text(encoding="utf-8", errors="replace").strip().split("\n")[-1]
        raise RowFailed(f"`latentalign {arguments[0]}` ended with {process.returncode}: {said} ({log})")
    found: dict[str, Any] = json.loads(answer)
    return found


def grouped(results: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Results by row, in the order of the tables."""
    found: dict[str, list[dict[str, Any]]] = {}
    for record in results:
        found.setdefault(record["objective"], []).append(record)
    return found


def cell(records: Sequence[dict[str, Any]], name: str, digits: int) -> str:
    """Mean, and spread over seeds where there are several; a dash where nothing exists."""
    values = [r[name] for r in records if r[name] is not None]
    if not values:
        return "-"
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{fmean(values):.{digits}f}{spread}"


COLUMNS = (
    ("ppl", 3), ("ppl_soft", 3), ("ppl_kmax5", 3), ("bleu", 2), ("entropy_prior", 2), ("elbo_gap", 3),
    ("aer_prior", 3), ("aer_inferred", 3), ("aer_posterior", 3), ("seconds", 0), ("tokens_per_second", 0),
)  # fmt: skip


SHOWN = {
    "ppl": ("ppl", 3), "BLEU": ("bleu", 1), "entropy": ("entropy_prior", 2), "AER p": ("aer_prior", 3),
    "AER q": ("aer_inferred", 3), "AER post.": ("aer_posterior", 3), "seconds": ("seconds", 0),
}  # fmt: skip
"""What fits a terminal of 80 columns."""


def markdown(results: Sequence[dict[str, Any]]) -> str:
    """One table of all rows."""
    lines = ["| objective | " + " | ".join(name for name, _ in COLUMNS) + " |"]
    lines.append("|---|" + "---:|" * len(COLUMNS))
    for row, records in grouped(results).items():
        lines.append(f"| {row} | " + " | ".join(cell(records, n, d) for n, d in COLUMNS) + " |")
    return "\n".join(lines) + "\n"


def show(plan: Plan, results: Sequence[dict[str, Any]], *, sentences: int = 3) -> None:
    """The table, a few alignments drawn in the terminal, and where the files are."""
    console = Console()
    table = Table(title=f"{plan.recipe}, test set", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("objective", no_wrap=True)
    for heading in SHOWN:
        table.add_column(heading, justify="right")
    for row, records in grouped(results).items():
        table.add_row(row, *(cell(records, *column) for column in SHOWN.values()))
    console.print(table)
    trained = Trained.load(plan.run(results[-1]["objective"], results[-1]["seed"]))
    test = trained.config.data.test
    if test is not None:
        draw_examples(console, trained, sentences)
        if plan.recipe == "nmt/demo" and test.gold is not None:
            draw_yardsticks(console, plan)
    console.print(f"tables:  {plan.out / 'tables.md'}\nresults: {plan.out / 'results.json'}", highlight=False)
    console.print(f"runs:    {plan.out / 'runs'}", highlight=False)


def draw_examples(console: Console, trained: Trained, sentences: int) -> None:
    """Exact posteriors of a few short test pairs, gold links in brackets."""
    split = trained.config.data.test
    assert split is not None
    pairs = list(read_parallel(split.source, split.target))
    gold = read_gold(split.gold, sentences=len(pairs)) if split.gold else None
    short = [i for i, (s, t) in enumerate(pairs) if 7 <= len(s.split()) <= 12 and len(t.split()) <= 12]
    chosen = (short or list(range(len(pairs))))[:sentences]
    using = "posterior" if trained.model.family == "categorical" else "prior"
    encoded = encode_pairs(trained, [pairs[i][0] for i in chosen], [pairs[i][1] for i in chosen])
    name = trained.config.objective.name
    console.print(f"\n{using} alignments of {name}; brackets are gold links", highlight=False)
    for i, found in zip(chosen, in_order(trained, encoded, using), strict=True):
        words = pairs[i][0].split(), pairs[i][1].split()
        links = gold[i].sure if gold else frozenset()
        console.print(draw_in_terminal(*words, found.probability, gold=links), markup=False, highlight=False)
        console.print()


def draw_yardsticks(console: Console, plan: Plan) -> None:
    """What the demo's grammar itself allows."""
    pairs = demo.splits(0, 0, 1000)["test"]
    floor = demo.statistics(pairs).floor_perplexity
    console.print(
        "ppl is each model's own honest perplexity on the test set; AER of prior p, inferred q, exact posterior\n"
        f"the grammar's own perplexity on this test set, the floor: {floor:.3f}\n",
        highlight=False,
    )
