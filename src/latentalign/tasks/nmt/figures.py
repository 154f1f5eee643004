"""Alignments drawn in the terminal and as figures."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from latentalign.links.formats import read_gold
from latentalign.links.sets import Links
from latentalign.reproduction.plots import add_legend, escape_dollars, line_style, new_figure, use_log_scale
from latentalign.tasks.nmt.align import align_in_order, encode_pairs
from latentalign.tasks.nmt.task import TRANSLATION

Matrix = NDArray[Any]
SHADES = " ░▒▓█"
DRAWN_PAIRS = 3
HUES = {"prior": "#D55E00", "inferred": "#0072B2", "soft": "#009E73"}
"""Red, blue and green as in the paper, from the colour-blind palette of Okabe and Ito."""
LABELS = {"prior": "prior p", "inferred": "inferred q", "soft": "soft attention"}


def draw_in_terminal(
    source: Sequence[str], target: Sequence[str], probability: Matrix, *, gold: Links = frozenset()
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


def draw_test_pairs(folder: Path) -> str:
    """Exact posteriors of a few short test pairs, gold links in brackets."""
    trained = TRANSLATION.load(folder)
    split = trained.config.data.test
    assert split is not None
    pairs = list(split.read())
    gold = read_gold(split.gold, one_based=split.gold_one_based, sentences=len(pairs)) if split.gold else None
    short = [i for i, (s, t) in enumerate(pairs) if 7 <= len(s.split()) <= 12 and len(t.split()) <= 12]
    chosen = (short or list(range(len(pairs))))[:DRAWN_PAIRS]
    using = "posterior" if trained.model.distribution.supports("enumerate") else "prior"
    encoded = encode_pairs(trained, [pairs[i][0] for i in chosen], [pairs[i][1] for i in chosen])
    parts = [f"{using} alignments of {trained.config.objective.name}; brackets are gold links"]
    for i, alignment in zip(chosen, align_in_order(trained, encoded, using), strict=True):
        source, target = ([w.text for w in words] for words in trained.vocabulary.find_pair_words(*pairs[i]))
        links = gold[i].sure if gold else frozenset()
        parts.append(draw_in_terminal(source, target, alignment.probability, gold=links) + "\n")
    return "\n".join(parts)


def kmax_curves(results: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Perplexity against the number of members; dotted lines: soft attention, and variational-enum's exact sum."""
    figure, (axes,) = new_figure(6.8, 4.6)
    for number, (name, record) in enumerate(results.items()):
        curve, style = record["kmax_curve"], line_style(number)
        label = "soft-trained, K-max" if name == "soft" else name
        axes.plot(range(1, len(curve) + 1), curve, label=label, marker=".", **style)
        if name == "soft":
            axes.axhline(record["ppl_soft"], color=style["color"], linestyle=":", label="soft attention")
        if name == "variational-enum":
            axes.axhline(record["ppl_exact"], color=style["color"], linestyle=":", label=f"{name}, exact")
    axes.set(xlabel="K, members averaged over", ylabel="test perplexity")
    use_log_scale(axes)
    add_legend(figure, *axes.get_legend_handles_labels())
    return figure


def paper_figures(alignments: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Figure]:
    """The paper's pictures of a few sentences: prior against inferred, soft attention against the prior."""
    variational = next((n for n in ("variational-sample", "variational-enum") if n in alignments), None)
    figures = {}
    if variational is not None and all("inferred" in r["matrices"] for r in alignments[variational]):
        ours = alignments[variational]
        figures["Prior and inferred posterior"] = draw_overlays(
            [(r, word_matrix(r, "prior"), word_matrix(r, "inferred")) for r in pick_sentences(ours)],
            ("prior", "inferred"),
        )
        if "soft" in alignments:
            soft = {r["sentence"]: r for r in alignments["soft"]}
            chosen = [(r, soft[r["sentence"]]) for r in pick_sentences(ours) if r["sentence"] in soft]
            figures["Soft attention and variational prior"] = draw_overlays(
                [(r, word_matrix(s, "prior"), word_matrix(r, "prior")) for r, s in chosen], ("soft", "prior")
            )
    return figures


def pick_sentences(records: Sequence[Mapping[str, Any]], count: int = 4) -> list[Mapping[str, Any]]:
    """A few sentences of medium length, which are readable without zooming."""
    fit = [r for r in records if 7 <= len(r["source"]) <= 13 and 7 <= len(r["target"]) <= 13]
    return (fit or list(records))[:count]


def word_matrix(record: Mapping[str, Any], name: str) -> Matrix:
    """The word-level probabilities of a record of details: a row for each target word."""
    flat = np.frombuffer(base64.b64decode(record["matrices"][name]), dtype=np.uint8)
    return flat.reshape(len(record["target"]), len(record["source"])) / 255


def draw_overlays(
    sentences: Sequence[tuple[Mapping[str, Any], Matrix, Matrix]], names: tuple[str, str]
) -> Figure:
    """Two distributions per sentence in one matrix: large squares under small ones, opacity is probability."""
    across, down = min(2, max(1, len(sentences))), max(1, (len(sentences) + 1) // 2)
    height = 1.2 + 0.34 * max((len(r["target"]) for r, _, _ in sentences), default=1)
    figure, panels = new_figure(4.6 * across, height * down, panels=across, rows=down)
    for axes in panels[len(sentences) :]:
        axes.set_visible(False)
    for axes, (record, below, above) in zip(panels, sentences, strict=False):
        draw_squares(axes, below, HUES[names[0]], size=0.94)
        draw_squares(axes, above, HUES[names[1]], size=0.5)
        rows, columns = below.shape
        axes.set(xlim=(-0.6, columns - 0.4), ylim=(rows - 0.4, -0.6), aspect="equal")
        source, target = ([escape_dollars(word) for word in record[side]] for side in ("source", "target"))
        axes.set_xticks(range(columns), source, rotation=60, ha="right", rotation_mode="anchor")
        axes.set_yticks(range(rows), target)
        axes.tick_params(length=0)
    handles = [Rectangle((0, 0), 1, 1, facecolor=HUES[n]) for n in names]
    labels = [LABELS[names[0]], f"{LABELS[names[1]]}, small squares"]
    add_legend(figure, handles, labels, columns=2)
    return figure


def draw_squares(axes: Axes, probability: Matrix, colour: str, *, size: float) -> None:
    """Draw a square for each pair of words whose probability is at least a hundredth."""
    for (j, i), value in np.ndenumerate(probability):
        if value >= 0.01:
            corner = (i - size / 2, j - size / 2)
            axes.add_patch(Rectangle(corner, size, size, facecolor=colour, alpha=float(value), linewidth=0))
