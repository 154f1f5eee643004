"""Alignments drawn for people."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from latentalign.reproduction.curves import drawn, legend, plain
from latentalign.tasks.nmt.links import Links

SHADES = " ░▒▓█"
HUES = {"prior": "#D55E00", "inferred": "#0072B2", "soft": "#009E73"}
"""Red, blue and green as in the paper, of Okabe and Ito's palette for the colour-blind."""
LABELS = {"prior": "prior p", "inferred": "inferred q", "soft": "soft attention"}


def draw_in_terminal(
    source: Sequence[str], target: Sequence[str], probability: np.ndarray, *, gold: Links = frozenset()
) -> str:
    """A matrix of shades, a row for each target word; brackets mark gold links."""
    width = max((len(word) for word in target), default=0)
    lines = []
    for j, word in enumerate(target):
        cells = []
        for i in range(len(source)):
            shade = SHADES[min(len(SHADES) - 1, round(float(probability[j, i]) * (len(SHADES) - 1)))] * 2
            cells.append(f"[{shade}]" if (i, j) in gold else f" {shade} ")
        lines.append(f"{word:>{width}} " + "".join(cells))
    # Source words stand below their columns, one letter a line.
    for row in range(max((len(word) for word in source), default=0)):
        letters = "".join(f" {word[row] if row < len(word) else ' '}  " for word in source)
        lines.append(" " * (width + 1) + letters.rstrip())
    return "\n".join(lines)


def paper_figures(alignments: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Figure]:
    """The paper's pictures of a few sentences: prior against inferred, soft attention against the prior."""
    variational = next((n for n in ("variational-sample", "variational-enum") if n in alignments), None)
    found = {}
    if variational is not None and all("inferred" in r["matrices"] for r in alignments[variational]):
        ours = alignments[variational]
        found["Prior and inferred posterior"] = overlaid(
            [(r, matrix(r, "prior"), matrix(r, "inferred")) for r in pick(ours)], ("prior", "inferred")
        )
        if "soft" in alignments:
            soft = {r["sentence"]: r for r in alignments["soft"]}
            chosen = [(r, soft[r["sentence"]]) for r in pick(ours) if r["sentence"] in soft]
            found["Soft attention and variational prior"] = overlaid(
                [(r, matrix(s, "prior"), matrix(r, "prior")) for r, s in chosen], ("soft", "prior")
            )
    return found


def pick(records: Sequence[Mapping[str, Any]], count: int = 4) -> list[Mapping[str, Any]]:
    """A few sentences of middling length, which a reader takes in without zooming."""
    fit = [r for r in records if 7 <= len(r["source"]) <= 13 and 7 <= len(r["target"]) <= 13]
    return (fit or list(records))[:count]


def matrix(record: Mapping[str, Any], name: str) -> np.ndarray:
    """The word-level probabilities of a record of details: a row for each target word."""
    flat = np.frombuffer(base64.b64decode(record["matrices"][name]), dtype=np.uint8)
    return flat.reshape(len(record["target"]), len(record["source"])) / 255


def overlaid(
    sentences: Sequence[tuple[Mapping[str, Any], np.ndarray, np.ndarray]], names: tuple[str, str]
) -> Figure:
    """Two distributions in one matrix: large squares under small ones, their ink the probability."""
    across, down = min(2, max(1, len(sentences))), max(1, (len(sentences) + 1) // 2)
    height = 1.2 + 0.34 * max((len(r["target"]) for r, _, _ in sentences), default=1)
    figure, panels = drawn(4.6 * across, height * down, panels=across, rows=down)
    for axes in panels[len(sentences) :]:
        axes.set_visible(False)
    for axes, (record, below, above) in zip(panels, sentences, strict=False):
        rows, columns = below.shape
        for j in range(rows):
            for i in range(columns):
                for value, name, size in ((below[j, i], names[0], 0.94), (above[j, i], names[1], 0.5)):
                    if value >= 0.01:
                        corner = (i - size / 2, j - size / 2)
                        box = Rectangle(
                            corner, size, size, facecolor=HUES[name], alpha=float(value), linewidth=0
                        )
                        axes.add_patch(box)
        axes.set(xlim=(-0.6, columns - 0.4), ylim=(rows - 0.4, -0.6), aspect="equal")
        source, target = ([plain(word) for word in record[side]] for side in ("source", "target"))
        axes.set_xticks(range(columns), source, rotation=60, ha="right", rotation_mode="anchor")
        axes.set_yticks(range(rows), target)
        axes.tick_params(length=0)
    handles = [Rectangle((0, 0), 1, 1, facecolor=HUES[n]) for n in names]
    labels = [LABELS[names[0]], f"{LABELS[names[1]]}, small squares"]
    legend(figure, handles, labels, columns=2)
    return figure
