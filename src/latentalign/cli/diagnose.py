"""latentalign diagnose RUN"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from latentalign.cli.common import DeviceOption, JsonOption, RunArgument, SplitOption, warn

NAME = "diagnose"


def command(
    run: RunArgument,
    out: Annotated[Path | None, typer.Option(help="folder of the page and the JSON; RUN/diagnose")] = None,
    split: SplitOption = "test",
    sentences: Annotated[int, typer.Option(help="examples for bounds", min=1)] = 200,
    batch: Annotated[int, typer.Option(help="examples for gradients", min=1)] = 16,
    draws: Annotated[int, typer.Option(help="draws of every estimator", min=2)] = 50,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Measure gaps of bounds, and bias and variance of gradients: a page and JSON."""
    from latentalign.reproduction.diagnosis_page import diagnosis_page
    from latentalign.storage import write_json
    from latentalign.tasks.registry import load_run
    from latentalign.web.pages import write_page

    task, trained = load_run(run, device=device)
    found = task.diagnose(trained, split, examples=sentences, batch=batch, draws=draws)
    folder = out or run / "diagnose"
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "diagnose.json", found)
    write_page(folder / "diagnose.html", diagnosis_page(f"{found['objective']}: {run.name}", found))
    if as_json:
        print(json.dumps(found))
    warn(f"written: {folder / 'diagnose.html'}")
