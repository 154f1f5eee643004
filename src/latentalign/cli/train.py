"""latentalign train RECIPE --out RUN"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latentalign.cli.common import JsonOption, show

NAME = "train"


def command(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="a TOML file, or a shipped one: nmt/demo")],
    out: Annotated[Path, typer.Option(help="the run directory")],
    objective: Annotated[str | None, typer.Option(help="a name of the table of objectives")] = None,
    override: Annotated[list[str] | None, typer.Option("--set", help="table.key=value, repeatable")] = None,
    resume: Annotated[bool, typer.Option(help="go on from the last checkpoint")] = False,
    overwrite: Annotated[bool, typer.Option(help="throw an earlier run in this directory away")] = False,
    as_json: JsonOption = False,
) -> None:
    """Train a model from plain files; what it needs besides is made on the way."""
    from latentalign import config as recipes
    from latentalign.cli.tasks import craft_of
    from latentalign.data.known import materialize
    from latentalign.training.run import Run

    changes = list(override or [])
    if objective is not None:
        changes.insert(0, f"objective.name={objective}")
    craft = craft_of(recipe)
    config = recipes.load(recipe, craft.recipe, changes)
    materialize(recipe, craft.needed(config))
    result = craft.train(config, Run(out), resume=resume, overwrite=overwrite)
    show({"run": str(out), "objective": config.objective.name, **result}, as_json=as_json, title="trained")
