"""Tables made of results, for Markdown, the terminal and the page alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from latentalign.reproduction.rows import by_row


@dataclass(frozen=True)
class Cell:
    """What is shown, and the number it is sorted by."""

    text: str
    value: float | None = None


@dataclass(frozen=True)
class Column:
    """A figure of the results; `paper` shows the paper's instead."""

    heading: str
    figure: str
    digits: int = 2
    paper: bool = False
    scale: float = 1.0


@dataclass(frozen=True)
class Table:
    """A title, headings and rows of cells, the first of each row being its name."""

    title: str
    note: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]


DASH = Cell("-")


def figure_table(
    title: str,
    note: str,
    columns: Sequence[Column],
    results: Sequence[dict[str, Any]],
    *,
    paper: dict[str, dict[str, float]],
    only: Sequence[str] | None = None,
) -> Table:
    """One line a row, means over seeds with their spread."""
    lines = []
    for name, records in by_row(results).items():
        if only is None or name in only:
            cells = [cell(column, records, paper.get(name, {})) for column in columns]
            lines.append([Cell(name), *cells])
    kept = [i for i in range(len(columns)) if any(line[i + 1] != DASH for line in lines)]
    headings = ["row", *(columns[i].heading for i in kept)]
    return Table(title, note, headings, [[line[0], *(line[i + 1] for i in kept)] for line in lines])


def cell(column: Column, records: Sequence[dict[str, Any]], paper: dict[str, float]) -> Cell:
    """Mean, and spread over seeds where there are several; a dash where nothing exists."""
    if column.paper:
        value = paper.get(column.figure)
        return DASH if value is None else Cell(f"{value:.{column.digits}f}", value)
    values = [column.scale * r[column.figure] for r in records if r.get(column.figure) is not None]
    if not values:
        return DASH
    counted = column.digits == 0 and len(set(values)) == 1  # epochs or samples, the same for every seed
    spread = f" ± {stdev(values):.{column.digits}f}" if len(values) > 1 and not counted else ""
    return Cell(f"{fmean(values):.{column.digits}f}{spread}", fmean(values))


def claims_table(verdicts: Sequence[dict[str, Any]]) -> Table:
    """What the paper claims and whether it was seen here."""
    lines = []
    for v in verdicts:
        shown = "every seed alike"
        if v["interval"] is not None:
            low, high = v["interval"]
            shown = f"{low:+.4f} to {high:+.4f} {v['unit']}"
        lines.append(
            [
                Cell(v["claim"]),
                Cell(v["verdict"]),
                Cell(f"{v['better']:.3f}", v["better"]),
                Cell(f"{v['worse']:.3f}", v["worse"]),
                Cell(shown, v["lead"]),
                Cell(" and ".join(map(str, v["seeds"])), min(v["seeds"])),
            ]
        )
    note = (
        "The lead holds 95 % of 1,000 resamplings of test examples and seeds, in nats a token (or answer) or in "
        "points. Undecided: it holds zero, or there are too few examples. With one seed a row it is a verdict on these "
        "trainings: another seed may differ by more than test examples do. Without an interval every seed must agree."
    )
    headings = ["the paper claims", "here", "first", "second", "lead of the first", "seeds"]
    return Table("What the paper claims", note, headings, lines)


def failures_table(failures: Sequence[Any]) -> list[Table]:
    """Rows that are missing, if there are any."""
    rows = [[Cell(f.row), Cell(str(f.seed), f.seed), Cell(f.reason)] for f in failures]
    return [Table("Failed", "Not in any table.", ["row", "seed", "why"], rows)] if rows else []


def markdown(tables: Sequence[Table]) -> str:
    """All tables, one after the other."""
    parts = []
    for table in tables:
        lines = [f"## {table.title}", "", table.note, "", "| " + " | ".join(table.headings) + " |"]
        lines.append("|---|" + "---:|" * (len(table.headings) - 1))
        lines += ["| " + " | ".join(c.text.replace("|", "\\|") for c in row) + " |" for row in table.rows]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)
