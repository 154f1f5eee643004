"""What a task declares so that `latentalign reproduce` and `latentalign report` work for it.

A task lists its rows, figures, tables and claims in one `Experiment`. The code that trains, judges, draws and writes is
the same for all tasks and reads nothing but this declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from latentalign.core.objectives import OBJECTIVES
from latentalign.reproduction.claims import Claim, CorpusScore
from latentalign.reproduction.tables import Column, FigureTable
from latentalign.training.recipe import TaskRecipe
from latentalign.web.pages import Table, Viewer

Record = Mapping[str, Any]
"""The figures of one row and one seed."""


@dataclass(frozen=True)
class Row:
    """A line of a table: an objective, and the settings in which it differs from the recipe."""

    name: str
    objective: str
    overrides: tuple[str, ...] = ()


def paper_objectives(table: int | None) -> tuple[str, ...]:
    """The registered objectives of one of the paper's tables; with None, those that are in no table."""
    return tuple(entry.name for entry in OBJECTIVES.values() if entry.table == table)


def objective_rows(names: Sequence[str]) -> tuple[Row, ...]:
    """One row per objective, named after it, with the settings of the recipe."""
    return tuple(Row(name, name) for name in names)


@dataclass(frozen=True)
class GeneratedData:
    """A data set that the project generates itself, so that an experiment needs no download."""

    name: str
    """What `--data` calls it."""
    recipe: str
    """The recipe that trains on it: a shipped name or a file."""
    write: Callable[[Path], object]
    """Write all files into a folder."""
    last_file: str
    """The file that is written last: without it the data set is incomplete."""
    settings: Callable[[Path], Sequence[str]]
    """The files of a folder as overrides of the recipe."""
    note: Callable[[], str] | None = None
    """What is known about the data set itself, for the terminal."""

    def prepare(self, folder: Path) -> None:
        """Write the files unless they exist."""
        if not (folder / self.last_file).is_file():
            self.write(folder)


@dataclass(frozen=True)
class PageContext:
    """What the pictures and viewers of a page are made from."""

    config: TaskRecipe
    split: str
    results: Mapping[str, Record]
    """The figures of each row's first seed."""
    examples: Mapping[str, Sequence[Record]]
    """The examples that each row's details hold."""
    featured: Sequence[str]
    """Rows that deserve pictures of their own."""


def no_pictures(_: PageContext) -> dict[str, Figure]:
    """No pictures beyond those that every experiment has."""
    return {}


def no_viewers(_: PageContext) -> list[Viewer]:
    """No examples to look at."""
    return []


@dataclass(frozen=True)
class Experiment:
    """Everything that `reproduce` and `report` have to know about a task."""

    task: str
    """The task's name, which is also the folder of its shipped recipes."""
    recipe_model: type[TaskRecipe]
    """The model of the task's recipes."""
    rows: Sequence[Row]
    """Rows that are trained unless others are named, in the order of the tables."""
    figures: Sequence[str]
    """Keys of `evaluate`'s output that are copied into the results."""
    tables: Sequence[FigureTable]
    terminal_columns: Sequence[Column]
    """The columns that fit a terminal of 80 characters."""

    examples: str = "examples"
    """What the examples of the test set are called in the summary, e.g. `sentences`; a key of the results."""
    optional_rows: Sequence[Row] = ()
    """Rows that are trained only when they are named."""
    ablations: Sequence[Row] = ()
    """Rows of `--ablations`: one change at a time."""
    ablation_table: FigureTable | None = None
    paper: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """The paper's figures by row."""
    claims: Sequence[Claim] = ()
    """Orderings that the paper claims."""
    corpus_scores: Mapping[str, CorpusScore] = field(default_factory=dict)
    """Figures of a whole corpus that are resampled from statistics of its examples."""
    extra_tables: Callable[[TaskRecipe, Sequence[Record]], Sequence[Table]] | None = None
    """Tables that cannot be declared, because their columns or rows depend on data or results."""

    details: Sequence[str] = ()
    """Options of `evaluate` that make it write details; without any, there are no details."""
    detail_figures: Sequence[str] = ()
    """Keys of the details that are copied into the results."""
    detail_examples: str = "examples"
    """The key of the details that holds the examples of a page."""

    featured_rows: Sequence[str] = ()
    """Rows that deserve pictures of their own on the page."""
    diagnosed_rows: Sequence[str] = ()
    """`diagnose` examines the first of these rows that exists; without any, there is no diagnosis."""
    pictures: Callable[[PageContext], Mapping[str, Figure]] = no_pictures
    """Pictures of the page by title, after the training curves."""
    viewers: Callable[[PageContext], Sequence[Viewer]] = no_viewers
    """Interactive parts of the page."""

    terminal_note: str = ""
    """What the terminal's columns mean."""
    draw_examples: Callable[[Path], str] | None = None
    """Draw a few examples of a run as text."""
    run_columns: Sequence[Column] = ()
    """The columns of the table of `latentalign report RUN...`."""
    run_note: str = ""
    data: GeneratedData | None = None

    @property
    def known_rows(self) -> list[Row]:
        """All rows that can be named, in the order of the tables."""
        return [*self.rows, *self.optional_rows]
