"""Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table that ends with a line break; empty without rows."""
    lines = [line(row) for row in rows]
    if not lines:
        return ""
    body = [line(header), "|" + "---|" * len(header), *lines]
    # site.css stacks the cells of these tables on a narrow screen.
    return "\n".join(['<div class="stacked" markdown>', "", *body, "", "</div>", ""])


def line(cells: Sequence[str]) -> str:
    """One row; a bar inside a cell is escaped."""
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"
