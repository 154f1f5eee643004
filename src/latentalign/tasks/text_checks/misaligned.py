"""Pairs that do not translate each other, found with a word aligner.

A word aligner gives log p(target | source) and log p(source | target) of any pair of lines. The *gain* of a pair is the
number of nats per word by which it is more probable than the same words beside a random line of equal length. The gain
of translations is typically 2 to 4, that of other pairs about 0. If a line fits one of the next lines of the other side
instead, the lines are shifted. A Viterbi path over the lines decides for each whether it fits, is shifted by some
lines, or fits nothing nearby. Changing from one to the other has a price, so a single line needs more evidence than a
stretch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice, pairwise

import numpy as np

from latentalign.aligner.model import Aligner, WordPair
from latentalign.progress import Bars
from latentalign.tasks.text_checks.shifts import Array

LAGS = (-3, -2, -1, 1, 2, 3)
"""Shifts that are tried, in lines."""
RANDOM_LINES = 2
"""Random lines that every line is compared with."""
SUSPICIOUS = 1.3
"""Lines with a smaller gain are compared with their neighbours, and so are the lines around them."""
AROUND = 6
"""Lines before and after a suspicious line that are looked at."""
NO_FIT = 0.75
"""The gain that a line must exceed, or it fits nothing."""
CHANGE = 0.45
"""Price of a change between lines that fit, lines that are shifted and lines that fit nothing."""
ENOUGH_WORDS = 16
"""Words of both sides from which on a pair counts fully. The gain of fewer words is less certain."""
PART = 50_000
"""Lines that are held in memory."""
FEWEST = 20
"""Fewer lines are not judged."""


@dataclass(frozen=True)
class Misaligned:
    """Consecutive lines that do not translate each other."""

    first: int
    """First line, counted from 1."""
    last: int
    lag: int | None
    """Source line n fits target line n + lag, for most of the lines; None if they fit nothing nearby."""
    gain: float
    """Mean gain in nats per word."""
    moved_gain: float | None
    """The same if the lines are moved by the lag."""
    source: str
    """Text of the line with the smallest gain."""
    target: str
    line: int
    """Its number."""


def find_misaligned(
    aligner: Aligner, lines: Iterable[tuple[str, str]], total: int, *, name: str = "comparing lines"
) -> list[Misaligned]:
    """The stretches of lines that do not translate each other, among `total` lines. Few lines say too little.

    Lines are compared in parts of equal size, so that memory is bounded.
    """
    if total < FEWEST:
        return []
    reading = iter(lines)
    ends = np.linspace(0, total, -(-total // PART) + 1).astype(int)
    found: list[Misaligned] = []
    with Bars() as bars:
        bar = bars.add(name, total * (1 + 2 * RANDOM_LINES), unit="comparisons")
        for start, stop in pairwise(ends.tolist()):
            part = list(islice(reading, stop - start))
            words = [_normalise(aligner, pair) for pair in part]
            gains = measure_gains(aligner, words, bar.advance)
            for run in find_runs(gains, words):
                one = _describe(part, words, gains, run)
                shift = {key: getattr(one, key) + start for key in ("first", "last", "line")}
                found.append(replace(one, **shift))
    return found


def _normalise(aligner: Aligner, pair: tuple[str, str]) -> WordPair:
    source, target = aligner.config.split_pair(pair)
    return aligner.config.normalise(source), aligner.config.normalise(target)


@dataclass(frozen=True, eq=False)
class Gains:
    """Gains of the lines of a text in nats per word."""

    own: Array
    """Of every line as it stands."""
    moved: dict[int, Array]
    """Of the lines near suspicious ones, if the target is moved by a lag; 0 elsewhere."""


def measure_gains(
    aligner: Aligner, words: Sequence[WordPair], advance: Callable[[int], None] = lambda count: None
) -> Gains:
    """The gains of all lines, and those of suspicious lines if they are moved."""
    lengths = np.array([[len(source), len(target)] for source, target in words]).reshape(-1, 2)

    def score(pairs: Sequence[WordPair]) -> Array:
        advance(len(pairs))
        return aligner.log_likelihoods(pairs)

    random = np.zeros((len(words), 2))
    generator = np.random.default_rng(0)
    full = np.flatnonzero(lengths.min(1, initial=1))  # a blank line says nothing about any other
    for number in range(2 * RANDOM_LINES):
        side = number % 2  # what is predicted from another line: the target (0) or the source (1)
        other = full[draw_partners(lengths[full, side], generator)]
        mixed = [
            (words[j][0], words[i][1]) if side == 0 else (words[i][0], words[j][1])
            for i, j in zip(full.tolist(), other.tolist(), strict=True)
        ]
        random[full, side] += score(mixed)[:, side] / RANDOM_LINES
    own = per_word(score(words) - random, lengths)
    near = lines_around(np.flatnonzero(own < SUSPICIOUS), len(words))
    moved = {}
    for lag in LAGS:
        places = np.intersect1d(near, np.intersect1d(full, full - lag))
        found = aligner.log_likelihoods([(words[i][0], words[i + lag][1]) for i in places.tolist()])
        evidence = np.zeros((len(words), 2))
        # Line i of the source is explained by target line i + lag, line i + lag of the target by source line i.
        evidence[places, 1] = found[:, 1] - random[places, 1]
        evidence[places + lag, 0] = found[:, 0] - random[places + lag, 0]
        moved[lag] = per_word(evidence, lengths)
    return Gains(own, moved)


def per_word(evidence: Array, lengths: Array) -> Array:
    """The sum over both directions, divided by the number of words; 0 for lines with a blank side."""
    full = lengths.min(1, initial=1) > 0
    result: Array = np.where(full, evidence.sum(1) / np.maximum(lengths.sum(1), 1), 0.0)
    return result


def draw_partners(lengths: Array, generator: np.random.Generator) -> Array:
    """For every line another one of about the same length, drawn at random."""
    count = len(lengths)
    order = np.argsort(lengths + 0.5 * generator.random(count))
    result: Array = np.empty(count, np.int64)
    result[order] = np.roll(order, int(generator.integers(1, min(100, max(2, count // 4)))))
    return result


def lines_around(places: Array, count: int) -> Array:
    """Some lines and those around them."""
    near = np.zeros(count, bool)
    for offset in range(-AROUND, AROUND + 1):
        moved = places + offset
        near[moved[(moved >= 0) & (moved < count)]] = True
    return np.flatnonzero(near)


def find_runs(gains: Gains, words: Sequence[WordPair]) -> list[list[tuple[int, int | None]]]:
    """The lines (from 0) that do not fit, each with its lag, in stretches of consecutive lines."""
    states: list[int | None] = [0, None, *LAGS]
    weight = np.array([min(1.0, (len(a) + len(b)) / ENOUGH_WORDS) if a and b else 0.0 for a, b in words])
    columns = [gains.own, np.full(len(words), NO_FIT), *(gains.moved[lag] for lag in LAGS)]
    scores = weight[:, None] * np.clip(np.stack(columns, 1), -1, 3)
    path = best_path(scores, CHANGE)
    marked = [(place, states[state]) for place, state in enumerate(path) if state]
    runs = groupby(enumerate(marked), key=lambda entry: entry[1][0] - entry[0])
    return [[line for _, line in run] for _, run in runs]


def best_path(scores: Array, change: float) -> list[int]:
    """The states with the largest sum of scores, if every change of the state costs `change` (Viterbi)."""
    if not len(scores):
        return []
    total, came_from = scores[0].copy(), np.zeros(scores.shape, np.int64)
    total[1:] -= change
    for place in range(1, len(scores)):
        best = int(total.argmax())
        stay = total >= total[best] - change
        came_from[place] = np.where(stay, np.arange(len(total)), best)
        total = np.where(stay, total, total[best] - change) + scores[place]
    total[1:] -= change  # text begins and ends with lines that fit
    path = [int(total.argmax())]
    for place in range(len(scores) - 1, 0, -1):
        path.append(int(came_from[place, path[-1]]))
    return path[::-1]


def _describe(
    lines: Sequence[tuple[str, str]],
    words: Sequence[WordPair],
    gains: Gains,
    run: list[tuple[int, int | None]],
) -> Misaligned:
    """What is reported about a stretch."""
    places = [place for place, _ in run]
    lags = [lag for _, lag in run]
    lag = max(set(lags), key=lambda one: (lags.count(one), one is not None))
    size = np.array([len(words[place][0]) + len(words[place][1]) for place in places])
    worst = places[int(np.argmin(gains.own[places]))]
    moved = None if lag is None else round(float(np.average(gains.moved[lag][places], weights=size)), 2)
    gain = round(float(np.average(gains.own[places], weights=size)), 2)
    source, target = lines[worst]
    return Misaligned(places[0] + 1, places[-1] + 1, lag, gain, moved, source, target, worst + 1)
