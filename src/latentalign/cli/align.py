"""latentalign align [RUN] --source F --target F"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from latentalign.cli.common import (
    DeviceOption,
    DoubleOption,
    OutputOption,
    OverwriteOption,
    write_lines,
)
from latentalign.errors import InputError

NAME = "align"


def command(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="[RUN]", help="a run directory; without it, an aligner is trained on the text first"
        ),
    ] = None,
    source: Annotated[
        Path | None, typer.Option(help="one sentence per line; of a run, in the language it translates from")
    ] = None,
    target: Annotated[Path | None, typer.Option(help="the translations, line by line")] = None,
    pairs: Annotated[
        Path | None, typer.Option(help="source and target in two columns, separated by a tab, in one file")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="without RUN: keep the aligner in this run directory")
    ] = None,
    tokenize: Annotated[
        str | None,
        typer.Option(
            help="without RUN: words (separated by spaces) or characters; `characters,words` if the target differs"
        ),
    ] = None,
    using: Annotated[
        str,
        typer.Option(help="posterior or path (the best one); of a translation run also prior or inferred"),
    ] = "posterior",
    layout: Annotated[str, typer.Option("--format", help="pharaoh or json")] = "pharaoh",
    threshold: Annotated[
        str | None,
        typer.Option(
            help="leave out less probable links; auto: best expected F1 [translation run: 0, else auto]"
        ),
    ] = None,
    at_least: Annotated[
        float | None, typer.Option(help="keep every link of at least this probability")
    ] = None,
    back: Annotated[Path | None, typer.Option("--reverse", help="a run of the other direction")] = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--symmetrize",
            help="how to combine directions: mean or product of probabilities (aligner), intersection, union, "
            "grow-diag, grow-diag-final, grow-diag-final-and [aligner: mean; with --reverse: the last]",
        ),
    ] = None,
    lexicon: Annotated[
        Path | None,
        typer.Option(help="translation run: known translations as evidence (source, tab, target)"),
    ] = None,
    lexicon_weight: Annotated[
        float | None, typer.Option(help="how much the lexicon is worth, in nats  [default: 3]")
    ] = None,
    nbest: Annotated[int, typer.Option(min=0, help="aligner, json: add this many paths per direction")] = 0,
    phrases: Annotated[
        int, typer.Option(min=0, help="aligner, json: add phrase pairs of up to this many words")
    ] = 0,
    output: OutputOption = None,
    overwrite: OverwriteOption = False,
    device: DeviceOption = "cpu",
    double: DoubleOption = False,
) -> None:
    """Align the words of sentence pairs, one line per pair."""
    from latentalign.storage import require_free
    from latentalign.tasks.registry import load_run
    from latentalign.textfiles import open_pairs

    if layout not in ("pharaoh", "json"):
        raise InputError(f"--format must be one of pharaoh, json, got {layout!r}")
    for option, count in (("--nbest", nbest), ("--phrases", phrases)):
        if count and layout != "json":
            raise InputError(f"{option} needs --format json: a line of {layout} has links only")
    if output is not None:
        require_free(output, overwrite=overwrite)
    options: dict[str, Any] = {"using": using, "at_least": at_least, "symmetrize": method}
    options |= {} if threshold is None else {"threshold": parse_threshold(threshold)}
    options |= {name: count for name, count in (("nbest", nbest), ("phrases", phrases)) if count}
    options |= {} if lexicon is None else {"lexicon": lexicon, "lexicon_weight": lexicon_weight}
    if lexicon is None and lexicon_weight is not None:
        raise InputError("--lexicon-weight has no effect without --lexicon")
    if run is None:
        if lexicon is not None:
            raise InputError("--lexicon belongs to a translation run; pass its directory")
        if back is not None:
            raise InputError("--reverse belongs to a translation run; an aligner learns both directions")
        task, trained = train_on_text(
            source, target, pairs, save=save, tokenize=tokenize, overwrite=overwrite, options=options
        )
    else:
        if save is not None or tokenize is not None:
            raise InputError("--save and --tokenize apply if there is no RUN, when an aligner is trained")
        task, trained = load_run(run, device=device, double=double, ability="align")
    if back is not None:
        options["reverse"] = load_run(back, device=device, double=double, ability="align")[1]
    aligned = task.align(trained, open_pairs(source, target, pairs), **options)
    records = (json.dumps(record, ensure_ascii=False) for record in aligned.records())
    write_lines(aligned.pharaoh() if layout == "pharaoh" else records, output)


def train_on_text(
    source: Path | None,
    target: Path | None,
    pairs: Path | None,
    *,
    save: Path | None,
    tokenize: str | None,
    overwrite: bool,
    options: dict[str, Any],
) -> tuple[Any, Any]:
    """The alignment task, and an aligner that is trained on the text and saved where that was asked for."""
    from latentalign.tasks.alignment.task import ALIGNMENT, recipe_of_files

    ALIGNMENT.link_options(**options)  # wrong options are refused before training
    config = recipe_of_files(source, target, pairs, tokenize=tokenize or "words")
    return ALIGNMENT, ALIGNMENT.train_on_text(config, save, overwrite=overwrite)


def parse_threshold(text: str) -> float | None:
    """The number of `--threshold`; None for `auto`."""
    if text == "auto":
        return None
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--threshold must be a number or auto, got {text!r}") from None
