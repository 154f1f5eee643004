"""latentalign check-data RECIPE"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from latentalign.cli.common import JsonOption, warn
from latentalign.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from latentalign.tasks.nmt.check import SplitReport

NAME = "check-data"


def command(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="a TOML file, or a shipped one: nmt/demo")],
    override: Annotated[list[str] | None, typer.Option("--set", help="table.key=value, repeatable")] = None,
    strict: Annotated[bool, typer.Option(help="end with code 2 when there are warnings")] = False,
    json_wanted: JsonOption = False,
) -> None:
    """Look for flaws of a recipe's text before training: shifted lines, leaks, blanks, broken characters."""
    from rich.console import Console

    from latentalign import config as recipes
    from latentalign.cli.tasks import is_vqa
    from latentalign.data.known import materialize
    from latentalign.tasks.nmt.check import as_json, check
    from latentalign.tasks.nmt.task import TRANSLATION, NMTConfig

    if is_vqa(recipe):
        raise InputError(
            f"{recipe}: check-data looks at parallel text; questions are checked when they are read"
        )
    config = recipes.load(recipe, NMTConfig, override or [])
    materialize(recipe, TRANSLATION.needed(config))
    reports = check(config.data)
    result = as_json(reports)
    if json_wanted:
        print(json.dumps(result))
    else:
        Console(file=sys.stdout).print(_table(recipe, reports))
        for note in result["notes"]:
            print(f"note: {note}")
    for warning in result["warnings"]:
        warn(f"warning: {warning}")
    if strict and result["warnings"]:
        raise InputError(
            f"{recipe}: {len(result['warnings'])} warnings about its text, and --strict was given"
        )


def _table(title: str, reports: dict[str, SplitReport]) -> Table:
    """Counts of pairs, a column for each split."""
    from rich.table import Table

    table = Table("", *reports, title=title)
    for kind in next(iter(reports.values())).counts:
        table.add_row(kind.replace("_", " "), *(f"{report.counts[kind]:,}" for report in reports.values()))
    table.add_row("shifts", *(str(len(report.shifts)) for report in reports.values()))
    return table
