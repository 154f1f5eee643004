"""Draw the pictures of docs/chains.md as SVG files.

    python docs/pictures/chain_pictures.py
    python docs/pictures/chain_pictures.py --independent RUN --chain RUN --source gnisquaimb --target "n ɪ s k w eɪ m"

The first command draws the transitions and the trellis; their numbers come from `Chain`. The second one also draws the
posteriors of two trained runs for one pair. The pictures follow light and dark mode, as alignment.svg does.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import product
from math import exp
from pathlib import Path

import numpy as np
import torch
from alignment_picture import (
    CELL,
    GAP,
    MARGIN,
    Matrix,
    Panel,
    card,
    draw_panels,
    panel_elements,
    path_elements,
)
from torch import Tensor

from latentalign import Chain, Dense, Jump, Monotone
from latentalign.core.distributions.transitions import Transition
from latentalign.links.formats import read_gold
from latentalign.links.sets import Links
from latentalign.storage import write_text
from latentalign.tasks.nmt.details import describe_pairs
from latentalign.tasks.nmt.recipe import TrainedTranslator, find_split
from latentalign.tasks.nmt.task import TRANSLATION

HERE = Path(__file__).resolve().parent
MEMBERS = 5
KINDS: dict[str, tuple[str, Transition]] = {
    "Jump": ("one table of jump widths", Jump(torch.tensor([-2.5, -1.0, 0.3, 1.5, 0.0]))),
    "Monotone": ("never backwards", Monotone()),
    "Monotone(1)": ("at most one forward", Monotone(max_step=1)),
    "Dense": (
        "learned for each pair",
        Dense(2 * torch.randn(1, 1, MEMBERS, MEMBERS, generator=torch.Generator().manual_seed(4))),
    ),
}
"""Title, explanation and an example of each kind of transition."""
PANEL_WIDTH, ARROW_HEIGHT = 158, 86
STEP, LEVEL, RADIUS = 74, 46, 15


def transitions() -> str:
    """p(z_j = i' | z_{j-1} = i) of each kind: a matrix, and the moves from the third member as lines."""
    parts: list[str] = []
    left, top = MARGIN + 22, MARGIN + 62
    names = [str(i + 1) for i in range(MEMBERS)]
    for number, (title, (explanation, transition)) in enumerate(KINDS.items()):
        x = left + number * (PANEL_WIDTH + GAP)
        rows = transition_matrix(transition)
        parts += panel_elements(Panel(title, explanation, "prior", rows), [], (x, top))
        for i, name in enumerate(names):
            parts.append(text(x + CELL * (i + 0.5), top - 6, name, "faint", "middle"))
            parts.append(text(x - 7, top + CELL * (i + 0.5) + 4, name, "faint", "end"))
        parts += moves(rows[2], (x + CELL / 2, top + CELL * MEMBERS + 30))
    height = top + CELL * MEMBERS + 30 + ARROW_HEIGHT + MARGIN
    width = left + len(KINDS) * (PANEL_WIDTH + GAP) - GAP + MARGIN
    parts.append(
        text(
            left,
            height - 12,
            "rows: i, the member of output j-1; columns: i', the member of output j; below: the moves from member 3",
            "faint",
        )
    )
    return card(width, height + 8, "The kinds of transitions of a chain", parts)


def transition_matrix(transition: Transition) -> Matrix:
    """The probabilities of the moves between members that all have the same score."""
    chain = Chain.from_scores(torch.zeros(1, 2, MEMBERS), transition=transition)
    return to_numpy(chain.log_rows(1).exp()[0])


def moves(row: Matrix, corner: tuple[float, float]) -> Iterator[str]:
    """Lines from the third member to every next one, as wide as they are probable."""
    left, top = corner
    bottom = top + ARROW_HEIGHT - 34
    for i, probability in enumerate(row):
        if probability >= 0.01:
            yield edge((left + CELL * 2, top), (left + CELL * i, bottom), "prior", float(probability))
    yield text(left - 12, top + 4, "j-1", "faint", "end") + text(left - 12, bottom + 4, "j", "faint", "end")
    for i, y in product(range(MEMBERS), (top, bottom)):
        here = "stop" if y == top and i == 2 else "node"
        yield f'<circle class="{here}" cx="{left + CELL * i:.1f}" cy="{y:.1f}" r="4.5"/>'


def trellis() -> str:
    """A chain over four members and five outputs: the filtered distribution beside the posterior."""
    chain, log_f = example_chain()
    log_likelihood, filtered, _ = chain.run_filter(log_f)
    posterior = chain.posterior(log_f)
    path, log_prob = posterior.best()
    outputs = [f"y{j + 1}" for j in range(log_f.shape[1])]
    left, top, panel = MARGIN + 34, MARGIN + 82, STEP * (len(outputs) - 1)
    second = left + panel + 2 * GAP + 60
    bottom = top + LEVEL * (log_f.shape[-1] - 1) + 44
    parts = [
        text(left - RADIUS, MARGIN + 14, "filter", "title"),
        text(left - RADIUS, MARGIN + 32, "p(z_j | y_1..y_j): what the outputs so far say", "faint"),
        text(second - RADIUS, MARGIN + 14, "posterior and best path", "title"),
        text(
            second - RADIUS, MARGIN + 32, "p(z_j | y_1..y_5), and p(z_j-1, z_j | y_1..y_5) as lines", "faint"
        ),
    ]
    joint = forward_pairs(chain, filtered)
    parts += lattice(to_numpy(filtered[0]), joint, (left, top), colour="prior")
    pairs = to_numpy(posterior.pairwise[0])
    parts += lattice(to_numpy(posterior.mean[0]), pairs, (second, top), colour="posterior")
    parts += path_elements([(second + STEP * j, top + LEVEL * i) for j, i in enumerate(path[0].tolist())])
    for j, name in enumerate(outputs):
        parts += [text(x + STEP * j, top - RADIUS - 8, name, "", "middle") for x in (left, second)]
        value = f"{exp(log_likelihood[0, j]):.2f}"
        parts.append(text(left + STEP * j, bottom, value, "", "middle"))
    for i, x in product(range(log_f.shape[-1]), (left, second)):
        parts.append(text(x - RADIUS - 8, top + LEVEL * i + 5, f"x{i + 1}", "", "end"))
    parts.append(
        text(left - RADIUS, bottom + 20, "p(y_j | y_1..y_j-1): the normaliser of each step", "faint")
    )
    note = f"the line has {exp(log_prob[0]):.2f} of the posterior probability"
    parts.append(text(second - RADIUS, bottom, note, "faint"))
    return card(
        second + panel + RADIUS + MARGIN, bottom + 20 + MARGIN, "Filter and posterior of a chain", parts
    )


def example_chain() -> tuple[Chain, Tensor]:
    """A chain that prefers the next member, and likelihoods whose second output is ambiguous until the third."""
    table = torch.tensor([-3.0, -2.0, 0.0, 1.5, 0.0], dtype=torch.float64)
    chain = Chain.from_scores(torch.zeros(1, 5, 4, dtype=torch.float64), transition=Jump(table))
    likelihood = [
        [0.6, 0.1, 0.1, 0.2], [0.2, 0.25, 0.05, 0.6], [0.05, 0.3, 0.5, 0.05], [0.1, 0.1, 0.4, 0.3],
        [0.05, 0.1, 0.1, 0.7],
    ]  # fmt: skip
    return chain, torch.tensor([likelihood], dtype=torch.float64).log()


def forward_pairs(chain: Chain, filtered: Tensor) -> Matrix:
    """p(z_{j-1} | y_<j) p(z_j | z_{j-1}): what the recursion adds up at every step."""
    steps = range(1, filtered.shape[1])
    return np.stack([to_numpy(filtered[0, j - 1, :, None] * chain.log_rows(j)[0].exp()) for j in steps])


def lattice(unary: Matrix, pairs: Matrix, corner: tuple[float, float], *, colour: str) -> Iterator[str]:
    """Members as nodes, a column for each output; nodes and lines are as strong as they are probable."""
    left, top = corner
    for (j, before, after), probability in np.ndenumerate(pairs):
        if probability >= 0.01:
            start = (left + STEP * j, top + LEVEL * before)
            yield edge(start, (left + STEP * (j + 1), top + LEVEL * after), colour, float(probability))
    for (j, i), probability in np.ndenumerate(unary):
        place = f'cx="{left + STEP * j:.1f}" cy="{top + LEVEL * i:.1f}" r="{RADIUS}"'
        yield f'<circle class="node" {place}/>'
        yield f'<circle class="{colour}" {place} opacity="{probability:.3f}"/>'


def edge(start: tuple[float, float], end: tuple[float, float], colour: str, share: float) -> str:
    """A line that is as wide and as strong as it is probable."""
    ends = f'x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}"'
    look = f'stroke-width="{1 + 7 * share:.1f}" opacity="{0.25 + 0.75 * share:.2f}"'
    return f'<line class="{colour}" {ends} {look}/>'


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """A line of text."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'


def to_numpy(value: Tensor) -> Matrix:
    """A tensor as an array."""
    return np.asarray(value.detach().cpu().double().numpy())


def compare(independent: TrainedTranslator, chain: TrainedTranslator, pair: tuple[str, str]) -> str:
    """The exact posteriors of two runs for one pair, that of the chain with its best path."""
    (without,), (with_path,) = (describe_pairs(run, [pair], np.asarray) for run in (independent, chain))
    probability = exp(with_path["path_log_prob"])
    path = [(i, j) for i, j in with_path["path"] if i is not None]
    panels = [
        Panel("independent", "posterior of each sound alone", "posterior", without["matrices"]["posterior"]),
        Panel(
            chain.config.prior.kind + " chain",
            f"posterior; the line and its end have {probability:.2f}",
            "posterior",
            with_path["matrices"]["posterior"],
            path,
        ),
    ]
    return draw_panels(without["source"], without["target"], panels, gold_of(chain, pair))


def gold_of(trained: TrainedTranslator, pair: tuple[str, str]) -> Links:
    """The sure gold links of a test pair."""
    split = find_split(trained, "test")
    pairs = list(split.read())
    if pair not in pairs or split.gold is None:
        return frozenset()
    gold = read_gold(split.gold, one_based=split.gold_one_based, sentences=len(pairs))
    return gold[pairs.index(pair)].sure


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw all pictures, or those that need no run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=HERE, help="the folder of the SVG files")
    parser.add_argument("--independent", type=Path, help="a run with independent alignments")
    parser.add_argument("--chain", type=Path, help="a run with a chain")
    parser.add_argument("--source", help="a source line")
    parser.add_argument("--target", help="its target line")
    options = parser.parse_args(arguments)
    write_text(options.out / "chain-transitions.svg", transitions())
    write_text(options.out / "chain-trellis.svg", trellis())
    given = (options.independent, options.chain, options.source, options.target)
    if all(given):
        runs = (TRANSLATION.load(options.independent), TRANSLATION.load(options.chain))
        write_text(options.out / "chain-spelling.svg", compare(*runs, (options.source, options.target)))
    elif any(given):
        parser.error("--independent, --chain, --source and --target belong together")


if __name__ == "__main__":
    main()
