"""latentalign align RUN --source F --target F"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from latentalign.cli.common import DeviceOption, DoubleOption, RunArgument
from latentalign.errors import InputError

NAME = "align"


def command(
    run: RunArgument,
    source: Annotated[Path, typer.Option(help="text of the language that the run translates from")],
    target: Annotated[Path, typer.Option(help="text of the language that the run translates into")],
    using: Annotated[str, typer.Option(help="prior, inferred or posterior")] = "posterior",
    layout: Annotated[str, typer.Option("--format", help="pharaoh or json")] = "pharaoh",
    threshold: Annotated[
        float, typer.Option(help="no link for a word whose best probability is below")
    ] = 0.0,
    at_least: Annotated[float | None, typer.Option(help="every link of at least this probability")] = None,
    back: Annotated[Path | None, typer.Option("--reverse", help="a run of the other direction")] = None,
    method: Annotated[
        str, typer.Option("--symmetrize", help="how to join both directions")
    ] = "grow-diag-final-and",
    device: DeviceOption = "cpu",
    double: DoubleOption = False,
) -> None:
    """Word alignments of given sentence pairs, one line a pair."""
    from latentalign.cli.tasks import require_nmt
    from latentalign.tasks.nmt.align import USING, encode_pairs, in_order
    from latentalign.tasks.nmt.links import (
        SYMMETRIZE,
        Links,
        WordAlignment,
        format_pharaoh,
        reverse,
        symmetrize,
    )
    from latentalign.tasks.nmt.task import Trained
    from latentalign.textfiles import read_parallel

    require_known("--using", using, USING)
    require_known("--format", layout, ("pharaoh", "json"))
    require_known("--symmetrize", method, tuple(SYMMETRIZE))
    pairs = list(read_parallel(source, target))
    sources, targets = [s for s, _ in pairs], [t for _, t in pairs]

    def decide(found: WordAlignment) -> Links:
        return found.best(threshold) if at_least is None else found.at_least(at_least)

    require_nmt(run, "align words")
    trained = Trained.load(run, device=device, double=double)
    forward = in_order(trained, encode_pairs(trained, sources, targets), using)
    links = [decide(found) for found in forward]
    if back is not None:
        other = Trained.load(back, device=device, double=double)
        backward = in_order(other, encode_pairs(other, targets, sources), using)
        links = [symmetrize(f, reverse(decide(b)), method) for f, b in zip(links, backward, strict=True)]
    for (s, t), found, chosen in zip(pairs, forward, links, strict=True):
        if layout == "pharaoh":
            print(format_pharaoh(chosen))
        else:
            words = {"source": trained.tokenizer.words(s), "target": trained.tokenizer.words(t)}
            entropy = [round(float(e), 6) for e in found.entropy]
            print(
                json.dumps({**words, "links": found.to_json(chosen), "entropy": entropy}, ensure_ascii=False)
            )


def require_known(option: str, value: str, known: tuple[str, ...]) -> None:
    """Refuse a name that does not exist."""
    if value not in known:
        raise InputError(f"{option} must be one of {', '.join(known)}, got {value!r}")
