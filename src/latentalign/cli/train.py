"""latentalign train RECIPE --out RUN"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latentalign.cli.common import JsonOption, RecipeArgument, SetOption, show
from latentalign.cli.guard import is_leader
from latentalign.cli.hints import suggest_after_training
from latentalign.interrupts import say_how_to_continue
from latentalign.progress import inform

NAME = "train"


def command(
    recipe: RecipeArgument,
    out: Annotated[Path, typer.Option(help="the run directory")],
    objective: Annotated[str | None, typer.Option(help="the name of an objective")] = None,
    override: SetOption = None,
    resume: Annotated[bool, typer.Option(help="continue from the last checkpoint")] = False,
    overwrite: Annotated[bool, typer.Option(help="replace an earlier run in this directory")] = False,
    as_json: JsonOption = False,
) -> None:
    """Train a model from plain files."""
    from latentalign.config import read_recipe
    from latentalign.data.known import materialize
    from latentalign.tasks.registry import task_of_recipe
    from latentalign.training.phases import sentence
    from latentalign.training.run import Run

    changes = [*([f"objective.name={objective}"] if objective else []), *(override or [])]
    source = read_recipe(recipe)
    task = task_of_recipe(source)
    config = source.build(
        task.recipe, changes, flags={"objective.name": "--objective"} if objective else None
    )
    task.check(config)
    Run(out).check_free(resume=resume, overwrite=overwrite)
    if resume and not out.exists() and is_leader():
        inform(f"{out}: there is no run to continue; training starts from the beginning")
    materialize(task.required_file(config))
    with say_how_to_continue("--resume", without=["--overwrite"]):
        result = task.train(config, Run(out), resume=resume, overwrite=overwrite)
    shown = {"run": str(out), "objective": config.objective.name, **result}
    if not as_json:
        shown |= {"phases": None, **{phase["phase"]: sentence(phase) for phase in result["phases"]}}
    show(shown, as_json=as_json, title="trained")
    if not as_json:
        suggest_after_training(out)
