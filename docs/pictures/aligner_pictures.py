"""Draw the pictures of docs/word-alignment.md that show a trained aligner, as SVG files.

    latentalign train align/demo --out RUN
    python docs/pictures/aligner_pictures.py RUN

`aligner-links.svg` shows the probabilities of one pair in both directions and their mean, `aligner-jumps.svg` the
learned jumps. Both follow light and dark mode, as alignment.svg does.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from alignment_picture import GAP, MARGIN, Matrix, Panel, card, draw_panels
from chain_pictures import text

from latentalign.aligner import Aligner
from latentalign.storage import write_text
from latentalign.tasks.alignment.task import ALIGNMENT

HERE = Path(__file__).resolve().parent
PAIR = ("die Enten haben leider im Wald gewohnt .", "unfortunately , the ducks lived in the forest .")
"""A test pair with another word order, words without a counterpart and a contraction."""
WIDTHS = range(-6, 9)
"""Jumps that are drawn."""
BAR, HEIGHT = 24, 110


def with_null(matrix: Matrix, target_null: Matrix, source_null: Matrix) -> Matrix:
    """Link probabilities with a column for target words and a row for source words that have no counterpart."""
    return np.block([[matrix, target_null[:, None]], [source_null[None, :], np.zeros((1, 1))]])


def draw_links(aligner: Aligner, pair: tuple[str, str]) -> str:
    """Both directions of an aligner, and the mean of their links."""
    (found,) = aligner.align_lines([pair])
    source, target = ([word.text for word in side] for side in aligner.config.split_pair(pair))
    nothing = (np.zeros_like(found.target_null), np.zeros_like(found.source_null))
    forward = with_null(found.forward, found.target_null, nothing[1])
    backward = with_null(found.backward, nothing[0], found.source_null)
    mean = with_null(found.mean, found.target_null, found.source_null)
    panels = [
        Panel("forward", "a source word for each target word", "prior", forward, numbers=True),
        Panel("backward", "a target word for each source word", "inferred", backward, numbers=True),
        Panel("both", "the mean is the link's probability", "posterior", mean, numbers=True),
    ]
    return draw_panels([*source, "NULL"], [*target, "NULL"], panels, frozenset())


def draw_jumps(aligner: Aligner) -> str:
    """How far each direction moves from one word to the next one, as bars."""
    titles = (
        ("forward", "steps in the source text", "prior"),
        ("backward", "steps in the target text", "inferred"),
    )
    parts: list[str] = []
    panel = BAR * len(WIDTHS)
    for number, (direction, (title, note, colour)) in enumerate(zip(aligner.directions, titles, strict=True)):
        learned = direction.weights ** (
            1 / aligner.config.jump_weight
        )  # they are tempered when training ends
        shares = (learned / learned.sum()).numpy()
        left = MARGIN + number * (panel + 2 * GAP)
        parts += [text(left, MARGIN + 14, title, "title"), text(left, MARGIN + 32, note, "faint")]
        parts += bars([float(shares[len(shares) // 2 + width]) for width in WIDTHS], left, colour)
    bottom = MARGIN + 60 + HEIGHT
    return card(2 * MARGIN + 2 * panel + 2 * GAP, bottom + 22 + MARGIN, "Learned jumps of an aligner", parts)


def bars(shares: Sequence[float], left: float, colour: str) -> Iterator[str]:
    """A bar for each jump, with its share in per cent above it and its width below it."""
    bottom, highest = MARGIN + 60 + HEIGHT, max(shares)
    for number, (width, share) in enumerate(zip(WIDTHS, shares, strict=True)):
        x, height = left + BAR * number, HEIGHT * share / highest
        size = f'width="{BAR - 4}" height="{height:.1f}"'
        yield f'<rect class="{colour}" x="{x + 2:.1f}" y="{bottom - height:.1f}" {size}/>'
        middle = x + BAR / 2
        if share >= 0.005:
            yield text(middle, bottom - height - 4, f"{100 * share:.0f}", "faint", "middle")
        yield text(middle, bottom + 16, f"{width:+d}" if width else "0", "faint", "middle")


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw both pictures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("run", type=Path, help="a run directory of an aligner")
    parser.add_argument("--out", type=Path, default=HERE, help="the folder of the SVG files")
    options = parser.parse_args(arguments)
    aligner = ALIGNMENT.load(options.run).model.aligner
    write_text(options.out / "aligner-links.svg", draw_links(aligner, PAIR))
    write_text(options.out / "aligner-jumps.svg", draw_jumps(aligner))


if __name__ == "__main__":
    main()
