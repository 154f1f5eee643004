"""latentalign check-data RECIPE"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from latentalign.cli.common import JsonOption, RecipeArgument, SetOption, warn
from latentalign.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from latentalign.tasks.text_checks.report import MisalignedOptions

NAME = "check-data"


def command(
    recipe: RecipeArgument,
    override: SetOption = None,
    strict: Annotated[bool, typer.Option(help="exit with code 2 if there are warnings")] = False,
    misaligned: Annotated[
        bool,
        typer.Option(
            "--misaligned", help="train a word aligner to find pairs that do not translate each other"
        ),
    ] = False,
    filtered: Annotated[
        Path | None,
        typer.Option(
            help="--misaligned, and write the splits without these and swapped pairs into this new folder"
        ),
    ] = None,
    json_wanted: JsonOption = False,
) -> None:
    """Find shifted lines, leaks, blanks and broken characters before training."""
    from rich.console import Console

    from latentalign.config import read_recipe
    from latentalign.data.known import materialize
    from latentalign.tasks.registry import require_ability, task_of_recipe

    source = read_recipe(recipe)
    task = task_of_recipe(source)
    require_ability(task, "check_data", recipe)
    config = source.build(task.recipe, override or [])
    materialize(task.required_file(config))
    result = task.check_data(config, make_options(misaligned, filtered))
    if json_wanted:
        print(json.dumps(result))
    else:
        Console(file=sys.stdout).print(counts_table(recipe, result["splits"]))
        for note in result["notes"]:
            print(f"note: {note}")
    for warning in result["warnings"]:
        warn(f"warning: {warning}")
    if strict and result["warnings"]:
        raise InputError(
            f"{recipe}: {len(result['warnings'])} warnings about its text, and --strict was given"
        )


def make_options(misaligned: bool, filtered: Path | None) -> MisalignedOptions | None:
    """How to look for misaligned pairs; None if that is not wanted, because it needs PyTorch and minutes."""
    if not misaligned and filtered is None:
        return None
    from latentalign.tasks.text_checks.report import MisalignedOptions

    return MisalignedOptions(filtered)


def counts_table(title: str, splits: dict[str, dict[str, Any]]) -> Table:
    """Counts of pairs by kind, one column per split; lists are counted."""
    from rich.table import Table

    table = Table("", *splits, title=title)
    for kind in next(iter(splits.values())):
        found = [counts[kind] for counts in splits.values()]
        numbers = (len(x) if isinstance(x, list) else x for x in found)
        table.add_row(kind.replace("_", " "), *(f"{number:,}" for number in numbers))
    return table
