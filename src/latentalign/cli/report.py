"""latentalign report RUN... --out F.html"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latentalign.cli.common import DeviceOption, warn

NAME = "report"


def command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="run directories of the same data")],
    out: Annotated[Path, typer.Option(help="the page")],
    split: Annotated[str, typer.Option(help="train, valid or test")] = "test",
    sentences: Annotated[int, typer.Option(help="alignments to look at")] = 50,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace the page")] = False,
    device: DeviceOption = "cpu",
) -> None:
    """One page without network: figures of the runs, their training curves, and alignments to look at."""
    from latentalign.nmt.report import page_of_runs
    from latentalign.reproduction.page import require_free, write_page

    require_free(out, overwrite=overwrite)
    write_page(out, page_of_runs(runs, split, sentences=sentences, device=device))
    warn(f"written: {out}")
