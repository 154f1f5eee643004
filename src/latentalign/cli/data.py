"""latentalign data NAME"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latentalign.cli.common import warn
from latentalign.cli.hints import suggest_after_data

NAME = "data"


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="demo, multi30k, scenes, daquar, ...")],
    source: Annotated[Path | None, typer.Option("--from", help="a local copy instead of a download")] = None,
    out: Annotated[Path | None, typer.Option(help="where to put it; default ./latentalign-data/NAME")] = None,
    overwrite: Annotated[bool, typer.Option(help="replace files that exist")] = False,
) -> None:
    """Fetch, copy or generate a known data set, and check it."""
    from latentalign.data import known

    folder = out or known.HOME / name
    for line in known.obtain(name, source=source, out=folder, overwrite=overwrite):
        warn(line)
    suggest_after_data(name, folder, known.HOME)
