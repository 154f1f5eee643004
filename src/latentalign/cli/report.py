"""latentalign report RUN... --out F.html"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latentalign.cli.common import DeviceOption, SplitOption, warn

NAME = "report"


def command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="run directories of the same data")],
    out: Annotated[Path, typer.Option(help="the page")],
    split: SplitOption = "test",
    sentences: Annotated[int, typer.Option(help="examples on the page", min=1)] = 50,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace the page")] = False,
    device: DeviceOption = "cpu",
) -> None:
    """Write one page about runs: figures, training curves and alignments."""
    from latentalign.reproduction.pages import runs_page
    from latentalign.storage import require_free
    from latentalign.tasks.base import require_one_task
    from latentalign.tasks.evaluation import evaluate_for_page
    from latentalign.tasks.registry import load_run
    from latentalign.web.pages import write_page

    require_free(out, overwrite=overwrite)
    loaded = [load_run(run, device=device) for run in runs]
    task = require_one_task([task for task, _ in loaded])
    evaluated = []
    for folder, (_, trained) in zip(runs, loaded, strict=True):
        shown, is_stored = evaluate_for_page(task, trained, split, examples=sentences)
        evaluated.append(shown)
        if is_stored:
            warn(
                f"{folder}: the figures are those of an earlier evaluation; model, data and options are the same"
            )
    write_page(out, runs_page(task.experiment(), evaluated, split))
    warn(f"written: {out}")
