"""report.html: one file that needs nothing else, with tables to sort, figures, and alignments to look at."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from latentalign.errors import InputError
from latentalign.reproduction.curves import svg
from latentalign.reproduction.tables import Cell, Table
from latentalign.storage import write_bytes


@dataclass(frozen=True)
class Section:
    """A part of the page: a table, or a picture (SVG)."""

    title: str
    table: Table | None = None
    picture: str | None = None


@dataclass(frozen=True)
class Page:
    """All that a page shows."""

    title: str
    summary: str
    sections: Sequence[Section]
    alignments: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """Alignments of the same sentences by row."""
    looks: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """Questions about pictures by row: regions, their probabilities, and what would be said of each."""
    pictures: Mapping[str, str] = field(default_factory=dict)
    """Pictures by their ids, as addresses that hold their own data."""
    form: str = ""
    """An asset that asks a server, whose answers fill the viewers: a page that is served, not kept."""

    @property
    def shows_looks(self) -> bool:
        """Whether there is a viewer of pictures."""
        return bool(self.looks and (self.pictures or self.form))


def table_sections(tables: Sequence[Table]) -> list[Section]:
    """A section for each table."""
    return [Section(table.title, table=table) for table in tables]


def free_name(wanted: str, folder: Path, taken: Container[str]) -> str:
    """A name for a run among others: its objective, with as much of its path as tells it apart."""
    parts = [part for part in folder.absolute().parts if part != "/"]
    names = [wanted, *(f"{wanted} ({'/'.join(parts[-n:])})" for n in range(1, len(parts) + 1))]
    names += [f"{wanted} {n}" for n in range(2, 1000)]  # the same run twice
    return next(name for name in names if name not in taken)


def picture_sections(figures: Mapping[str, Figure]) -> list[Section]:
    """A section for each figure."""
    return [Section(title, picture=svg(figure)) for title, figure in figures.items()]


def write_page(path: Path, page: Page) -> None:
    """Replace a file by the page."""
    write_bytes(path, render(page).encode())


def render(page: Page) -> str:
    """The page as text."""
    parts = {
        "title": html.escape(page.title),
        "summary": html.escape(page.summary),
        "made": f"latentalign {version('latentalign')}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "style": asset("report.css"),
        "script": asset("report.js") + (asset("serve.js") if page.form else ""),
        "contents": contents(page),
        "viewer": (asset(page.form) if page.form else "")
        + (asset("viewer.html") if page.alignments else "")
        + (asset("looks.html") if page.shows_looks else ""),
        "sections": "\n".join(section(s) for s in page.sections),
        "data": embedded(page.alignments),
        "looks": embedded({"models": page.looks, "pictures": page.pictures} if page.shows_looks else {}),
    }
    # One pass: what is put in is never looked at again.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], asset("report.html"))


def asset(name: str) -> str:
    return (files("latentalign.web") / "assets" / name).read_text(encoding="utf-8")


def anchor(title: str) -> str:
    """A title as an address within the page."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def contents(page: Page) -> str:
    """Links to all sections; a page that is served has one or two."""
    if page.form:
        return ""
    first = [*(["Alignments"] if page.alignments else []), *(["Where it looks"] if page.shows_looks else [])]
    titles = [*first, *(s.title for s in page.sections)]
    links = "".join(f'<li><a href="#{anchor(t)}">{html.escape(t)}</a></li>' for t in titles)
    return f'<nav aria-label="Contents"><ul>{links}</ul></nav>'


def section(part: Section) -> str:
    """A table or a picture under its heading."""
    body = ""
    if part.table is not None:
        body = f"<p>{html.escape(part.table.note)}</p>{sortable(part.table)}"
    if part.picture is not None:
        title = html.escape(part.title)
        body = f'<div class="picture" tabindex="0" role="img" aria-label="{title}">{part.picture}</div>'
    return f'<section id="{anchor(part.title)}"><h2>{html.escape(part.title)}</h2>{body}</section>'


def sortable(table: Table) -> str:
    """A table whose headings are buttons."""
    heads = "".join(
        f'<th scope="col" aria-sort="none"><button type="button">{html.escape(h)}</button></th>'
        for h in table.headings
    )
    rows = "".join(f"<tr>{''.join(map(table_cell, range(len(row)), row))}</tr>" for row in table.rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{html.escape(table.title)}">'
        f'<table class="sortable"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def table_cell(number: int, cell: Cell) -> str:
    text = html.escape(cell.text)
    if number == 0:
        return f'<th scope="row">{text}</th>'
    value = "" if cell.value is None else f' data-value="{cell.value!r}"'
    mark = {"seen": "good", "not seen": "bad", "undecided": "open"}.get(cell.text)
    return f'<td{value}><span class="{mark}">{text}</span></td>' if mark else f"<td{value}>{text}</td>"


def embedded(data: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(data, ensure_ascii=False).replace("<", "\\u003c").replace("\u2028", "\\u2028")


def require_free(path: Path, *, overwrite: bool) -> None:
    """Raise when a page would replace a file unasked."""
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists; add --overwrite to replace it")
