"""latentalign diagnose RUN"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from latentalign.cli.common import DeviceOption, JsonOption, RunArgument, warn

NAME = "diagnose"


def command(
    run: RunArgument,
    out: Annotated[Path | None, typer.Option(help="where the page and the JSON go; RUN/diagnose")] = None,
    split: Annotated[str, typer.Option(help="train, valid or test")] = "test",
    sentences: Annotated[int, typer.Option(help="pairs or questions for bounds", min=1)] = 200,
    batch: Annotated[int, typer.Option(help="pairs or questions for gradients", min=1)] = 16,
    draws: Annotated[int, typer.Option(help="draws of every estimator", min=2)] = 50,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Bound gaps, bias and variance of every estimator's gradient, and Proposition 1's bound: a page and JSON."""
    from latentalign.cli.tasks import is_vqa_run
    from latentalign.reproduction.diagnosis_page import diagnosis_page
    from latentalign.storage import write_json
    from latentalign.web.pages import write_page

    sizes = {"sentences": sentences, "batch": batch, "draws": draws}
    if is_vqa_run(run):
        from latentalign.tasks.vqa import diagnose as vqa
        from latentalign.tasks.vqa import task as answering

        found = vqa.diagnose(answering.Trained.load(run, device=device), split, **sizes)
    else:
        from latentalign.tasks.nmt.diagnose import diagnose
        from latentalign.tasks.nmt.task import Trained

        found = diagnose(Trained.load(run, device=device), split, **sizes)
    folder = out or run / "diagnose"
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "diagnose.json", found)
    write_page(folder / "diagnose.html", diagnosis_page(f"{found['objective']}: {run.name}", found))
    if as_json:
        print(json.dumps(found))
    warn(f"written: {folder / 'diagnose.html'}")
