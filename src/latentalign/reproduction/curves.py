"""Figures drawn with matplotlib: curves of training, of K-max perplexity, and of what gradients cost."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#7A5195", "#8C6D31")
"""Okabe and Ito's colours, which the colour-blind tell apart, without black and yellow, and two more."""
STYLES = ("-", "--", ":")
INK = "#010203"
"""Stands for the colour of the page's text until the picture is in the page."""
SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "latentalign",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
}


def line_style(number: int) -> dict[str, Any]:
    """Colour and dashes of the n-th line: no two alike among two dozen."""
    style = STYLES[number // len(COLOURS) % len(STYLES)]
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": style, "linewidth": 1.6}


def drawn(
    width: float = 6.4, height: float = 3.8, *, panels: int = 1, rows: int = 1
) -> tuple[Figure, list[Any]]:
    """An empty figure with axes side by side, in one or several rows."""
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(width, height), layout="constrained")
        found = figure.subplots(rows, panels, squeeze=False)
    return figure, list(found.flat)


def svg(figure: Figure) -> str:
    """A picture for the page: no background, text in the page's colour."""
    with mpl.rc_context(SETTINGS):
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :].replace(INK, "currentColor")


def save(figure: Figure, path: Path) -> None:
    """A picture by itself, on white."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(SETTINGS):
        figure.savefig(path, dpi=150, facecolor="white")


def plain(text: str) -> str:
    """Text whose dollar signs matplotlib does not take for mathematics."""
    return text.replace("$", r"\$")


def save_all(figures: Mapping[str, Figure], folder: Path) -> None:
    """Figures as files named after their titles."""
    for title, figure in figures.items():
        save(figure, folder / f"{title.lower().replace(' ', '-')}.png")


def legend(figure: Figure, handles: Sequence[Any], labels: Sequence[str], *, columns: int = 3) -> None:
    """What the signs mean, below the picture."""
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, labelcolor=INK)


def logarithmic(axes: Any, which: str = "xy") -> None:
    """Log scales whose marks are numbers as people write them: 1, 2, 5, 10, or round steps within a decade."""
    for name in which:
        getattr(axes, f"set_{name}scale")("log")
        axis = getattr(axes, f"{name}axis")
        low, high = axis.get_view_interval()
        axis.set_major_locator(
            LogLocator(subs=(1.0, 2.0, 5.0), numticks=12)
            if high > 10 * low
            else MaxNLocator(6, steps=[1, 2, 5, 10])
        )
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
        axis.set_minor_locator(NullLocator())


def training_curves(validations: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """Bound and honest perplexity on the validation set against the minutes of training."""
    figure, (left, right) = drawn(9.6, 4.2, panels=2)
    for number, (name, points) in enumerate(validations.items()):
        minutes = [r["seconds"] / 60 for r in points]
        left.plot(minutes, [r["bound"] for r in points], label=name, marker=".", **line_style(number))
        right.plot(minutes, [r["ppl"] for r in points], label=name, marker=".", **line_style(number))
    for axes, what in ((left, "bound, as perplexity"), (right, "perplexity")):
        axes.set(xlabel="minutes of training", ylabel=f"validation {what}")
        logarithmic(axes, "y")
    legend(figure, *left.get_legend_handles_labels(), columns=4)
    return figure


def kmax_curves(results: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Perplexity against the number of members averaged over; dotted, soft attention's and variational-enum's exact."""
    figure, (axes,) = drawn(6.8, 4.6)
    for number, (name, record) in enumerate(results.items()):
        curve = record.get("kmax_curve")
        if not curve:
            continue
        style = line_style(number)
        label = "soft-trained, K-max" if name == "soft" else name
        axes.plot(range(1, len(curve) + 1), curve, label=label, marker=".", **style)
        if name == "soft":
            axes.axhline(record["ppl_soft"], color=style["color"], linestyle=":", label="soft attention")
        if name == "variational-enum":
            axes.axhline(record["ppl_exact"], color=style["color"], linestyle=":", label=f"{name}, exact")
    axes.set(xlabel="K, members averaged over", ylabel="test perplexity")
    logarithmic(axes)
    legend(figure, *axes.get_legend_handles_labels())
    return figure


def cost_of_gradients(estimators: Sequence[Mapping[str, Any]]) -> Figure:
    """Variance of the gradient, relative to the exact gradient, against the time of a step."""
    figure, (axes,) = drawn(6.8, 4.6)
    shown = [e for e in estimators if e["variance"] > 0]
    for number, e in enumerate(shown):
        axes.plot(
            e["milliseconds"], e["variance"], marker="osD^v<>pP*Xh"[number % 12], linestyle="none", markersize=8,
            color=COLOURS[number % len(COLOURS)], label=e["estimator"],
        )  # fmt: skip
    axes.set(xlabel="milliseconds a step", ylabel="variance / |exact gradient|²")
    logarithmic(axes)
    legend(figure, *axes.get_legend_handles_labels())
    return figure
