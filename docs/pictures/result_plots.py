"""Draw one plot per data set from docs/results/*.json: each row's likelihood, its spread and its cost.

    python docs/pictures/result_plots.py

The colours are readable on light and on dark pages; the background is transparent.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results"
FIGURES = {
    "multi30k": ("ppl", "perplexity, test2016"),
    "multi30k-small": ("ppl", "perplexity, test2016"),
    "iwslt14-part": ("ppl", "perplexity, test set"),
    "demo": ("ppl", "perplexity, test set"),
    "scenes": ("nll", "negative log-likelihood of the answer, nats"),
    "daquar": ("nll", "negative log-likelihood of the answer, nats"),
}
TEXT, LATENT, SOFT = "#808890", "#2f8fd8", "#e07a3f"


def read_rows(name: str) -> dict[str, list[dict[str, Any]]]:
    """The results of a data set, one list of seeds per row."""
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")):
        rows[record["row"]].append(record)
    return rows


def draw(name: str, key: str, label: str) -> None:
    """A row per line, best at the top: mean, spread over seeds, and minutes of training."""
    rows = read_rows(name)
    ordered = sorted(rows, key=lambda row: -mean(record[key] for record in rows[row]))
    figure, axes = plt.subplots(figsize=(7.2, 0.8 + 0.32 * len(ordered)))
    for height, row in enumerate(ordered):
        values = [record[key] for record in rows[row]]
        colour = SOFT if row == "soft" else LATENT
        spread = stdev(values) if len(values) > 1 else 0.0
        axes.errorbar(mean(values), height, xerr=spread, fmt="o", color=colour, capsize=3)
        minutes = mean(record["seconds"] for record in rows[row]) / 60
        cost = f"{minutes:.0f} min" if minutes >= 10 else f"{minutes:.1f} min"
        axes.annotate(cost, (1.01, height), xycoords=("axes fraction", "data"), va="center", color=TEXT)
    axes.axvline(mean(r[key] for r in rows["soft"]), color=SOFT, linestyle=":", linewidth=1)
    axes.set_yticks(range(len(ordered)), ordered)
    axes.set_xlabel(f"{label} (lower is better)", color=TEXT)
    axes.tick_params(colors=TEXT)
    axes.grid(axis="x", color=TEXT, alpha=0.25)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(TEXT)
    figure.savefig(HERE / f"{name}.svg", transparent=True, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Draw all data sets; the same results give the same files."""
    plt.rcParams.update({"svg.hashsalt": "latentalign", "font.size": 10})
    for name, (key, label) in FIGURES.items():
        draw(name, key, label)


if __name__ == "__main__":
    main()
