"""latentalign evaluate RUN"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from latentalign.cli.common import DeviceOption, DoubleOption, JsonOption, RunArgument, show
from latentalign.nmt.details import details
from latentalign.nmt.metrics import evaluate, split_of, translated
from latentalign.nmt.task import Trained
from latentalign.nmt.translate import Settings
from latentalign.training.checkpoint import write_bytes_atomic

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
        Path | None,
        typer.Option("--details", help="write sentence scores, K-max curve and alignments (JSON)"),
    ] = None,
    sentences: Annotated[int, typer.Option(help="alignments among the details")] = 50,
    device: DeviceOption = "cpu",
    double: DoubleOption = False,
    as_json: JsonOption = False,
) -> None:
    """Perplexities, bound and gap, entropies, BLEU and chrF, and AER where gold links exist."""
    trained = Trained.load(run, device=device, double=double)
    how = predict or trained.objective.predict
    outputs = None
    if bleu or details_file:
        outputs = translated(trained, split_of(trained, split), Settings(predict=how, beam=beam))
    result = evaluate(trained, split, predict=how, outputs=outputs)
    if details_file and outputs is not None:
        found = details(trained, split, outputs, sentences=sentences)
        write_bytes_atomic(details_file, json.dumps(found).encode())
    show(result, as_json=as_json, title=f"{run} on {split}")
