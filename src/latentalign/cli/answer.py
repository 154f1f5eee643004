"""latentalign answer RUN --questions F --features F"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from latentalign.cli.common import DeviceOption, RunArgument, warn
from latentalign.errors import InputError

NAME = "answer"


def command(
    run: RunArgument,
    questions: Annotated[Path, typer.Option(help="official questions JSON, plain or gzip")],
    features: Annotated[Path, typer.Option(help="a features file of `latentalign features`")],
    out: Annotated[Path | None, typer.Option(help="the official results file; stdout without it")] = None,
    predict: Annotated[str | None, typer.Option(help="exact, kmax:K, soft or sample:N")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace the results file")] = False,
    device: DeviceOption = "cpu",
) -> None:
    """Answers of questions about pictures, in the official results format."""
    from latentalign.cli.tasks import is_vqa_run
    from latentalign.tasks.vqa.answer import answer_questions
    from latentalign.tasks.vqa.questions import write_results
    from latentalign.tasks.vqa.task import Trained

    if run.is_dir() and (run / "config.toml").is_file() and not is_vqa_run(run):
        raise InputError(f"{run}: a translation model answers no questions; `latentalign translate` uses it")
    trained = Trained.load(run, device=device)
    found = answer_questions(trained, questions, features, predict=predict)
    if out is None:
        json.dump([{"question_id": i, "answer": a} for i, a in found.items()], sys.stdout)
        print()
        return
    write_results(out, found, overwrite=overwrite)
    warn(f"{len(found)} answers written: {out}")
