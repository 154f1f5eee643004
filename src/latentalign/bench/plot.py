"""A benchmark's result as a picture: the cost of every objective, and how costs grow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from latentalign.bench.rows import label
from latentalign.reproduction.plots import COLOURS, INK, line_style, new_mosaic, save_figure, use_log_scale


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Draw the cost relative to soft attention, and speed and memory by length and by vocabulary."""
    figure, panels = new_mosaic(12, 7, [["cost", "T speed", "V speed"], ["cost", "T memory", "V memory"]])
    draw_costs(panels["cost"], result)
    for axis, meaning in (("T", "T, members and target tokens"), ("V", "V, outputs")):
        speed, memory = panels[f"{axis} speed"], panels[f"{axis} memory"]
        draw_growth(speed, result, axis, figure="tokens_per_second", title="tokens/s")
        draw_growth(memory, result, axis, figure="peak_memory_mb", title="peak memory, MB")
        use_log_scale(speed, "y")
        memory.set_ylim(bottom=0)
        memory.set_xlabel(meaning)
    if result["growth"]:
        panels["T speed"].legend(frameon=False, labelcolor=INK)
    save_figure(figure, path)


def draw_costs(axes: Axes, result: Mapping[str, Any]) -> None:
    """Draw the cost of every row relative to soft attention, with its share of the GEMM rate."""
    rows = [row for row in reversed(result["rows"]) if row["cost_vs_soft"] is not None]
    names = [label(row["objective"], row["options"]).replace(":", "\n") for row in rows]
    bars = axes.barh(names, [row["cost_vs_soft"] for row in rows], color=COLOURS[0])
    notes = [f"{row['cost_vs_soft']:.2f}, {100 * row['gemm_share']:.0f} %" for row in rows]
    axes.bar_label(bars, notes, padding=3, color=INK)
    axes.margins(x=0.5)
    axes.axvline(1, color=INK, linewidth=0.8)
    axes.set_xlabel("cost per token, soft = 1; share of the GEMM rate")
    axes.set_title(f"{result['gemm_gflops']:,.0f} GFLOP/s on {result['threads']} threads")


def draw_growth(axes: Axes, result: Mapping[str, Any], axis: str, *, figure: str, title: str) -> None:
    """Draw one curve for every objective."""
    points = [point for point in result["growth"] if point["axis"] == axis]
    for number, name in enumerate(dict.fromkeys(point["objective"] for point in points)):
        own = [point for point in points if point["objective"] == name]
        sizes, values = [p["size"] for p in own], [p[figure] for p in own]
        axes.plot(sizes, values, marker="o", label=name, **line_style(number))
    sizes = sorted({point["size"] for point in points})
    if sizes:
        axes.set_xscale("log")
        axes.set_xticks(sizes, [str(size) for size in sizes], minor=False)
        axes.set_xticks([], minor=True)
    axes.set_ylabel(title)
