"""The embedded translation data: any number of German-English sentence pairs with gold word alignments.

A small probabilistic grammar with real words generates them. For every pair, the links between its words and the
exact log p(target | source) are known, so the best possible perplexity is known too.
`python -m latentalign.data.demo` prints twenty pairs.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from math import exp
from pathlib import Path
from random import Random

from latentalign.data.demo_language.english import english
from latentalign.data.demo_language.english_verbs import Choices
from latentalign.data.demo_language.german import Word, german
from latentalign.data.demo_language.meaning import Sentence
from latentalign.data.demo_language.sentences import Author
from latentalign.errors import InputError
from latentalign.storage import write_text

LENGTHS = range(4, 17)
"""How many German words a sentence may have, including the full stop."""
Links = frozenset[tuple[int, int]]


@dataclass(frozen=True)
class Pair:
    """A German sentence, an English translation, gold links (source, target; 0-based) and log p(target | source).

    `possible` contains debatable links (auxiliaries, "to", "'s"), without the sure ones.
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
    paths = [
        folder / f"{name}.{kind}" for name in ("train", "valid", "test") for kind in ("de", "en", "gold")
    ]
    present = [path for path in paths if path.exists()]
    if present and not overwrite:
        raise InputError(f"{present[0]} already exists; choose another folder, or add --overwrite")
    folder.mkdir(parents=True, exist_ok=True)
    for name, pairs in splits(train, valid, test, seed=seed).items():
        _write_lines(folder / f"{name}.de", (" ".join(pair.source) for pair in pairs))
        _write_lines(folder / f"{name}.en", (" ".join(pair.target) for pair in pairs))
        _write_lines(folder / f"{name}.gold", map(pharaoh, pairs))


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    write_text(path, "".join(f"{line}\n" for line in lines))


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


def main() -> None:
    """Print twenty pairs with their links, and the statistics of a thousand."""
    pairs = generate(1000, seed=0)
    for pair in pairs[:20]:
        print(" ".join(pair.source), " ".join(pair.target), pharaoh(pair), "", sep="\n")
    for name, value in vars(statistics(pairs)).items():
        print(f"{name:>18} {value:.3f}" if isinstance(value, float) else f"{name:>18} {value}")


if __name__ == "__main__":
    main()
