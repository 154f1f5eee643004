"""latentalign translate RUN < source > target"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from latentalign.cli.common import DeviceOption, DoubleOption, RunArgument, warn

NAME = "translate"


def command(
    run: RunArgument,
    beam: Annotated[int | None, typer.Option(min=1, help="hypotheses kept at each step")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="GNMT's alpha at the final ranking")] = None,
    predict: Annotated[
        str | None, typer.Option(help="exact, certified:TOL, kmax:K, soft or sample:N")
    ] = None,
    nbest: Annotated[
        int,
        typer.Option(
            min=1, help="print N outputs a line, as `line from 0 ||| text ||| score ||| log-probability`"
        ),
    ] = 1,
    alignments: Annotated[
        Path | None, typer.Option(help="write the alignment of each output word here")
    ] = None,
    batch_tokens: Annotated[int, typer.Option(help="padded source tokens of a batch")] = 1024,
    device: DeviceOption = "cpu",
    double: DoubleOption = False,
) -> None:
    """Translate standard input to standard output: N lines in, N lines out."""
    from latentalign.cli.tasks import require_nmt
    from latentalign.storage import write_bytes
    from latentalign.tasks.nmt.task import Trained
    from latentalign.tasks.nmt.translate import Settings, output_alignments, translate_lines
    from latentalign.textfiles import decode_lines

    require_nmt(run, "translate")
    trained = Trained.load(run, device=device, double=double)
    settings = Settings(predict, beam, length_penalty, nbest, batch_tokens)
    lines = list(decode_lines(sys.stdin.buffer, "standard input"))
    best = []
    for number, outputs in enumerate(translate_lines(trained, lines, settings)):
        best.append(outputs[0])
        for one in outputs[:nbest]:
            print(
                one.text
                if nbest == 1
                else f"{number} ||| {one.text} ||| {one.score:.6f} ||| {one.log_prob:.6f}"
            )
    sys.stdout.flush()
    if alignments is not None:
        records = []
        for line, output, found in zip(lines, best, output_alignments(trained, lines, best), strict=True):
            words = {"source": trained.tokenizer.words(line), "target": output.text.split()}
            links = found.to_json(found.best())
            records.append({**words, "links": links, "entropy": [round(float(e), 6) for e in found.entropy]})
        write_bytes(alignments, "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records).encode())
    cut = sum(len(e.ids) > settings.max_source for e in trained.tokenizer.encode_source_batch(lines))
    if cut:
        warn(f"{cut} of {len(lines)} lines were longer than {settings.max_source} tokens and were cut")
