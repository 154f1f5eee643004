"""latentalign features SOURCE --out FILE"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from latentalign.cli.common import JsonOption, show
from latentalign.errors import InputError
from latentalign.tasks.vqa import layouts
from latentalign.tasks.vqa.extract import EXTRACTORS, extract
from latentalign.tasks.vqa.features import DTYPES, MAX_REGIONS, Regions, write_features

NAME = "features"


def command(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="a file or folder of features, or pictures")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="the features file to write (.safetensors)")],
    layout: Annotated[
        str | None, typer.Option(help=f"one of {', '.join(layouts.LAYOUTS)}; default: judged by content")
    ] = None,
    extractor: Annotated[
        str | None, typer.Option(help=f"SOURCE is a folder of pictures: {', '.join(EXTRACTORS)}")
    ] = None,
    ids: Annotated[
        Path | None, typer.Option(metavar="FILE", help="image ids, where SOURCE has none: JSON list or lines")
    ] = None,
    max_regions: Annotated[
        int | None,
        typer.Option(help=f"keep the first of a picture, 0 = all; default {MAX_REGIONS}, grids: 0"),
    ] = None,
    dtype: Annotated[str, typer.Option(help=" or ".join(DTYPES))] = "float32",
    overwrite: Annotated[bool, typer.Option(help="replace FILE if it exists")] = False,
    json_wanted: JsonOption = False,
) -> None:
    """Convert region features, or compute those of pictures, into one file that training reads in place."""
    if extractor is not None:
        if layout is not None or ids is not None:
            raise InputError("--layout and --ids describe features; leave them out with --extractor")
        name, pictures = extractor, extract(source, extractor)
    else:
        name = layout or layouts.sniff(source)
        pictures = layouts.read(source, name, ids)
    if max_regions is None:
        max_regions = MAX_REGIONS if extractor is None and name != "npy" else 0
    summary = write_features(
        out, _counted(pictures, name), layout=name, max_regions=max_regions, dtype=dtype, overwrite=overwrite
    )
    show({"file": str(out), "layout": name, **asdict(summary)}, as_json=json_wanted, title="features")


def _counted(pictures: Iterable[Regions], name: str) -> Iterator[Regions]:
    """The same pictures, counted on stderr while they pass."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(name)
        for number, picture in enumerate(pictures, start=1):
            progress.update(task, description=f"{name}: {number:,} pictures")
            yield picture
