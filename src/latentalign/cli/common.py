"""Arguments, options and output that several subcommands share."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from latentalign.progress import inform as inform
from latentalign.progress import warn as warn

if TYPE_CHECKING:
    from latentalign.tasks.figure_notes import FigureNote

RunArgument = Annotated[
    Path, typer.Argument(metavar="RUN", help="a run directory made by `latentalign train`")
]
RecipeArgument = Annotated[
    str, typer.Argument(metavar="RECIPE", help="a TOML file, or a shipped recipe such as nmt/demo")
]
SetOption = Annotated[list[str] | None, typer.Option("--set", help="table.key=value; repeatable")]
SplitOption = Annotated[str, typer.Option(help="train, valid or test")]
PredictOption = Annotated[
    str | None, typer.Option(help="exact, certified:TOL, kmax:K, soft or sample:N; default: the objective's")
]
DeviceOption = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")]
JsonOption = Annotated[bool, typer.Option("--json", help="print exactly one JSON object on stdout")]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", help="write here instead of standard output")
]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="replace files that exist")]
DoubleOption = Annotated[bool, typer.Option("--float64", help="compute in double precision")]


def show(result: Mapping[str, Any], *, as_json: bool, title: str) -> None:
    """Print a result as one JSON object, or as a table followed by one for each breakdown."""
    if as_json:
        print(json.dumps(result))
        return
    from rich.console import Console
    from rich.table import Table

    from latentalign.cli.breakdowns import breakdown_table, is_breakdown

    table = Table(title=title, show_header=False)
    console = Console(file=sys.stdout)
    breakdowns = {name: value for name, value in result.items() if is_breakdown(value)}
    for name, value in result.items():
        if value is not None and name not in breakdowns:
            table.add_row(name, format_figure(value))
    console.print(table)
    for name, parts in breakdowns.items():
        console.print(breakdown_table(name, parts))


def format_figure(value: Any) -> str:
    """A figure for people: at most four decimals, an interval as `low .. high`."""
    if isinstance(value, float):
        return f"{value:.4f}".rstrip("0").rstrip(".")
    if isinstance(value, list) and len(value) == 2 and all(isinstance(end, float) for end in value):
        return " .. ".join(map(format_figure, value))
    return str(value)


def show_explained(
    result: Mapping[str, Any], notes: Mapping[str, FigureNote], *, as_json: bool, title: str
) -> None:
    """Print a result with the unit and the meaning of each figure; in JSON they stand under `explanations`."""
    known = {name: notes[name] for name in result if name in notes}
    if as_json:
        texts = {name: {"unit": note.unit, "meaning": note.meaning} for name, note in known.items()}
        print(json.dumps({**result, "explanations": texts}))
        return
    show(result, as_json=False, title=title)
    for name, note in known.items():
        if result[name] is not None:
            print(f"{name}{f' [{note.unit}]' if note.unit else ''}: {note.meaning}")


def write_lines(lines: Iterable[str], output: Path | None) -> None:
    """Print lines as they come, or write them into a file, completely or not at all."""
    from latentalign.errors import StorageError
    from latentalign.storage import write_text

    if output is not None:
        write_text(output, "".join(f"{line}\n" for line in lines))
        return
    if sys.stdout is None:
        raise StorageError("standard output is closed; open it, or write into a file with --output")
    for line in lines:
        print(line)
    sys.stdout.flush()
