"""latentalign convert RUN --objective NAME --out NEW"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latentalign.cli.common import JsonOption, OverwriteOption, RunArgument, SetOption, show
from latentalign.cli.hints import suggest_after_converting

NAME = "convert"


def command(
    run: RunArgument,
    objective: Annotated[str, typer.Option(help="the name of the new objective")],
    out: Annotated[Path, typer.Option(help="the new run directory")],
    override: SetOption = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Turn a run into one of another objective, such as soft attention into a latent model."""
    from latentalign.tasks.registry import task_of_run
    from latentalign.training.convert import convert_run
    from latentalign.training.run import Run

    task, _ = task_of_run(run)
    found = convert_run(
        task, Run(run), Run(out), objective=objective, overrides=override or [], overwrite=overwrite
    )
    show(found, as_json=as_json, title="converted")
    if not as_json:
        suggest_after_converting(out)
