"""Generated pairs with gold links and known probabilities: their statistics, and their files."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp
from pathlib import Path

from latentalign.errors import InputError
from latentalign.storage import write_text

Links = frozenset[tuple[int, int]]


@dataclass(frozen=True)
class Pair:
    """A source, a target, gold links (source, target; 0-based) and log p(target | source).

    `possible` contains debatable links, without the sure ones.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    sure: Links
    possible: Links
    log_prob: float


@dataclass(frozen=True)
class Statistics:
    """Sizes of a set of pairs, how hard it is to align, and the lowest perplexity that a model can expect."""

    pairs: int
    source_tokens: int
    target_tokens: int
    source_vocabulary: int
    target_vocabulary: int
    crossing_share: float
    """Share of links that cross another link of their pair."""
    possible_share: float
    """Share of links that are only possible."""
    floor_perplexity: float
    """exp of the mean -log p(target | source) per target token, including the end of the sentence."""


Generate = Callable[..., list[Pair]]
"""generate(n, seed=..., exclude=...): n pairs with n different sources, none in `exclude`."""


def draw_splits(generate: Generate, train: int, valid: int, test: int, *, seed: int) -> dict[str, list[Pair]]:
    """Pairs for training, validation and test. No source sentence is in two of them.

    The test set is drawn first and does not depend on the sizes of the others.
    """
    drawn: dict[str, list[Pair]] = {}
    seen: set[tuple[str, ...]] = set()
    for offset, (name, size) in enumerate((("test", test), ("valid", valid), ("train", train))):
        drawn[name] = generate(size, seed=3 * seed + offset, exclude=seen)
        seen.update(pair.source for pair in drawn[name])
    return {name: drawn[name] for name in ("train", "valid", "test")}


def pharaoh(pair: Pair) -> str:
    """The gold links of a pair on one line: `i-j` sure, `i?j` possible."""
    marks = [(i, j, "-") for i, j in pair.sure] + [(i, j, "?") for i, j in pair.possible]
    return " ".join(f"{i}{mark}{j}" for i, j, mark in sorted(marks))


def write_splits(
    folder: Path,
    splits: Callable[[], dict[str, list[Pair]]],
    sides: tuple[str, str],
    *,
    overwrite: bool,
    between: str = " ",
) -> None:
    """Write NAME.SOURCE, NAME.TARGET and NAME.gold of every split. Replaces files only with `overwrite`.

    `between` stands between the tokens of a source.
    """
    kinds = (*sides, "gold")
    paths = [folder / f"{name}.{kind}" for name in ("train", "valid", "test") for kind in kinds]
    present = [path for path in paths if path.exists()]
    if present and not overwrite:
        raise InputError(f"{present[0]} already exists; choose another folder, or add --overwrite")
    folder.mkdir(parents=True, exist_ok=True)
    for name, pairs in splits().items():
        columns = [
            [between.join(pair.source) for pair in pairs],
            [" ".join(pair.target) for pair in pairs],
            [pharaoh(pair) for pair in pairs],
        ]
        for kind, lines in zip(kinds, columns, strict=True):
            write_text(folder / f"{name}.{kind}", "".join(f"{line}\n" for line in lines))


def _count_crossing(links: Sequence[tuple[int, int]]) -> int:
    """How many links cross another link."""
    return sum(any((i - k) * (j - m) < 0 for k, m in links) for i, j in links)


def statistics(pairs: Sequence[Pair]) -> Statistics:
    """Sizes, crossing and possible links, and the perplexity floor of a set of pairs."""
    if not pairs:
        raise InputError("statistics need at least one pair")
    links = [sorted(pair.sure | pair.possible) for pair in pairs]
    total = sum(map(len, links))
    target_tokens = sum(len(pair.target) for pair in pairs)
    return Statistics(
        pairs=len(pairs),
        source_tokens=sum(len(pair.source) for pair in pairs),
        target_tokens=target_tokens,
        source_vocabulary=len({word for pair in pairs for word in pair.source}),
        target_vocabulary=len({word for pair in pairs for word in pair.target}),
        crossing_share=sum(map(_count_crossing, links)) / total,
        possible_share=sum(len(pair.possible) for pair in pairs) / total,
        floor_perplexity=exp(-sum(pair.log_prob for pair in pairs) / (target_tokens + len(pairs))),
    )


def print_pairs(pairs: Sequence[Pair]) -> None:
    """Print twenty pairs with their links, and the statistics of all."""
    for pair in pairs[:20]:
        print(" ".join(pair.source), " ".join(pair.target), pharaoh(pair), "", sep="\n")
    for name, value in vars(statistics(pairs)).items():
        print(f"{name:>18} {value:.3f}" if isinstance(value, float) else f"{name:>18} {value}")
