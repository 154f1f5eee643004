"""Alignments drawn for people."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from latentalign.nmt.links import Links

SHADES = " ░▒▓█"


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
