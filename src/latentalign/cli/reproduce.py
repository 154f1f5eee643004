"""latentalign reproduce --out DIR"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latentalign.errors import InputError

NAME = "reproduce"


def command(
    out: Annotated[Path, typer.Option(help="where everything goes; finished rows are never trained again")],
    data: Annotated[
        str | None, typer.Option(help="demo, multi30k, iwslt14, scenes, daquar, vqa2, or a recipe")
    ] = None,
    task: Annotated[str | None, typer.Option(help="nmt or vqa; that of the data without it")] = None,
    rows: Annotated[str | None, typer.Option(help="comma-separated rows; the tables' without it")] = None,
    seeds: Annotated[int, typer.Option(help="trainings of each row", min=1)] = 1,
    jobs: Annotated[
        int, typer.Option(help="rows trained at a time; set training.threads to match", min=1)
    ] = 1,
    budget: Annotated[float | None, typer.Option(help="minutes after which a row's training ends")] = None,
    ablations: Annotated[
        bool, typer.Option("--ablations", help="what matters: one change at a time")
    ] = False,
    override: Annotated[list[str] | None, typer.Option("--set", help="table.key=value, repeatable")] = None,
) -> None:
    """Train rows of the paper's tables, evaluate them alike, and write tables, figures and a page."""
    from latentalign.reproduction.plan import make_plan
    from latentalign.reproduction.run import reproduce
    from latentalign.reproduction.terminal import show_results

    if task_of(task, data) == "vqa":
        from latentalign.tasks.vqa.experiment import EXPERIMENT
    else:
        from latentalign.tasks.nmt.experiment import EXPERIMENT
    names = rows.split(",") if rows else None
    chosen = {"seeds": seeds, "out": out, "overrides": override or [], "jobs": jobs, "budget": budget}
    plan = make_plan(EXPERIMENT, data, names, **chosen, ablations=ablations)
    results, failures = reproduce(plan)
    show_results(plan, results)
    if failures:
        raise typer.Exit(failures[0].code)


def task_of(task: str | None, data: str | None) -> str:
    """The task that was asked for, or that of the data."""
    from latentalign.cli.tasks import is_vqa
    from latentalign.config import shipped_recipes

    if task not in (None, "nmt", "vqa"):
        raise InputError(f"unknown task {task!r}; choose nmt or vqa")
    if data is None or data in ("demo", "scenes"):
        return task or ("vqa" if data == "scenes" else "nmt")
    names = [data] if data.endswith(".toml") or "/" in data else [f"nmt/{data}", f"vqa/{data}"]
    found = next((name for name in names if name in shipped_recipes()), names[0])
    return task or ("vqa" if is_vqa(found) else "nmt")
