"""Draw prior, inferred and exact posterior alignments of one sentence pair side by side, as one SVG file.

    python docs/pictures/alignment_picture.py RUN --out docs/pictures/alignment.svg

Without --source and --target it chooses a short test pair with word reordering that the model aligns well. The
picture follows light and dark mode and brings its own background, so it is readable on any page.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import NDArray

from latentalign.links.formats import read_gold
from latentalign.links.sets import Links
from latentalign.storage import write_text
from latentalign.tasks.nmt.details import describe_pairs
from latentalign.tasks.nmt.recipe import TrainedTranslator
from latentalign.tasks.nmt.task import TRANSLATION
from latentalign.textfiles import read_parallel

Matrix = NDArray[np.float64]
PANELS = {
    "prior": ("prior", "before the target word is seen"),
    "inferred": ("inferred q", "the inference network's guess"),
    "posterior": ("exact posterior", "after the target word is seen"),
}
"""Title and explanation of each panel."""
STYLE = """
text { font: 14px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: var(--ink) }
.title { font-weight: 600; font-size: 15px }
.faint { fill: var(--faint); font-size: 12.5px }
.card { fill: var(--paper); stroke: var(--line) }
.grid { fill: none; stroke: var(--line) }
.prior { fill: var(--prior) } .inferred { fill: var(--inferred) } .posterior { fill: var(--posterior) }
.gold { fill: none; stroke: var(--ink); stroke-width: 1.6 }
.halo { fill: none; stroke: var(--paper); stroke-width: 4 }
.line { fill: none; stroke: var(--ink); stroke-width: 1.8 }
.stop { fill: var(--ink); stroke: var(--paper) }
.node { fill: var(--paper); stroke: var(--faint) }
line.prior { stroke: var(--prior) } line.posterior { stroke: var(--posterior) }
svg { --paper: #ffffff; --ink: #1d2129; --faint: #5b6472; --line: #d5dae1;
  --prior: #d55e00; --inferred: #0072b2; --posterior: #783c96 }
@media (prefers-color-scheme: dark) {
  svg { --paper: #14171c; --ink: #e8eaee; --faint: #a2abb8; --line: #363d48;
    --prior: #ff8732; --inferred: #56b4e9; --posterior: #c88ceb }
}
"""
CELL, GAP, MARGIN, TITLE_HEIGHT, LEGEND_HEIGHT = 25, 26, 18, 50, 34
LETTER_WIDTH = 7.4
WORDS = range(6, 10)
"""Lengths of sentences that fit one line of a page."""
MOST_CANDIDATES = 400


def choose_pair(trained: TrainedTranslator) -> tuple[dict[str, Any], Links]:
    """A short test pair with reordering whose posterior agrees with the gold links and is surer than the prior."""
    split = trained.config.data.test or trained.config.data.valid
    pairs = list(read_parallel(split.source, split.target))
    gold = read_gold(split.gold, one_based=split.gold_one_based, sentences=len(pairs)) if split.gold else None
    short = [i for i, pair in enumerate(pairs) if all(len(side.split()) in WORDS for side in pair)]
    chosen = short[:MOST_CANDIDATES]
    if not chosen:
        raise SystemExit("no test pair is short enough; name one with --source and --target")
    records = describe_pairs(trained, [pairs[i] for i in chosen], np.asarray)
    links = [gold[i].sure if gold is not None else frozenset() for i in chosen]
    best = max(range(len(chosen)), key=lambda n: quality(records[n], links[n]))
    return records[best], links[best]


def quality(record: Mapping[str, Any], gold: Links) -> tuple[float, ...]:
    """Order of preference: gold links found, then reordering, then how much surer the posterior is."""
    prior, posterior = (np.asarray(record["matrices"][name]) for name in ("prior", "posterior"))
    best = posterior.argmax(1)
    wrong = sum((int(i), j) not in gold for j, i in enumerate(best)) if gold else 0
    backward = int((np.diff(best) < 0).sum())
    return (-wrong, min(backward, 2), len(set(best.tolist())), entropy(prior) - entropy(posterior))


def entropy(matrix: Matrix) -> float:
    """Mean entropy of the rows of a matrix, in nats."""
    return float(-(matrix * np.log(matrix.clip(1e-12))).sum(1).mean())


@dataclass(frozen=True)
class Panel:
    """A matrix of one picture: a row for each target word, a column for each source word."""

    title: str
    explanation: str
    colour: str
    """A class of the style sheet."""
    matrix: Matrix
    path: Sequence[tuple[int, int]] = ()
    """(source, target) along a path that is drawn as a line."""
    numbers: bool = False
    """Write every probability, in per cent."""


def draw(record: Mapping[str, Any], gold: Links) -> str:
    """The picture of one sentence pair: a panel for each distribution that the model has."""
    matrices = record["matrices"]
    names = [name for name in PANELS if name in matrices]
    panels = [Panel(*PANELS[name], name, np.asarray(matrices[name])) for name in names]
    return draw_panels(record["source"], record["target"], panels, gold)


def draw_panels(source: Sequence[str], target: Sequence[str], panels: Sequence[Panel], gold: Links) -> str:
    """Matrices of the same sentence pair side by side."""
    label_width = LETTER_WIDTH * max(map(len, target)) + 12
    label_height = LETTER_WIDTH * max(map(len, source)) * 0.87 + 14
    panel_width = max(CELL * len(source), LETTER_WIDTH * 0.9 * max(len(p.explanation) for p in panels))
    left, top = MARGIN + label_width, MARGIN + TITLE_HEIGHT + label_height
    overhang = LETTER_WIDTH * len(source[-1]) * 0.5
    width = left + len(panels) * (panel_width + GAP) - GAP + MARGIN + overhang
    height = top + CELL * len(target) + LEGEND_HEIGHT + (0 if gold else -20)
    parts = []
    for j, word in enumerate(target):
        y = top + CELL * (j + 0.5) + 5
        parts.append(f'<text x="{left - 8:.1f}" y="{y:.1f}" text-anchor="end">{escape(word)}</text>')
    for number, panel in enumerate(panels):
        x = left + number * (panel_width + GAP)
        parts += panel_elements(panel, source, (x, top), gold=gold)
    if gold:
        y = top + CELL * len(target) + 22
        parts.append(ring(left + 7, y - 4))
        legend = "gold links; the stronger the colour, the more probable"
        parts.append(f'<text class="faint" x="{left + 20:.1f}" y="{y:.1f}">{legend}</text>')
    return card(width, height, f"{' '.join(source)} / {' '.join(target)}", parts)


def card(width: float, height: float, title: str, parts: Iterable[str]) -> str:
    """An SVG file with its own background that follows light and dark mode."""
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<rect class="card" x=".5" y=".5" width="{width - 1:.0f}" height="{height - 1:.0f}" rx="8"/>',
    ]
    return "\n".join([*head, *parts, "</svg>", ""])


def panel_elements(
    panel: Panel, source: Sequence[str], corner: tuple[float, float], *, gold: Links = frozenset()
) -> Iterator[str]:
    """One matrix with its title: opacity is probability, a row for each target word."""
    left, top = corner
    rows, columns = panel.matrix.shape
    yield f'<text class="title" x="{left:.1f}" y="{MARGIN + 14}">{escape(panel.title)}</text>'
    yield f'<text class="faint" x="{left:.1f}" y="{MARGIN + 32}">{escape(panel.explanation)}</text>'
    for i, word in enumerate(source):
        x, y = left + CELL * (i + 0.5) + 4, top - 8
        yield f'<text transform="translate({x:.1f} {y:.1f}) rotate(-60)">{escape(word)}</text>'
    for (j, i), probability in np.ndenumerate(panel.matrix):
        if probability >= 0.01:
            x, y = left + CELL * i, top + CELL * j
            yield (
                f'<rect class="{panel.colour}" x="{x:.1f}" y="{y:.1f}" width="{CELL}" height="{CELL}" '
                f'opacity="{probability:.3f}"/>'
            )
            if panel.numbers and round(100 * probability):
                ink = "var(--paper)" if probability > 0.5 else "var(--ink)"
                yield (
                    f'<text style="font-size:10.5px;fill:{ink}" x="{x + CELL / 2:.1f}" y="{y + CELL / 2 + 4:.1f}" '
                    f'text-anchor="middle">{100 * probability:.0f}</text>'
                )
    lines = [f"M{left:.1f} {top + CELL * j:.1f}h{CELL * columns}" for j in range(rows + 1)]
    lines += [f"M{left + CELL * i:.1f} {top:.1f}v{CELL * rows}" for i in range(columns + 1)]
    yield f'<path class="grid" d="{"".join(lines)}"/>'
    for i, j in sorted(gold):
        yield ring(left + CELL * (i + 0.5), top + CELL * (j + 0.5))
    yield from path_elements([(left + CELL * (i + 0.5), top + CELL * (j + 0.5)) for i, j in panel.path])


def path_elements(points: Sequence[tuple[float, float]]) -> Iterator[str]:
    """A line with a dot at every point, visible on every colour."""
    if points:
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        yield from (f'<polyline class="{kind}" points="{places}"/>' for kind in ("halo", "line"))
    yield from (f'<circle class="stop" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in points)


def ring(x: float, y: float) -> str:
    """A ring that is visible on every colour."""
    circles = (f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="6"/>' for kind in ("halo", "gold"))
    return "".join(circles)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the picture that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("run", type=Path, help="a run directory of a translation model")
    parser.add_argument("--out", type=Path, required=True, help="the SVG file")
    parser.add_argument("--source", help="a source sentence; chosen automatically if absent")
    parser.add_argument("--target", help="its translation")
    options = parser.parse_args(arguments)
    trained = TRANSLATION.load(options.run)
    if (options.source is None) != (options.target is None):
        parser.error("--source and --target belong together")
    gold: Links = frozenset()
    if options.source is None:
        record, gold = choose_pair(trained)
    else:
        (record,) = describe_pairs(trained, [(options.source, options.target)], np.asarray)
    write_text(options.out, draw(record, gold))
    print(f"{' '.join(record['source'])} / {' '.join(record['target'])}")


if __name__ == "__main__":
    main()
