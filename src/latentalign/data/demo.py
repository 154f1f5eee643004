"""The embedded translation data: any number of German-English sentence pairs with gold word alignments.

A small probabilistic grammar with real words generates them. For every pair, the links between its words and the
exact log p(target | source) are known, so the best possible perplexity is known too.
`python -m latentalign.data.demo` prints twenty pairs.
"""

from collections.abc import Container, Sequence
from pathlib import Path
from random import Random

from latentalign.data.demo_language.english import english
from latentalign.data.demo_language.english_verbs import Choices
from latentalign.data.demo_language.german import Word, german
from latentalign.data.demo_language.meaning import Sentence
from latentalign.data.demo_language.sentences import Author
from latentalign.data.pairs import (
    Links,
    Pair,
    Statistics,
    draw_splits,
    pharaoh,
    print_pairs,
    statistics,
    write_splits,
)

__all__ = ["Pair", "Statistics", "draw", "generate", "pharaoh", "splits", "statistics", "write"]

LENGTHS = range(4, 17)
"""How many German words a sentence may have, including the full stop."""


def _draw_meaning(rng: Random) -> tuple[Sentence, list[Word]]:
    """A meaning whose German sentence has an accepted length. The English side has no influence."""
    while True:
        meaning = Author(rng).sentence()
        words = german(meaning)
        if len(words) in LENGTHS:
            return meaning, words


def _sampler(rng: Random) -> Choices:
    """Random choices between English alternatives."""

    def draw(weights: Sequence[float]) -> int:
        point = rng.random() * sum(weights)
        for index, weight in enumerate(weights):
            point -= weight
            if point < 0:
                return index
        return len(weights) - 1

    return Choices(draw)


def _links(source: list[Word], target: list[Word]) -> tuple[Links, Links]:
    """Sure and possible links between words that express the same part of the meaning."""
    places: dict[object, list[int]] = {}
    for i, word in enumerate(source):
        for key in word.sure:
            places.setdefault(key, []).append(i)
    sure = frozenset(
        (i, j) for j, word in enumerate(target) for key in word.sure for i in places.get(key, ())
    )
    maybe = {(i, j) for j, word in enumerate(target) for key in word.possible for i in places.get(key, ())}
    return sure, frozenset(maybe - sure)


def draw(rng: Random) -> Pair:
    """One random pair. The same pair may be drawn again."""
    meaning, source = _draw_meaning(rng)
    choices = _sampler(rng)
    target = english(meaning, choices)
    sure, possible = _links(source, target)
    return Pair(
        tuple(w.text for w in source), tuple(w.text for w in target), sure, possible, choices.log_prob
    )


def generate(n: int, *, seed: int, exclude: Container[tuple[str, ...]] = ()) -> list[Pair]:
    """n pairs with n different sources, none in `exclude`. The result for a seed is equal on every machine.

    Each source occurs once, so its target is a fair sample from p(target | source).
    """
    rng, seen, pairs = Random(seed), set[tuple[str, ...]](), list[Pair]()
    while len(pairs) < n:
        pair = draw(rng)
        if pair.source not in seen and pair.source not in exclude:
            seen.add(pair.source)
            pairs.append(pair)
    return pairs


def splits(train: int, valid: int, test: int, *, seed: int = 0) -> dict[str, list[Pair]]:
    """Pairs for training, validation and test. No source sentence is in two of them."""
    return draw_splits(generate, train, valid, test, seed=seed)


def write(
    folder: Path,
    *,
    train: int = 10_000,
    valid: int = 1_000,
    test: int = 1_000,
    seed: int = 0,
    overwrite: bool = False,
) -> None:
    """Write NAME.de, NAME.en and NAME.gold for train, valid and test. Replaces files only with `overwrite`."""
    write_splits(folder, lambda: splits(train, valid, test, seed=seed), ("de", "en"), overwrite=overwrite)


def main() -> None:
    """Print twenty pairs with their links, and the statistics of a thousand."""
    print_pairs(generate(1000, seed=0))


if __name__ == "__main__":
    main()
