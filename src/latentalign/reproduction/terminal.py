"""Results in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from latentalign.reproduction.rows import by_row
from latentalign.reproduction.tables import Column, cell

FILES = {
    "tables": "tables.md",
    "results": "results.json",
    "ablations": "ablations.md",
    "runs": "runs",
    "open this": "report.html",
}


def show_table(
    console: Console, title: str, shown: Mapping[str, Column], results: Sequence[dict[str, Any]]
) -> None:
    """A line for each row of the results."""
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("row", no_wrap=True)
    for heading in shown:
        table.add_column(heading, justify="right")
    for row, records in by_row(results).items():
        table.add_row(row, *(cell(column, records, {}).text for column in shown.values()))
    console.print(table)


def show_files(console: Console, out: Path) -> None:
    """Where everything is."""
    for label, name in FILES.items():
        if (out / name).exists():
            console.print(f"{label + ':':<11}{out / name}", highlight=False)
