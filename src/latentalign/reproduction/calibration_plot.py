"""Calibration of probabilities as a picture: a reliability diagram, and precision against coverage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from latentalign.reproduction.plots import COLOURS, INK, new_figure, save_figure

Part = Mapping[str, Any]


def draw_calibration(result: Part, path: Path) -> None:
    """Draw `links.calibration.Calibration`, as a dictionary."""
    figure, (left, right) = new_figure(9.6, 4.2, panels=2)
    draw_reliability(left, result, colour=COLOURS[0], label="predicted links")
    if result["candidates"]:
        draw_reliability(left, result["candidates"], colour=COLOURS[1], label="all candidates")
    if result["links"]:
        left.legend(frameon=False, labelcolor=INK, loc="upper left")
    left.plot([0, 1], [0, 1], color="#808080", linestyle=":", linewidth=1.0)
    left.set(xlabel="mean probability", ylabel="share of right links", xlim=(0, 1), ylim=(0, 1.02))
    draw_curve(right, result["curve"])
    save_figure(figure, path)


def draw_reliability(axes: Axes, part: Part, *, colour: str, label: str) -> None:
    """Share of right links against mean probability: a point per bin, larger for more links."""
    bins = [b for b in part["bins"] if b["links"]]
    if not bins:
        return
    most = max(b["links"] for b in bins)
    probability, precision = ([b[key] for b in bins] for key in ("probability", "precision"))
    sizes = [15 + 85 * b["links"] / most for b in bins]
    ece = "" if part["ece"] is None else f", ECE {part['ece']:.3f}"
    axes.plot(probability, precision, color=colour, linewidth=1.2)
    axes.scatter(probability, precision, s=sizes, color=colour, label=f"{label}{ece}")
    for b in bins:
        if b["interval"] is not None:
            axes.plot([b["probability"]] * 2, b["interval"], color=colour, linewidth=1.0, alpha=0.6)


def draw_curve(axes: Axes, points: Sequence[Part]) -> None:
    """Precision and recall against the share of links that are kept, with intervals."""
    coverage = [point["coverage"] for point in points]
    for number, name in enumerate(("precision", "recall")):
        values, intervals = ([point[key] for point in points] for key in (name, f"{name}_interval"))
        axes.plot(coverage, values, color=COLOURS[number], marker=".", label=name)
        if points and None not in intervals:
            low, high = zip(*intervals, strict=True)
            axes.fill_between(coverage, low, high, color=COLOURS[number], alpha=0.2, linewidth=0)
    axes.set(xlabel="coverage: share of links kept, most probable first", xlim=(0, 1), ylim=(0, 1.02))
    axes.legend(frameon=False, labelcolor=INK, loc="lower right")
