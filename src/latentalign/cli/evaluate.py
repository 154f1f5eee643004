"""latentalign evaluate RUN"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from latentalign.cli.common import DeviceOption, DoubleOption, JsonOption, RunArgument, show

NAME = "evaluate"


def command(
    run: RunArgument,
    split: Annotated[str, typer.Option(help="train, valid or test")] = "test",
    predict: Annotated[
        str | None, typer.Option(help="exact, certified:TOL, kmax:K, soft or sample:N")
    ] = None,
    beam: Annotated[int | None, typer.Option(help="beam width for BLEU")] = None,
    bleu: Annotated[bool, typer.Option(help="translate the split too")] = True,
    details_file: Annotated[
        Path | None, typer.Option("--details", help="write scores of every example and alignments (JSON)")
    ] = None,
    sentences: Annotated[int, typer.Option(help="alignments among the details")] = 50,
    device: DeviceOption = "cpu",
    double: DoubleOption = False,
    as_json: JsonOption = False,
) -> None:
    """Likelihoods, bound and gap, entropies; BLEU, chrF and AER, or accuracies and grounding."""
    from latentalign.cli.tasks import is_vqa_run

    if is_vqa_run(run):
        from latentalign.tasks.vqa import details as vqa_details
        from latentalign.tasks.vqa import metrics as vqa_metrics
        from latentalign.tasks.vqa import task as vqa

        answering = vqa.Trained.load(run, device=device, double=double)
        result = vqa_metrics.evaluate(answering, split, predict=predict)
        if details_file:
            keep(details_file, vqa_details.details(answering, split, questions=sentences))
    else:
        from latentalign.tasks.nmt import details, metrics
        from latentalign.tasks.nmt.task import Trained
        from latentalign.tasks.nmt.translate import Settings

        trained = Trained.load(run, device=device, double=double)
        how = predict or trained.objective.predict
        outputs = None
        if bleu or details_file:
            settings = Settings(predict=how, beam=beam)
            outputs = metrics.translated(trained, metrics.split_of(trained, split), settings)
        result = metrics.evaluate(trained, split, predict=how, outputs=outputs)
        if details_file and outputs is not None:
            keep(details_file, details.details(trained, split, outputs, sentences=sentences))
    show(result, as_json=as_json, title=f"{run} on {split}")


def keep(path: Path, found: dict[str, Any]) -> None:
    """Details, as one line of JSON."""
    from latentalign.storage import write_bytes

    write_bytes(path, json.dumps(found).encode())
