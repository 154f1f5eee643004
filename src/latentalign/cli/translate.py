"""latentalign translate RUN < source > target"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from latentalign.cli.common import (
    DeviceOption,
    DoubleOption,
    OutputOption,
    OverwriteOption,
    PredictOption,
    RunArgument,
    inform,
    warn,
    write_lines,
)
from latentalign.errors import InputError
from latentalign.progress import Bars

NAME = "translate"


def command(
    run: RunArgument,
    source: Annotated[
        Path | None, typer.Option("--input", "-i", help="read this file instead of standard input")
    ] = None,
    output: OutputOption = None,
    beam: Annotated[int | None, typer.Option(min=1, help="hypotheses kept at each step")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="GNMT's alpha at the final ranking")] = None,
    predict: PredictOption = None,
    nbest: Annotated[
        int,
        typer.Option(min=1, help="print N outputs per line: `line from 0 ||| text ||| score ||| log p`"),
    ] = 1,
    alignments: Annotated[
        Path | None, typer.Option(help="write the word links of each output here, one JSON object per line")
    ] = None,
    markup: Annotated[
        str | None,
        typer.Option(
            help="html, xml or placeholders: translate the text and move the markup along the word links"
        ),
    ] = None,
    lexicon: Annotated[
        Path | None,
        typer.Option(help="translations to use: source, tab, target, and optionally a tab and a weight"),
    ] = None,
    lexicon_weight: Annotated[
        float | None, typer.Option(help="strength of the lexicon in nats; 0 only counts  [default: 20]")
    ] = None,
    overwrite: OverwriteOption = False,
    batch_tokens: Annotated[int, typer.Option(help="padded source tokens of a batch")] = 1024,
    device: DeviceOption = "cpu",
    double: DoubleOption = False,
) -> None:
    """Translate standard input to standard output, or a file to a file, line by line."""
    from latentalign.storage import require_free
    from latentalign.tasks.marked_text import parse_lines
    from latentalign.tasks.registry import load_run
    from latentalign.textfiles import read_lines, read_stdin

    for path in (output, alignments):
        if path is not None:
            require_free(path, overwrite=overwrite)
    if lexicon is None and lexicon_weight is not None:
        raise InputError("--lexicon-weight has no effect without --lexicon")
    task, trained = load_run(run, device=device, double=double, ability="translate")
    lines = list(read_lines(source) if source else read_stdin())
    options: dict[str, Any] = {"predict": predict, "beam": beam, "length_penalty": length_penalty}
    options |= {"nbest": nbest, "batch_tokens": batch_tokens, "lexicon": lexicon}
    options |= {} if lexicon_weight is None else {"lexicon_weight": lexicon_weight}
    if markup is None:
        job = task.translate(trained, lines, **options)
    else:
        documents = parse_lines(lines, source or "standard input", markup)
        job = task.translate_marked(trained, documents, **options)
    found: list[list[Any]] = []
    with Bars(shown=output is not None or not sys.stdout.isatty()) as bars:
        bar = bars.add("translating", len(lines), unit="lines")
        write_lines(_format_outputs(job.translate(bar.advance), nbest, found), output)
    if alignments is not None:
        records = job.alignment_records(found)
        write_lines((json.dumps(record, ensure_ascii=False) for record in records), alignments)
    for text in job.lexicon_summary(found):
        inform(text)
    if job.cut_lines:
        warn(
            f"{job.cut_lines} of {len(lines)} lines were longer than {job.settings.max_source} tokens and were cut"
        )


def _format_outputs(translated: Iterator[list[Any]], nbest: int, found: list[list[Any]]) -> Iterator[str]:
    """The lines to print. The translations behind them are appended to `found`."""
    for number, outputs in enumerate(translated):
        found.append(outputs[:nbest])
        for one in found[-1]:
            scores = f" ||| {one.score:.6f} ||| {one.log_prob:.6f}"
            yield one.printed if nbest == 1 else f"{number} ||| {one.printed}{scores}"
