"""latentalign reproduce --out DIR"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latentalign.nmt import reproduce as nmt

NAME = "reproduce"


def command(
    out: Annotated[Path, typer.Option(help="where everything goes; finished rows are never trained again")],
    data: Annotated[str, typer.Option(help="demo, multi30k, iwslt14, or a recipe")] = "demo",
    rows: Annotated[str, typer.Option(help="comma-separated objectives")] = ",".join(nmt.ROWS),
    seeds: Annotated[int, typer.Option(help="trainings of each row")] = 1,
    jobs: Annotated[int, typer.Option(help="rows trained at a time; set training.threads to match")] = 1,
    override: Annotated[list[str] | None, typer.Option("--set", help="table.key=value, repeatable")] = None,
) -> None:
    """Train rows of the paper's tables, evaluate them alike, and write the tables."""
    plan = nmt.plan_for(data, rows.split(","), seeds, out, override or [], jobs=jobs)
    nmt.show(plan, nmt.reproduce(plan))
