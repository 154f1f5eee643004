"""Tables made from results, for Markdown, the terminal and the page alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from latentalign.reproduction.claims import ClaimVerdict
from latentalign.reproduction.results import Result, by_row
from latentalign.web.pages import Cell, Table

DASH = Cell("-")
Paper = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Column:
    """A figure of the results; with `paper`, the paper's figure instead."""

    heading: str
    figure: str
    digits: int = 2
    paper: bool = False
    scale: float = 1.0
    value: Callable[[Result], float | None] | None = None
    """How the figure follows from a record, where the record does not hold it."""

    def read(self, record: Result) -> float | None:
        """The figure of one record; None where there is none."""
        value = record.get(self.figure) if self.value is None else self.value(record)
        return None if value is None else self.scale * value


@dataclass(frozen=True)
class FigureTable:
    """The declaration of a table: one line per row, one column per figure."""

    title: str
    explanation: str
    columns: Sequence[Column]
    only_rows: Sequence[str] | None = None
    """Rows that may stand in it; None for all."""
    required_figure: str | None = None
    """A figure without which a record is left out."""
    names_warm_starts: bool = False
    """Whether the explanation says which rows had a warm start."""

    def build(self, results: Sequence[Result], paper: Paper) -> Table:
        """The table of some results beside the paper's figures."""
        required = self.required_figure
        chosen = [r for r in results if self.only_rows is None or r["row"] in self.only_rows]
        chosen = [r for r in chosen if required is None or r[required]]
        note = self.explanation + (warm_start_note(results) if self.names_warm_starts else "")
        return figure_table(self.title, note, self.columns, chosen, paper=paper)


def figure_table(
    title: str, note: str, columns: Sequence[Column], results: Sequence[Result], *, paper: Paper
) -> Table:
    """One line per row, means over seeds with their spread; columns without any figure are left out."""
    lines = []
    for name, records in by_row(results).items():
        cells = [table_cell(column, records, paper.get(name, {})) for column in columns]
        lines.append([Cell(name), *cells])
    kept = [i for i in range(len(columns)) if any(line[i + 1] != DASH for line in lines)]
    headings = ["row", *(columns[i].heading for i in kept)]
    return Table(title, note, headings, [[line[0], *(line[i + 1] for i in kept)] for line in lines])


def table_cell(column: Column, records: Sequence[Result], paper: Mapping[str, float]) -> Cell:
    """Mean, and the spread over seeds where there are several; a dash where there is no figure."""
    if column.paper:
        value = paper.get(column.figure)
        return DASH if value is None else Cell(f"{value:.{column.digits}f}", value)
    values = [value for value in map(column.read, records) if value is not None]
    if not values:
        return DASH
    constant_count = (
        column.digits == 0 and len(set(values)) == 1
    )  # epochs or samples, the same for every seed
    spread = f" ± {stdev(values):.{column.digits}f}" if len(values) > 1 and not constant_count else ""
    return Cell(f"{fmean(values):.{column.digits}f}{spread}", fmean(values))


def warm_start_note(results: Sequence[Result]) -> str:
    """Which rows had a warm start, which the paper uses for relaxed attention alone; epochs do not count it."""
    rows: dict[str, list[str]] = {}
    for name, records in by_row(results).items():
        if records[0].get("warm_start"):
            rows.setdefault(str(records[0]["warm_start"]), []).append(name)
    return "".join(
        f" Rows that start from {warm_start}, which `epochs` does not count: {', '.join(names)}."
        for warm_start, names in rows.items()
    )


def claims_table(verdicts: Sequence[ClaimVerdict]) -> Table:
    """What the paper claims and whether it was seen here."""
    lines = []
    for verdict in verdicts:
        lead = "all seeds compared"
        if verdict.interval is not None:
            low, high = verdict.interval
            lead = f"{low:+.4f} to {high:+.4f} {verdict.unit}"
        lines.append(
            [
                Cell(verdict.claim),
                Cell(verdict.verdict),
                Cell(f"{verdict.better:.3f}", verdict.better),
                Cell(f"{verdict.worse:.3f}", verdict.worse),
                Cell(lead, verdict.lead),
                Cell(" and ".join(map(str, verdict.seeds)), min(verdict.seeds)),
            ]
        )
    note = (
        "The interval of the lead contains 95 % of 1,000 resamplings of test examples and seeds, in nats per token (or "
        "answer) or in points. A claim is undecided when the interval contains zero or there are too few examples. "
        "With one seed per row, the verdict is about these training runs: another seed may change a figure by more "
        "than the choice of test examples does. Without an interval, all seeds must agree."
    )
    headings = ["the paper claims", "here", "first", "second", "lead of the first", "seeds"]
    return Table("What the paper claims", note, headings, lines)


def failures_table(failures: Sequence[Any]) -> list[Table]:
    """Rows that failed, if there are any."""
    rows = [[Cell(f.row), Cell(str(f.seed), f.seed), Cell(f.reason)] for f in failures]
    note = "These rows are missing from the tables."
    return [Table("Failed", note, ["row", "seed", "reason"], rows)] if rows else []


def markdown(tables: Sequence[Table]) -> str:
    """All tables, one after the other."""
    parts = []
    for table in tables:
        lines = [f"## {table.title}", "", table.note, "", "| " + " | ".join(table.headings) + " |"]
        lines.append("|---|" + "---:|" * (len(table.headings) - 1))
        lines += ["| " + " | ".join(c.text.replace("|", "\\|") for c in row) + " |" for row in table.rows]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)
