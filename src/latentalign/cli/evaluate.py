"""latentalign evaluate RUN"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from latentalign.cli.common import (
    DeviceOption,
    DoubleOption,
    JsonOption,
    OverwriteOption,
    PredictOption,
    RunArgument,
    SetOption,
    SplitOption,
    show,
    show_explained,
)
from latentalign.cli.hints import suggest_after_evaluation

NAME = "evaluate"


def command(
    run: RunArgument,
    split: SplitOption = "test",
    override: SetOption = None,
    predict: PredictOption = None,
    beam: Annotated[int | None, typer.Option(help="translation: beam width")] = None,
    bleu: Annotated[bool, typer.Option(help="translation: translate the split and measure BLEU")] = True,
    details_file: Annotated[
        Path | None, typer.Option("--details", help="write scores and alignments of examples here (JSON)")
    ] = None,
    sentences: Annotated[int, typer.Option(help="examples whose alignments are in the details")] = 50,
    explain: Annotated[
        bool, typer.Option("--explain", help="say what each figure means, with its unit")
    ] = False,
    overwrite: OverwriteOption = False,
    device: DeviceOption = "cpu",
    double: DoubleOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure likelihoods, bounds, entropies and scores, and store them in the run."""
    from latentalign.storage import require_free, write_text
    from latentalign.tasks.base import EvaluationOptions
    from latentalign.tasks.evaluation import evaluate_and_store, replace_files
    from latentalign.tasks.registry import load_run

    if details_file is not None:
        require_free(details_file, overwrite=overwrite)
    task, trained = load_run(run, device=device, double=double)
    trained = replace_files(task, trained, split, override or [])
    count = sentences if details_file else None
    options = EvaluationOptions(predict, beam, outputs=bleu, details=count)
    result, details = evaluate_and_store(task, trained, split, options)
    if details_file:
        write_text(details_file, json.dumps(details))
    if explain:
        show_explained(result, task.figure_notes, as_json=as_json, title=f"{run} on {split}")
    else:
        show(result, as_json=as_json, title=f"{run} on {split}")
    if not as_json:
        suggest_after_evaluation(run)
