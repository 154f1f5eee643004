"""latentalign align RUN --source F --target F"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from latentalign.cli.common import (
    DeviceOption,
    DoubleOption,
    OutputOption,
    OverwriteOption,
    RunArgument,
    write_lines,
)
from latentalign.errors import InputError

NAME = "align"


def command(
    run: RunArgument,
    source: Annotated[
        Path | None, typer.Option(help="text in the language that the run translates from")
    ] = None,
    target: Annotated[
        Path | None, typer.Option(help="text in the language that the run translates into")
    ] = None,
    pairs: Annotated[
        Path | None, typer.Option(help="source and target in two columns, separated by a tab, in one file")
    ] = None,
    using: Annotated[
        str, typer.Option(help="prior, inferred, posterior or path (the best one)")
    ] = "posterior",
    layout: Annotated[str, typer.Option("--format", help="pharaoh or json")] = "pharaoh",
    threshold: Annotated[
        str,
        typer.Option(help="leave out words whose best link is less probable; auto: best expected F1"),
    ] = "0",
    at_least: Annotated[
        float | None, typer.Option(help="keep every link of at least this probability")
    ] = None,
    back: Annotated[Path | None, typer.Option("--reverse", help="a run of the other direction")] = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--symmetrize", help="how to combine both directions, with --reverse [grow-diag-final-and]"
        ),
    ] = None,
    output: OutputOption = None,
    overwrite: OverwriteOption = False,
    device: DeviceOption = "cpu",
    double: DoubleOption = False,
) -> None:
    """Align the words of sentence pairs, one line per pair."""
    from latentalign.storage import require_free
    from latentalign.tasks.registry import load_run
    from latentalign.textfiles import open_pairs

    if layout not in ("pharaoh", "json"):
        raise InputError(f"--format must be one of pharaoh, json, got {layout!r}")
    if output is not None:
        require_free(output, overwrite=overwrite)
    text = open_pairs(source, target, pairs)
    task, trained = load_run(run, device=device, double=double, ability="align")
    other = load_run(back, device=device, double=double, ability="align")[1] if back else None
    rule = {
        "using": using,
        "threshold": parse_threshold(threshold),
        "at_least": at_least,
        "symmetrize": method,
    }
    aligned = task.align(trained, text, reverse=other, **rule)
    records = (json.dumps(record, ensure_ascii=False) for record in aligned.records())
    write_lines(aligned.pharaoh() if layout == "pharaoh" else records, output)


def parse_threshold(text: str) -> float | None:
    """The number of `--threshold`; None for `auto`."""
    if text == "auto":
        return None
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--threshold must be a number or auto, got {text!r}") from None
