"""Word-alignment links: how two directions are merged and how links are scored.

A link is (source word, target word), both counted from 0. Files are read by `link_formats`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from latentalign.errors import InputError

Links = frozenset[tuple[int, int]]
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Gold:
    """The gold links of one sentence pair. `possible` always includes `sure`."""

    sure: Links
    possible: Links = frozenset()

    def __post_init__(self) -> None:
        object.__setattr__(self, "possible", self.possible | self.sure)


def format_pharaoh(links: Links) -> str:
    """One line of `i-j` links, sorted by source and target."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def reverse(links: Links) -> Links:
    """The same links with the two sides swapped."""
    return frozenset((target, source) for source, target in links)


def stray_links(
    alignments: Sequence[Gold | Links], source_lengths: Sequence[int], target_lengths: Sequence[int]
) -> list[tuple[int, int, int]]:
    """(sentence counted from 1, source, target) of links outside their sentences. Gold links have slips too."""
    return [
        (number, source, target)
        for number, (links, sources, targets) in enumerate(
            zip(alignments, source_lengths, target_lengths, strict=True), start=1
        )
        for source, target in sorted(links.possible if isinstance(links, Gold) else links)
        if not (0 <= source < sources and 0 <= target < targets)
    ]


def lacks_zero(gold: Sequence[Gold]) -> bool:
    """Whether there are links but none touches a word 0: a sign that the file counts from 1."""
    touched = [min(link) for sentence in gold for link in sentence.possible]
    return bool(touched) and min(touched) > 0


# Symmetrisation (Och & Ney 2003; Koehn et al. 2005). The result depends on the order in which links are visited:
# here by target word, then by source word, and neighbours in the order of this list.
_NEIGHBOURS = ((0, -1), (-1, 0), (0, 1), (1, 0), (-1, -1), (1, -1), (-1, 1), (1, 1))


class _Growing:
    """A set of links and the words that it covers."""

    def __init__(self, links: Links) -> None:
        self.links = set(links)
        self.sources = {source for source, _ in links}
        self.targets = {target for _, target in links}

    def add(self, link: tuple[int, int]) -> None:
        self.links.add(link)
        self.sources.add(link[0])
        self.targets.add(link[1])

    def uncovered(self, link: tuple[int, int]) -> int:
        """How many of the link's two words are not covered yet."""
        return (link[0] not in self.sources) + (link[1] not in self.targets)


def _sort_by_target(links: Links) -> list[tuple[int, int]]:
    return sorted(links, key=lambda link: (link[1], link[0]))


def _grow(forward: Links, backward: Links) -> _Growing:
    """The intersection, extended by neighbours in the union that cover a new word."""
    result, union, before = _Growing(forward & backward), forward | backward, -1
    while len(result.links) > before:
        before = len(result.links)
        for link in _sort_by_target(union):
            if link not in result.links:
                continue
            for step in _NEIGHBOURS:
                neighbour = (link[0] + step[0], link[1] + step[1])
                if neighbour in union and result.uncovered(neighbour):
                    result.add(neighbour)
    return result


def _grow_diag(forward: Links, backward: Links) -> Links:
    return frozenset(_grow(forward, backward).links)


def _grow_and_finish(forward: Links, backward: Links, *, least_uncovered: int) -> Links:
    """grow-diag, then every link of either direction with at least `least_uncovered` uncovered words."""
    result = _grow(forward, backward)
    for direction in (forward, backward):
        for link in _sort_by_target(direction):
            if result.uncovered(link) >= least_uncovered:
                result.add(link)
    return frozenset(result.links)


SYMMETRIZE: dict[str, Callable[[Links, Links], Links]] = {
    "intersection": lambda forward, backward: forward & backward,
    "union": lambda forward, backward: forward | backward,
    "grow-diag": _grow_diag,
    "grow-diag-final": lambda forward, backward: _grow_and_finish(forward, backward, least_uncovered=1),
    "grow-diag-final-and": lambda forward, backward: _grow_and_finish(forward, backward, least_uncovered=2),
}


def symmetrize(forward: Links, backward: Links, method: str) -> Links:
    """One set of links from two directions, both as (source, target). `reverse` the links of a backward model."""
    if method not in SYMMETRIZE:
        raise InputError(f"unknown symmetrisation {method!r}; choose one of {', '.join(SYMMETRIZE)}")
    return SYMMETRIZE[method](forward, backward)


@dataclass(frozen=True)
class Scores:
    """Agreement with gold links over a corpus, with percentile bootstrap intervals over sentences.

    Precision is 1 without predicted links, recall is 1 without sure links, and AER is 0 without both. F1 is 0
    if precision and recall are 0.
    """

    aer: float
    precision: float
    recall: float
    f1: float
    intervals: dict[str, tuple[float, float]] | None = field(repr=False)
    sentences: int
    predicted_links: int
    sure_links: int
    possible_links: int


_RATES = ("aer", "precision", "recall", "f1")


def score(
    gold: Sequence[Gold],
    predicted: Sequence[Links],
    *,
    bootstrap: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> Scores:
    """AER = 1 - (|A∩S| + |A∩P|) / (|A| + |S|), precision |A∩P|/|A|, recall |A∩S|/|S| and F1 of the corpus.

    Och & Ney (2003). Intervals contain `level` of `bootstrap` resamplings of the sentences; None if that is 0.
    """
    if len(gold) != len(predicted):
        raise InputError(
            f"{len(gold)} gold sentences but {len(predicted)} predicted ones; give one line per sentence, "
            "and an empty line for a sentence without links"
        )
    if not gold:
        raise InputError("there is no sentence to score: the gold and predicted links are empty")
    if bootstrap < 0 or not 0 < level < 1:
        raise InputError(f"bootstrap must be at least 0 and level within (0, 1), not {bootstrap} and {level}")
    counts = np.array(
        [
            (len(a), len(g.sure), len(a & g.sure), len(a & g.possible))
            for g, a in zip(gold, predicted, strict=True)
        ]
    )
    total = counts.sum(axis=0)
    return Scores(
        **dict(zip(_RATES, _rates(total[None])[0].tolist(), strict=True)),
        intervals=_intervals(counts, bootstrap, seed, level=level) if bootstrap else None,
        sentences=len(gold),
        predicted_links=int(total[0]),
        sure_links=int(total[1]),
        possible_links=sum(len(sentence.possible) for sentence in gold),
    )


def _rates(counts: Int[np.ndarray, "n 4"]) -> Float[np.ndarray, "n 4"]:
    """AER, precision, recall and F1 of rows of (|A|, |S|, |A∩S|, |A∩P|)."""
    predicted, sure, in_sure, in_possible = counts.T

    def ratio(top: Array, bottom: Array, empty: float) -> Array:
        result: Array = np.divide(top, bottom, out=np.full(len(top), empty), where=bottom > 0)
        return result

    precision = ratio(in_possible, predicted, 1.0)
    recall = ratio(in_sure, sure, 1.0)
    aer = 1 - ratio(in_sure + in_possible, predicted + sure, 1.0)
    return np.stack([aer, precision, recall, ratio(2 * precision * recall, precision + recall, 0.0)], axis=1)


def _intervals(
    counts: Int[np.ndarray, "n 4"], bootstrap: int, seed: int, *, level: float
) -> dict[str, tuple[float, float]]:
    """Percentile bootstrap intervals of the four rates."""
    generator, n = np.random.default_rng(seed), len(counts)
    block = max(1, 2**20 // n)  # limits the memory of a block of resamplings
    sizes = [min(block, bootstrap - done) for done in range(0, bootstrap, block)]
    totals = [counts[generator.integers(n, size=(size, n))].sum(axis=1) for size in sizes]
    tails = [(1 - level) / 2, (1 + level) / 2]
    low, high = np.quantile(_rates(np.concatenate(totals)), tails, axis=0).tolist()
    return {name: (low[i], high[i]) for i, name in enumerate(_RATES)}


@dataclass(frozen=True, eq=False)  # comparing arrays gives no single truth value
class WordAlignment:
    """Word-level alignment probabilities: W target words, V source words."""

    probability: Float[np.ndarray, "W V"]
    """Probability of each source word, averaged over the subwords of the target word."""
    null: Float[np.ndarray, " W"]
    """Probability of NULL and special tokens, averaged in the same way. They are never linked."""
    entropy: Float[np.ndarray, " W"]
    """Entropy in nats over the source words and one more outcome for all special tokens."""

    def best(self, threshold: float = 0.0, *, null: float | None = None) -> Links:
        """Each target word with its most probable source word (the first of equals).

        A word gets no link if that probability is zero or below `threshold`, or if NULL is more probable than the
        source word (with `null`: more probable than this number).
        """
        if not self.probability.size:
            return frozenset()
        source = self.probability.argmax(axis=1)
        largest = self.probability.max(axis=1) if null is None else null
        linked = self._likely(threshold)[np.arange(len(source)), source] & (self.null <= largest)
        return frozenset((int(source[w]), int(w)) for w in np.flatnonzero(linked))

    def at_least(self, threshold: float) -> Links:
        """Every link whose probability is positive and at least `threshold`. A word may have several or none."""
        return frozenset((int(v), int(w)) for w, v in np.argwhere(self._likely(threshold)))

    def to_json(self, links: Links) -> list[dict[str, int | float]]:
        """Sorted links with their probabilities, as values that JSON can represent."""
        return [
            {"source": v, "target": w, "probability": float(self.probability[w, v])} for v, w in sorted(links)
        ]

    def _likely(self, threshold: float) -> Array:
        """Whether each probability is positive and at least `threshold`."""
        return (self.probability >= threshold) & (self.probability > 0)


def word_links(
    probabilities: Float[np.ndarray, "S T"], source_words: Sequence[int], target_words: Sequence[int]
) -> WordAlignment:
    """Word-level alignment probabilities, from a distribution over source subwords for each target subword.

    `source_words[t]` is the number of the word that source subword t belongs to, or -1 for a special token.
    `target_words` is the same for the target. A target word without subwords is not linked.
    """
    if probabilities.shape != (len(target_words), len(source_words)):
        raise ValueError(
            f"the shape of probabilities is {probabilities.shape}, but there are {len(target_words)} target and "
            f"{len(source_words)} source subwords"
        )
    of_source, of_target = _membership(source_words), _membership(target_words)
    subwords = np.maximum(of_target.sum(axis=0), 1)
    mean = of_target.T @ probabilities.astype(np.float64) / subwords[:, None]
    probability = mean @ of_source
    null = mean @ (np.asarray(source_words, dtype=np.int64) < 0).astype(np.float64)
    outcomes = np.concatenate([probability, null[:, None]], axis=1)
    log = np.log(outcomes, out=np.zeros_like(outcomes), where=outcomes > 0)
    return WordAlignment(probability, null, np.maximum(-(outcomes * log).sum(axis=1), 0.0))


def _membership(words: Sequence[int]) -> Float[np.ndarray, "subwords words"]:
    """1 if a subword belongs to a word, else 0. Special tokens belong to no word."""
    numbers = np.asarray(words, dtype=np.int64)
    is_member: Array = numbers[:, None] == np.arange(max(words, default=-1) + 1)
    return is_member.astype(np.float64)
