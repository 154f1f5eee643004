"""latentalign report RUN... --out F.html"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latentalign.cli.common import DeviceOption, warn
from latentalign.errors import InputError

NAME = "report"


def command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="run directories of the same data")],
    out: Annotated[Path, typer.Option(help="the page")],
    split: Annotated[str, typer.Option(help="train, valid or test")] = "test",
    sentences: Annotated[int, typer.Option(help="alignments to look at", min=1)] = 50,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace the page")] = False,
    device: DeviceOption = "cpu",
) -> None:
    """One page without network: figures of the runs, their training curves, and alignments to look at."""
    from latentalign.cli.tasks import is_vqa_run
    from latentalign.reproduction.pages import runs_page
    from latentalign.web.pages import require_free, write_page

    require_free(out, overwrite=overwrite)
    kinds = {is_vqa_run(run) for run in runs}
    if len(kinds) > 1:
        raise InputError("translation and question answering do not fit one page; make one for each")
    if kinds == {True}:
        from latentalign.tasks.vqa.experiment import EXPERIMENT
        from latentalign.tasks.vqa.report import evaluate_run
    else:
        from latentalign.tasks.nmt.experiment import EXPERIMENT
        from latentalign.tasks.nmt.report import evaluate_run
    evaluated = [evaluate_run(run, split, sentences=sentences, device=device) for run in runs]
    write_page(out, runs_page(EXPERIMENT, evaluated, split))
    warn(f"written: {out}")
