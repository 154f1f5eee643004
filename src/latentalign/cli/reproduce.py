"""latentalign reproduce --out DIR"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latentalign.cli.common import SetOption
from latentalign.interrupts import say_how_to_continue

NAME = "reproduce"


def command(
    out: Annotated[Path, typer.Option(help="folder of all results; finished rows are not trained again")],
    data: Annotated[
        str | None, typer.Option(help="demo, multi30k, iwslt14, scenes, daquar, vqa2, or a recipe")
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="nmt, vqa or alignment; default: the task of the data")
    ] = None,
    rows: Annotated[
        str | None, typer.Option(help="comma-separated rows; default: those of the tables")
    ] = None,
    seeds: Annotated[int, typer.Option(help="training runs of each row", min=1)] = 1,
    jobs: Annotated[
        int, typer.Option(help="rows trained at the same time; set training.threads to match", min=1)
    ] = 1,
    budget: Annotated[float | None, typer.Option(help="minutes after which a row's training ends")] = None,
    ablations: Annotated[bool, typer.Option("--ablations", help="change one thing at a time")] = False,
    override: SetOption = None,
) -> None:
    """Train the rows of the paper's tables, evaluate them, and write tables, figures and a page."""
    from latentalign.reproduction.plan import make_plan
    from latentalign.reproduction.run import reproduce
    from latentalign.reproduction.terminal import show_results
    from latentalign.storage import require_folder_place
    from latentalign.tasks.registry import task_named, task_of_data

    chosen = task_named(task) if task else task_of_data(data)
    names = rows.split(",") if rows else None
    plan = make_plan(
        chosen.experiment(),
        data,
        names,
        out=out,
        seeds=seeds,
        overrides=override or [],
        jobs=jobs,
        budget=budget,
        ablations=ablations,
    )
    require_folder_place(out)
    chosen.check(plan.config)
    with say_how_to_continue():
        plan.write_data()
        chosen.check_files(plan.config)
        results, failures = reproduce(plan)
    show_results(plan, results)
    if failures:
        raise typer.Exit(failures[0].code)
