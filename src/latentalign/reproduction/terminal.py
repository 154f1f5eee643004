"""Results in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from latentalign.reproduction.plan import Plan
from latentalign.reproduction.results import Result, by_row
from latentalign.reproduction.tables import Column, table_cell
from latentalign.training.run import Run

FILES = {
    "tables": "tables.md",
    "results": "results.json",
    "ablations": "ablations.md",
    "runs": "runs",
    "open this": "report.html",
}


def show_results(plan: Plan, results: Sequence[Result]) -> None:
    """Print the table, a few examples of the last row, and where the files are."""
    console, experiment = Console(), plan.experiment
    show_table(console, f"{plan.recipe}, test set", experiment.terminal_columns, results)
    if experiment.terminal_note:
        console.print(experiment.terminal_note + "\n", highlight=False, markup=False)
    run = Run(plan.run_folder(results[-1]["row"], results[-1]["seed"]))
    if experiment.draw_examples is not None and run.model.is_file():  # the tables do not need the model
        console.print(experiment.draw_examples(run.folder), highlight=False, markup=False)
    data = experiment.data
    if data is not None and data.note is not None and plan.recipe == data.recipe:
        console.print(data.note() + "\n", highlight=False, markup=False)
    show_files(console, plan.out)


def show_table(console: Console, title: str, columns: Sequence[Column], results: Sequence[Result]) -> None:
    """Print a line for each row of the results."""
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("row", no_wrap=True)
    for column in columns:
        table.add_column(column.heading, justify="right")
    for row, records in by_row(results).items():
        table.add_row(row, *(table_cell(column, records, {}).text for column in columns))
    console.print(table)


def show_files(console: Console, out: Path) -> None:
    """Print where everything is."""
    for label, name in FILES.items():
        if (out / name).exists():
            console.print(f"{label + ':':<11}{out / name}", highlight=False)
