"""latentalign answer RUN --questions F --features F"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from latentalign.cli.common import DeviceOption, PredictOption, RunArgument, warn

NAME = "answer"


def command(
    run: RunArgument,
    questions: Annotated[Path, typer.Option(help="official questions JSON, plain or gzip")],
    features: Annotated[Path, typer.Option(help="a features file of `latentalign features`")],
    out: Annotated[Path | None, typer.Option(help="the official results file; default: stdout")] = None,
    predict: PredictOption = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace the results file")] = False,
    device: DeviceOption = "cpu",
) -> None:
    """Answer questions about pictures, in the official results format."""
    from latentalign.tasks.registry import load_run
    from latentalign.tasks.vqa.questions import write_results

    task, trained = load_run(run, device=device, ability="answer")
    answers = task.answer(trained, questions, features, predict=predict)
    if out is None:
        json.dump([{"question_id": i, "answer": a} for i, a in answers.items()], sys.stdout)
        print()
        return
    write_results(out, answers, overwrite=overwrite)
    warn(f"{len(answers)} answers written: {out}")
