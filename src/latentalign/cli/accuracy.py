"""latentalign accuracy --annotations F --predicted F"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from latentalign.cli.common import JsonOption, show, warn

NAME = "accuracy"


def command(
    annotations: Annotated[Path, typer.Option(help="official annotations JSON, plain or gzip")],
    predicted: Annotated[Path, typer.Option(help="official results JSON, as `latentalign answer` writes it")],
    answers: Annotated[
        int, typer.Option(help="size of the answer vocabulary whose coverage is printed", min=1)
    ] = 3000,
    as_json: JsonOption = False,
) -> None:
    """Score predicted answers, and measure what an answer vocabulary covers."""
    from latentalign.tasks.vqa.accuracy import accuracies
    from latentalign.tasks.vqa.questions import answer_vocabulary, read_annotations, read_results

    humans = read_annotations(annotations)
    found = accuracies(read_results(predicted), humans)
    _, coverage = answer_vocabulary(humans, answers)
    covered = {
        f"votes covered by {answers} answers (%)": 100 * coverage.votes,
        f"questions covered by {answers} answers (%)": 100 * coverage.questions,
    }
    result: dict[str, Any] = {**found.figures(), **covered, **found.breakdowns()}
    if found.warning():
        warn(f"{annotations}: {found.warning()}")
    show(result, as_json=as_json, title=str(predicted))
