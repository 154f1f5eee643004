"""latentalign reproduce --out DIR"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

NAME = "reproduce"


def command(
    out: Annotated[Path, typer.Option(help="where everything goes; finished rows are never trained again")],
    data: Annotated[str, typer.Option(help="demo, multi30k, iwslt14, or a recipe")] = "demo",
    rows: Annotated[str | None, typer.Option(help="comma-separated rows; all of them without it")] = None,
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
    from latentalign.nmt import reproduce as nmt

    plan = nmt.plan_for(
        data,
        rows.split(",") if rows else None,
        seeds=seeds,
        out=out,
        overrides=override or [],
        jobs=jobs,
        budget=budget,
        ablations=ablations,
    )
    nmt.show(plan, nmt.reproduce(plan, ablations=ablations))
