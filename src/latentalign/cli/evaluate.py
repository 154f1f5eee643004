"""latentalign evaluate RUN"""

from __future__ import annotations

from typing import Annotated

import typer

from latentalign.cli.common import DeviceOption, DoubleOption, JsonOption, RunArgument, show
from latentalign.nmt.metrics import evaluate
from latentalign.nmt.task import Trained
from latentalign.nmt.translate import Settings

NAME = "evaluate"


def command(
    run: RunArgument,
    split: Annotated[str, typer.Option(help="train, valid or test")] = "test",
    predict: Annotated[
        str | None, typer.Option(help="exact, certified:TOL, kmax:K, soft or sample:N")
    ] = None,
    beam: Annotated[int | None, typer.Option(help="beam width for BLEU")] = None,
    bleu: Annotated[bool, typer.Option(help="translate the split too")] = True,
    device: DeviceOption = "cpu",
    double: DoubleOption = False,
    as_json: JsonOption = False,
) -> None:
    """Perplexities, bound and gap, entropies, BLEU and chrF, and AER where gold links exist."""
    trained = Trained.load(run, device=device, double=double)
    how = predict or trained.objective.predict
    result = evaluate(trained, split, predict=how, bleu=bleu, settings=Settings(predict=how, beam=beam))
    show(result, as_json=as_json, title=f"{run} on {split}")
