"""latentalign aer --gold F --predicted F"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from latentalign.cli.common import JsonOption, show, warn

NAME = "aer"


def command(
    gold: Annotated[Path, typer.Option(help="`i-j`, `i?j`, `ipj` or the NAACL .wa layout")],
    predicted: Annotated[Path, typer.Option(help="Pharaoh `i-j`, one line per pair")],
    one_based: Annotated[bool, typer.Option(help="the gold file counts from 1")] = False,
    bootstrap: Annotated[int, typer.Option(help="resamplings for the intervals; 0: none")] = 1000,
    seed: Annotated[int, typer.Option(help="seed of the bootstrap")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Score word alignments: AER, precision, recall and F1."""
    from latentalign.links.formats import read_gold, read_links
    from latentalign.links.scores import score
    from latentalign.links.sets import lacks_zero

    links = read_links(predicted)
    reference = read_gold(gold, one_based=one_based or None, sentences=len(links))
    if not one_based and lacks_zero(reference):
        warn(f"{gold}: no link contains word 0; if the file counts from 1, add --one-based")
    result = asdict(score(reference, links, bootstrap=bootstrap, seed=seed))
    if not as_json:
        intervals = result.pop("intervals") or {}
        for name, (low, high) in intervals.items():
            result[f"{name}, 95 %"] = f"{low:.4f} .. {high:.4f}"
    show(result, as_json=as_json, title=f"{predicted} against {gold}")
