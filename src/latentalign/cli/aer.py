"""latentalign aer --gold F --predicted F"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from latentalign.cli.common import JsonOption, OverwriteOption, format_figure, show, warn
from latentalign.errors import InputError

if TYPE_CHECKING:
    from latentalign.links.formats import Predicted

NAME = "aer"


def command(
    gold: Annotated[Path, typer.Option(help="`i-j`, `i?j`, `ipj` or the NAACL .wa layout")],
    predicted: Annotated[
        Path,
        typer.Option(help="Pharaoh `i-j` or `i-j:probability`, or `align --format json`, a line per pair"),
    ],
    one_based: Annotated[bool, typer.Option(help="the gold file counts from 1")] = False,
    calibration: Annotated[
        bool, typer.Option(help="also judge the probabilities: calibration error, precision against coverage")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="with --calibration, draw both into a file that ends in .svg or .png")
    ] = None,
    overwrite: OverwriteOption = False,
    bootstrap: Annotated[int, typer.Option(help="resamplings for the intervals; 0: none")] = 1000,
    seed: Annotated[int, typer.Option(help="seed of the bootstrap")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Score word alignments: AER, precision, recall, F1 and the calibration of probabilities."""
    from latentalign.links.formats import read_gold, read_predicted
    from latentalign.links.scores import score
    from latentalign.links.sets import lacks_zero

    if plot is not None:
        check_plot(plot, calibration=calibration, overwrite=overwrite)
    links = read_predicted(predicted)
    if calibration:
        require_probabilities(links, predicted)
    reference = read_gold(gold, one_based=one_based or None, sentences=len(links.links))
    if not one_based and lacks_zero(reference):
        warn(f"{gold}: no link contains word 0; if the file counts from 1, add --one-based")
    result = asdict(score(reference, links.links, bootstrap=bootstrap, seed=seed))
    judged = None
    if calibration:
        from latentalign.links.calibration import calibrate

        options = {"bootstrap": bootstrap, "seed": seed}
        judged = asdict(calibrate(reference, links.probabilities or [], links.candidates, **options))
    if plot is not None and judged is not None:
        from latentalign.reproduction.calibration_plot import draw_calibration

        draw_calibration(judged, plot)
    if as_json:
        show(result if judged is None else result | {"calibration": judged}, as_json=True, title="")
        return
    for name, (low, high) in (result.pop("intervals") or {}).items():
        result[f"{name}, 95 %"] = f"{low:.4f} .. {high:.4f}"
    title = f"{predicted} against {gold}"
    show(result if judged is None else result | flatten(judged), as_json=False, title=title)


def check_plot(plot: Path, *, calibration: bool, overwrite: bool) -> None:
    """Raise before anything is computed if the picture cannot be drawn."""
    from latentalign.reproduction.plots import check_picture_path
    from latentalign.storage import require_free

    if not calibration:
        raise InputError("--plot draws the calibration of probabilities; add --calibration")
    check_picture_path(plot)
    require_free(plot, overwrite=overwrite)


def require_probabilities(links: Predicted, path: Path) -> None:
    """Refuse links without probabilities."""
    if links.probabilities is None and any(links.links):
        raise InputError(
            f"{path}: --calibration needs the probability of every link, but the links have none; write `3-4:0.93` "
            "instead of `3-4`, or use `latentalign align --format json`"
        )


def flatten(judged: dict[str, Any]) -> dict[str, Any]:
    """The figures of a calibration as rows and tables for people."""

    def interval(ends: tuple[float, float] | None) -> str | None:
        return None if ends is None else f"{ends[0]:.3f} .. {ends[1]:.3f}"

    def with_interval(value: float, ends: tuple[float, float] | None) -> str:
        return f"{value:.3f}" if ends is None else f"{value:.3f} ({interval(ends)})"

    shown = {}
    for name, part in (("", judged), (" of all candidates", judged["candidates"] or {})):
        for figure in ("ece", "brier"):
            shown[f"{figure}{name}"] = part.get(figure)
            shown[f"{figure}{name}, 95 %"] = interval(part.get(f"{figure}_interval"))
    reliability = {
        f"{b['low']:.1f} .. {b['high']:.1f}": {
            "links": b["links"],
            "mean probability": format_figure(b["probability"]),
            "share right, 95 %": with_interval(b["precision"], b["interval"]),
        }
        for b in judged["bins"]
        if b["links"]
    }
    coverage = {
        f"{point['coverage']:.0%}": {
            "links": point["links"],
            "at least": format_figure(point["at_least"]),
            "precision, 95 %": with_interval(point["precision"], point["precision_interval"]),
            "recall, 95 %": with_interval(point["recall"], point["recall_interval"]),
        }
        for point in judged["curve"]
    }
    return {**shown, "reliability by probability": reliability, "the most probable links": coverage}
