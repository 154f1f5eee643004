"""latentalign accuracy --annotations F --predicted F"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from latentalign.cli.common import JsonOption, show

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
    result: dict[str, Any] = {
        "questions": found.questions,
        "accuracy_paper": 100 * found.paper,
        "accuracy_official": None if found.official is None else 100 * found.official,
        "exact_match": 100 * found.exact,
        f"votes covered by {answers} answers (%)": 100 * coverage.votes,
        f"questions covered by {answers} answers (%)": 100 * coverage.questions,
    }
    if as_json:
        kinds = {n: asdict(s) for n, s in found.by_question_type.items()}
        types = {n: asdict(s) for n, s in found.by_answer_type.items()}
        result |= {"by_question_type": kinds, "by_answer_type": types}
    else:
        for name, score in found.by_answer_type.items():
            result[f"official, {name}"] = None if score.official is None else 100 * score.official
    show(result, as_json=as_json, title=str(predicted))
