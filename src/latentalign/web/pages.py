"""Pages: one file each that needs no network, with sortable tables, figures, and examples to look at."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from latentalign.storage import write_text

VERDICT_CLASSES = {"seen": "good", "not seen": "bad", "undecided": "open"}
"""Style classes of cells that hold a verdict on a claim."""


@dataclass(frozen=True)
class Cell:
    """The text of a table's cell, and the number it is sorted by."""

    text: str
    value: float | None = None


@dataclass(frozen=True)
class Table:
    """A title, an explanation, headings and rows of cells. The first cell of a row is its name."""

    title: str
    note: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class Section:
    """A part of a page: a table or a picture."""

    title: str
    table: Table | None = None
    picture: Markup | None = None
    """An SVG element."""


@dataclass(frozen=True)
class Viewer:
    """An interactive part of a page: a template, a script, and the data that the script shows."""

    title: str
    template: str
    script: str
    data_id: str
    """The id of the element that holds the data as JSON."""
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Page:
    """Everything that a page shows."""

    title: str
    summary: str
    sections: Sequence[Section] = ()
    viewers: Sequence[Viewer] = ()
    form: str = ""
    """The template of a form that asks a server, whose replies fill the viewers. Such a page must be served.

    Its script has the same name: `translate_form.html` belongs to `scripts/translate_form.js`.
    """

    @property
    def parts(self) -> list[Viewer | Section]:
        """Everything that has a title, in order."""
        return [*self.viewers, *self.sections]


def alignment_viewer(models: Mapping[str, Sequence[Mapping[str, Any]]]) -> Viewer:
    """Alignment matrices of the same sentences by model.

    A record has `sentence`, `source`, `target` and `matrices`: `prior`, `inferred` and `posterior` as rows of numbers
    or as bytes in base64. Gold links (`sure`, `possible`), matrices of subwords, and what a chain adds (`path`,
    `path_log_prob`, `null`) are optional.
    """
    return Viewer(
        "Alignments",
        "alignment_viewer.html",
        "scripts/alignment_viewer.js",
        data_id="alignment-data",
        data=models,
    )


def region_viewer(
    models: Mapping[str, Sequence[Mapping[str, Any]]], pictures: Mapping[str, str], *, missing: str = ""
) -> Viewer:
    """Questions about pictures by model: regions, their probabilities, and the answers that each would give.

    `pictures` maps image ids to addresses; a page that needs no network uses `data:` addresses. Without its picture,
    a question is shown with its regions on a grey area, and `missing` says why.
    """
    return Viewer(
        "Where it looks",
        "region_viewer.html",
        "scripts/region_viewer.js",
        data_id="region-data",
        data={"models": models, "pictures": pictures, "missing": missing},
    )


def table_sections(tables: Sequence[Table]) -> list[Section]:
    """A section for each table."""
    return [Section(table.title, table=table) for table in tables]


def write_page(path: Path, page: Page) -> None:
    """Write a page, or replace it."""
    write_text(path, render(page))


def render(page: Page) -> str:
    """The page as HTML. Text is escaped, and data cannot end the script element that holds it."""
    now = datetime.now(UTC)
    return environment().get_template("page.html").render(page=page, time=f"{now:%Y-%m-%d %H:%M}")


@cache
def environment() -> Environment:
    """The templates, with everything they need besides a page."""
    made = Environment(
        loader=PackageLoader("latentalign.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.policies["json.dumps_kwargs"] = {"ensure_ascii": False}  # keep the order of the rows
    made.filters |= {"anchor": anchor, "inline_code": inline_code}
    made.globals |= {
        "resource": resource,
        "version": version("latentalign"),
        "verdict_classes": VERDICT_CLASSES,
    }
    return made


def resource(name: str) -> Markup:
    """A style sheet or a script of this package."""
    return Markup((files("latentalign.web") / name).read_text(encoding="utf-8"))


def anchor(title: str) -> str:
    """A title as the address of its section within the page."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def inline_code(text: str) -> Markup:
    """Escaped text in which `this` is set as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))
