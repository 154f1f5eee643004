"""Breakdowns of a result, such as accuracies by type of question, as tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

MOST_ROWS = 12
"""Rows of a breakdown. Rarer types are folded into one row."""
COUNT = "questions"
"""The key that holds the number of examples behind a row."""
NOTHING = "-"

Parts = Mapping[str, Mapping[str, Any]]


def is_breakdown(value: Any) -> bool:
    """Whether a value holds figures by name, such as accuracies by type of question."""
    return isinstance(value, Mapping) and bool(value) and all(isinstance(v, Mapping) for v in value.values())


def breakdown_table(title: str, parts: Parts) -> Table:
    """One row for each part, one column for each figure that some part has and no later column repeats."""
    from rich.table import Table

    folded = fold_rare(parts)
    columns: dict[tuple[str, ...], str] = {}
    for name in dict.fromkeys(name for figures in folded.values() for name in figures):
        cells = tuple(format_figure(figures.get(name)) for figures in folded.values())
        if any(cell != NOTHING for cell in cells):
            columns[cells] = name
    table = Table(title=title.replace("_", " "))
    table.add_column(no_wrap=True)
    for name in columns.values():
        table.add_column(name.replace("_", " "), justify="right")
    for row, part in enumerate(folded):
        table.add_row(part, *(cells[row] for cells in columns))
    return table


def fold_rare(parts: Parts, most: int = MOST_ROWS) -> Parts:
    """The most frequent parts, and one row with the means of all others; in the given order if nothing is folded."""
    if len(parts) <= most:
        return parts
    order = sorted(parts, key=lambda part: -parts[part].get(COUNT, 0))
    rare = [parts[part] for part in order[most - 1 :]]
    kept: dict[str, Mapping[str, Any]] = {part: parts[part] for part in order[: most - 1]}
    kept[f"{len(rare)} rarer types"] = {name: _mean(name, rare) for name in rare[0]}
    return kept


def _mean(name: str, parts: list[Mapping[str, Any]]) -> Any:
    """The mean of a figure over parts, weighted by their number of examples; the sum of the numbers themselves."""
    if name == COUNT:
        return sum(part[COUNT] for part in parts)
    known = [(part[name], part.get(COUNT, 1)) for part in parts if part.get(name) is not None]
    return sum(value * n for value, n in known) / sum(n for _, n in known) if known else None


def format_figure(value: Any) -> str:
    """A figure for a cell."""
    if value is None:
        return NOTHING
    return f"{value:.2f}" if isinstance(value, float) else str(value)
