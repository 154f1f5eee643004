"""latentalign recipe list, latentalign recipe show NAME"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from latentalign.cli.common import JsonOption, RecipeArgument, SetOption
from latentalign.cli.guard import guard

NAME = "recipe"
app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="List the shipped recipes, or show one completely."
)


def list_recipes(as_json: JsonOption = False) -> None:
    """List the shipped recipes: name, task and purpose."""
    from latentalign.config import read_recipe, shipped_description, shipped_recipes

    tables = {name: read_recipe(name).merged_table for name in shipped_recipes()}
    rows = [
        {"name": name, "task": str(table["task"]), "description": shipped_description(name)}
        for name, table in tables.items()
    ]
    if as_json:
        print(json.dumps({"recipes": rows}))
        return
    widths = [max(len(row[key]) for row in rows) for key in ("name", "task")]
    for row in rows:
        print(f"{row['name']:<{widths[0]}}  {row['task']:<{widths[1]}}  {row['description']}")


def show_recipe(
    recipe: RecipeArgument,
    override: SetOption = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="write the meaning of each key above it")
    ] = False,
) -> None:
    """Print a recipe as it takes effect: every key with its value, as TOML that `train` accepts."""
    from latentalign.config import read_recipe
    from latentalign.recipe_text import recipe_text
    from latentalign.tasks.registry import task_of_recipe

    source = read_recipe(recipe)
    config = source.build(task_of_recipe(source).recipe, override or [])
    print(recipe_text(config, explain=explain), end="")


HELP_NAMES = {"help_option_names": ["-h", "--help"]}
app.command("list", context_settings=HELP_NAMES)(guard(list_recipes))
app.command("show", context_settings=HELP_NAMES)(guard(show_recipe))
