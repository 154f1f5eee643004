"""latentalign translate RUN < source > target"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from latentalign.cli.common import DeviceOption, DoubleOption, PredictOption, RunArgument, warn

NAME = "translate"


def command(
    run: RunArgument,
    beam: Annotated[int | None, typer.Option(min=1, help="hypotheses kept at each step")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="GNMT's alpha at the final ranking")] = None,
    predict: PredictOption = None,
    nbest: Annotated[
        int,
        typer.Option(min=1, help="print N outputs per line: `line from 0 ||| text ||| score ||| log p`"),
    ] = 1,
    alignments: Annotated[
        Path | None, typer.Option(help="write the alignment of each output word here")
    ] = None,
    batch_tokens: Annotated[int, typer.Option(help="padded source tokens of a batch")] = 1024,
    device: DeviceOption = "cpu",
    double: DoubleOption = False,
) -> None:
    """Translate standard input to standard output, line by line."""
    from latentalign.storage import write_text
    from latentalign.tasks.registry import load_run
    from latentalign.textfiles import decode_lines

    task, trained = load_run(run, device=device, double=double, ability="translate")
    lines = list(decode_lines(sys.stdin.buffer, "standard input"))
    options = {"predict": predict, "beam": beam, "length_penalty": length_penalty}
    job = task.translate(trained, lines, nbest=nbest, batch_tokens=batch_tokens, **options)
    best = []
    for number, outputs in enumerate(job.translate()):
        best.append(outputs[0])
        for one in outputs[:nbest]:
            scores = f" ||| {one.score:.6f} ||| {one.log_prob:.6f}"
            print(one.text if nbest == 1 else f"{number} ||| {one.text}{scores}")
    sys.stdout.flush()
    if alignments is not None:
        records = job.alignment_records(best)
        write_text(alignments, "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records))
    if job.cut_lines:
        warn(
            f"{job.cut_lines} of {len(lines)} lines were longer than {job.settings.max_source} tokens and were cut"
        )
