"""Figures drawn with matplotlib: their common style, how they are saved, and the plots that all tasks share."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from latentalign.errors import InputError
from latentalign.web.pages import Section

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#7A5195", "#8C6D31")
"""Okabe and Ito's colours without black and yellow, which colour-blind readers can distinguish, and two more."""
STYLES = ("-", "--", ":")
WARM_START_STYLE: dict[str, Any] = {
    "color": "#808080",
    "linestyle": ":",
    "linewidth": 1.0,
    "marker": "x",
    "markersize": 4,
}
MARKERS = "osD^v<>pP*Xh"
INK = "#010203"
"""Stands for the page's text colour until the figure becomes SVG."""
SETTINGS: Any = {  # the keys that matplotlib types are longer than this file
    "svg.fonttype": "none",
    "svg.hashsalt": "latentalign",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
}
ADAPTIVE_STYLE = (
    "<style>svg { color: #1d2129; background: #ffffff; border-radius: 6px }"
    "@media (prefers-color-scheme: dark) { svg { color: #e8eaee; background: #14171c } }</style>"
)
"""Colours of a picture that stands alone. It brings its own background, so it is readable on any page."""


SUFFIXES = (".png", ".svg")


def check_picture_path(path: Path) -> None:
    """Raise before anything is computed if a picture could not be written."""
    if path.suffix not in SUFFIXES:
        raise InputError(f"--plot {path}: the name must end in {' or '.join(SUFFIXES)}")
    if not path.absolute().parent.is_dir():
        raise InputError(f"--plot {path}: there is no folder {path.parent}")


def new_figure(
    width: float = 6.4, height: float = 3.8, *, panels: int = 1, rows: int = 1
) -> tuple[Figure, list[Axes]]:
    """An empty figure with axes side by side, in one or several rows."""
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(width, height), layout="constrained")
        grid = figure.subplots(rows, panels, squeeze=False)
    return figure, list(grid.flat)


def new_mosaic(width: float, height: float, names: Any) -> tuple[Figure, dict[str, Axes]]:
    """An empty figure with named axes: rows of names, where a repeated name covers several places."""
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, figure.subplot_mosaic(names)


def to_svg(figure: Figure) -> str:
    """An SVG element for a page: no background, text in the page's colour."""
    with mpl.rc_context(SETTINGS):
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :].replace(INK, "currentColor")


def save_figure(figure: Figure, path: Path) -> None:
    """Save a picture that stands alone: SVG follows light and dark mode, PNG is on white."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".svg":
        element = to_svg(figure)
        end_of_tag = element.index(">") + 1
        text = element[:end_of_tag] + ADAPTIVE_STYLE + element[end_of_tag:]
        path.write_text('<?xml version="1.0" encoding="utf-8"?>\n' + text, encoding="utf-8")
        return
    with mpl.rc_context(SETTINGS):
        figure.savefig(path, dpi=150, facecolor="white")


def save_figures(figures: Mapping[str, Figure], folder: Path) -> None:
    """Save figures as PNG files named after their titles."""
    for title, figure in figures.items():
        save_figure(figure, folder / f"{title.lower().replace(' ', '-')}.png")


def picture_sections(figures: Mapping[str, Figure]) -> list[Section]:
    """A section of a page for each figure."""
    return [Section(title, picture=Markup(to_svg(figure))) for title, figure in figures.items()]


def escape_dollars(text: str) -> str:
    """Text whose dollar signs matplotlib does not read as mathematics."""
    return text.replace("$", r"\$")


def line_style(number: int) -> dict[str, Any]:
    """Colour and dashes of the n-th line; two dozen lines all differ."""
    style = STYLES[number // len(COLOURS) % len(STYLES)]
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": style, "linewidth": 1.6}


def add_legend(figure: Figure, handles: Sequence[Any], labels: Sequence[str], *, columns: int = 3) -> None:
    """Put a legend below the axes."""
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, labelcolor=INK)


def use_log_scale(axes: Axes, which: str = "xy") -> None:
    """Logarithmic axes with ticks as people write them: 1, 2, 5, 10, or round steps within a decade."""
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
    """Bound and perplexity on the validation set against the minutes of training; warm starts are dotted."""
    figure, (left, right) = new_figure(9.6, 4.2, panels=2)
    for number, (name, points) in enumerate(validations.items()):
        for axes, key in ((left, "bound"), (right, "ppl")):
            plot_phases(axes, points, key, label=name, style=line_style(number))
    for axes, figure_name in ((left, "bound, as perplexity"), (right, "perplexity")):
        axes.set(xlabel="minutes of training", ylabel=f"validation {figure_name}")
        use_log_scale(axes, "y")
    handles, labels = left.get_legend_handles_labels()
    if any(is_warm_start(point) for points in validations.values() for point in points):
        handles, labels = [*handles, Line2D([], [], **WARM_START_STYLE)], [*labels, "warm start"]
    add_legend(figure, handles, labels, columns=4)
    return figure


def plot_phases(
    axes: Axes, points: Sequence[Mapping[str, Any]], key: str, *, label: str, style: Mapping[str, Any]
) -> None:
    """Plot one figure of a run: its warm start as a thin dotted line, then the training itself."""
    warm = [point for point in points if is_warm_start(point)]
    main = [point for point in points if not is_warm_start(point)]
    if warm:
        minutes = [point["seconds"] / 60 for point in warm + main[:1]]
        values = [point[key] for point in warm + main[:1]]
        axes.plot(minutes, values, **{**WARM_START_STYLE, "color": style["color"]})
    minutes = [point["seconds"] / 60 for point in main]
    axes.plot(minutes, [point[key] for point in main], label=label, marker=".", **style)


def is_warm_start(point: Mapping[str, Any]) -> bool:
    """Whether a validation belongs to the warm start of a run."""
    return point.get("phase") == "warm start"


def gradient_costs(estimators: Sequence[Mapping[str, Any]]) -> Figure:
    """Variance of the gradient, relative to the exact gradient, against the time of a step."""
    figure, (axes,) = new_figure(6.8, 4.6)
    for number, estimator in enumerate(e for e in estimators if e["variance"] > 0):
        axes.plot(
            estimator["milliseconds"], estimator["variance"], marker=MARKERS[number % len(MARKERS)],
            linestyle="none", markersize=8, color=COLOURS[number % len(COLOURS)], label=estimator["estimator"],
        )  # fmt: skip
    axes.set(xlabel="milliseconds per step", ylabel="variance / |exact gradient|²")
    use_log_scale(axes)
    add_legend(figure, *axes.get_legend_handles_labels())
    return figure
