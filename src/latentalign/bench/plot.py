"""A result as a picture: what every objective costs, and how costs grow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from latentalign.bench.rows import label
from latentalign.errors import InputError


def check_path(path: Path) -> None:
    """Raise before anything is measured when the picture could not be written."""
    if path.suffix != ".png":
        raise InputError(f"--plot {path}: the name must end in .png")
    if not path.absolute().parent.is_dir():
        raise InputError(f"--plot {path}: there is no folder {path.parent}")


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Bars of the cost against soft attention; speed and memory by length and by vocabulary."""
    figure = Figure(figsize=(12, 7), layout="constrained")
    parts = figure.subplot_mosaic([["cost", "T speed", "V speed"], ["cost", "T memory", "V memory"]])
    bars(parts["cost"], result)
    for axis, words in (("T", "T, members and target tokens"), ("V", "V, outputs")):
        curves(parts[f"{axis} speed"], result, axis, figure="tokens_per_second", words="tokens/s")
        curves(parts[f"{axis} memory"], result, axis, figure="peak_memory_mb", words="peak memory, MB")
        parts[f"{axis} speed"].set_yscale("log")
        parts[f"{axis} memory"].set_ylim(bottom=0)
        parts[f"{axis} memory"].set_xlabel(words)
    if result["growth"]:
        parts["T speed"].legend(frameon=False)
    figure.savefig(path, dpi=120)


def bars(axes: Axes, result: Mapping[str, Any]) -> None:
    """The cost of every row in units of soft attention, and its share of the GEMM rate."""
    rows = [row for row in reversed(result["rows"]) if row["cost_vs_soft"] is not None]
    names = [label(row["objective"], row["options"]).replace(":", "\n") for row in rows]
    drawn = axes.barh(names, [row["cost_vs_soft"] for row in rows])
    axes.bar_label(
        drawn, [f"{row['cost_vs_soft']:.2f}, {100 * row['gemm_share']:.0f} %" for row in rows], padding=3
    )
    axes.margins(x=0.5)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlabel("cost of a token, soft = 1; share of the GEMM rate")
    axes.set_title(f"{result['gemm_gflops']:,.0f} GFLOP/s on {result['threads']} threads")


def curves(axes: Axes, result: Mapping[str, Any], axis: str, *, figure: str, words: str) -> None:
    """One curve for every objective."""
    points = [point for point in result["growth"] if point["axis"] == axis]
    for name in dict.fromkeys(point["objective"] for point in points):
        own = [point for point in points if point["objective"] == name]
        axes.plot([p["size"] for p in own], [p[figure] for p in own], marker="o", label=name)
    sizes = sorted({point["size"] for point in points})
    if sizes:
        axes.set_xscale("log")
        axes.set_xticks(sizes, [str(size) for size in sizes], minor=False)
        axes.set_xticks([], minor=True)
    axes.set_ylabel(words)
