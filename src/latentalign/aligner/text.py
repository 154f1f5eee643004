"""Word links of sentence pairs from an aligner, one pair at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from latentalign.aligner.model import Aligner, PairPosterior
from latentalign.errors import InputError
from latentalign.links.aligned import LinkedWords, word_record
from latentalign.links.phrases import phrase_pairs
from latentalign.links.sets import SYMMETRIZE, Links, format_pharaoh, symmetrize
from latentalign.links.words import Word, WordAlignment
from latentalign.progress import inform

Array = np.ndarray[Any, np.dtype[Any]]
POSTERIORS = ("mean", "product", "forward", "backward")
USING = ("posterior", "path")


@dataclass(frozen=True)
class LinkOptions:
    """Which links an aligner writes, and what else."""

    using: str = "posterior"
    """`posterior` keeps probable links, `path` those of the best paths of both directions."""
    symmetrize: str = "mean"
    """How both directions are combined: their probabilities (`POSTERIORS`) or their links (`SYMMETRIZE`)."""
    at_least: float | None = None
    """Keep every link of at least this probability. None: the threshold with the best expected F1."""
    nbest: int = 0
    """Write this many paths of each direction."""
    phrases: int = 0
    """Write phrase pairs of up to this many words."""

    def __post_init__(self) -> None:
        if self.using not in USING:
            raise InputError(
                f"--using must be one of {', '.join(USING)} for an aligner, which has no prior and no inference "
                f"network; got {self.using!r}"
            )
        known = (*POSTERIORS, *SYMMETRIZE)
        if self.symmetrize not in known:
            raise InputError(f"--symmetrize must be one of {', '.join(known)}, got {self.symmetrize!r}")
        if self.at_least is not None and not 0 <= self.at_least <= 1:
            raise InputError(f"--at-least must be a probability from 0 to 1, got {self.at_least}")


@dataclass
class Totals:
    """What a summary needs to know about all pairs."""

    pairs: int = 0
    source_words: int = 0
    target_words: int = 0
    links: int = 0
    linked_source: int = 0
    linked_target: int = 0
    chosen_mass: float = 0.0
    mass: float = 0.0

    @property
    def expected_f1(self) -> float:
        """The F1 that the model expects of its links."""
        return 2 * self.chosen_mass / max(1e-9, self.links + self.mass)

    @property
    def unlinked(self) -> tuple[float, float]:
        """Shares of source and target words without a link."""
        return (
            1 - self.linked_source / max(1, self.source_words),
            1 - self.linked_target / max(1, self.target_words),
        )

    def count(self, probability: Array, links: Links) -> None:
        target, source = probability.shape
        self.pairs += 1
        self.source_words += source
        self.target_words += target
        self.links += len(links)
        self.linked_source += len({s for s, _ in links})
        self.linked_target += len({t for _, t in links})
        self.chosen_mass += float(sum(probability[t, s] for s, t in links))
        self.mass += float(probability.sum())

    def describe(self) -> str:
        """One line for people."""
        if not (self.source_words and self.target_words):
            return (
                f"{self.pairs:,} pairs, {self.source_words:,} + {self.target_words:,} words: nothing to link"
            )
        source, target = self.unlinked
        return (
            f"{self.pairs:,} pairs, {self.source_words:,} + {self.target_words:,} words, {self.links:,} links; "
            f"without a link: {100 * source:.0f} % of the source words and {100 * target:.0f} % of the target words; "
            f"expected F1 {self.expected_f1:.3f}"
        )


@dataclass(frozen=True)
class AlignedPair:
    """A sentence pair with its links."""

    source: list[Word]
    target: list[Word]
    posterior: PairPosterior
    probability: Array
    links: Links


@dataclass
class AlignedStream:
    """Sentence pairs that are aligned while they are read. They can be read once."""

    aligner: Aligner
    text: Iterable[tuple[str, str]]
    options: LinkOptions
    totals: Totals = field(default_factory=Totals)

    def __iter__(self) -> Iterator[AlignedPair]:
        words: deque[tuple[list[Word], list[Word]]] = deque()  # of pairs that are being aligned
        config = self.aligner.config

        def split() -> Iterator[tuple[list[str], list[str]]]:
            for pair in self.text:
                words.append(config.split_pair(pair))
                yield config.normalise(words[-1][0]), config.normalise(words[-1][1])

        for posterior in self.aligner.align(split()):
            source, target = words.popleft()
            probability = combine_posteriors(posterior, self.options.symmetrize)
            links = choose_links(self.aligner, posterior, probability, self.options, (source, target))
            self.totals.count(probability, links)
            yield AlignedPair(source, target, posterior, probability, links)

    def linked_pairs(self) -> Iterator[LinkedWords]:
        """The words and links of each pair."""
        return (LinkedWords((pair.source, pair.target), pair.probability, pair.links) for pair in self)

    def pharaoh(self) -> Iterator[str]:
        """The links of each pair in Pharaoh's format, `i-j`; a summary at the end."""
        for pair in self:
            yield format_pharaoh(pair.links)
        inform(self.totals.describe())

    def records(self) -> Iterator[dict[str, Any]]:
        """Everything about each pair, as `tasks.alignment.schema.AlignerRecord` describes it; a summary at the end."""
        for line, pair in enumerate(self):
            yield describe_pair(self.aligner, line, pair, self.options)
        inform(self.totals.describe())


def combine_posteriors(posterior: PairPosterior, method: str) -> Array:
    """One matrix of link probabilities, a row for each target word."""
    found: Array = getattr(posterior, method) if method in POSTERIORS else posterior.mean
    return found


def choose_links(
    aligner: Aligner,
    posterior: PairPosterior,
    probability: Array,
    options: LinkOptions,
    words: tuple[list[Word], list[Word]],
) -> Links:
    """The links of a pair."""
    least = aligner.threshold if options.at_least is None else options.at_least
    if options.using == "path":
        forward, backward = (path_links(aligner, words, side) for side in (0, 1))
        if options.symmetrize in SYMMETRIZE:
            return symmetrize(forward, backward, options.symmetrize)
        either = {"forward": forward, "backward": backward}.get(options.symmetrize, forward & backward)
        return frozenset(link for link in either if probability[link[1], link[0]] >= (options.at_least or 0))
    if options.symmetrize in SYMMETRIZE:
        forward = best_of_rows(posterior.forward, posterior.target_null, options.at_least or 0.0)
        backward = best_of_rows(posterior.backward.T, posterior.source_null, options.at_least or 0.0)
        return symmetrize(frozenset((s, t) for t, s in forward), frozenset(backward), options.symmetrize)
    return frozenset((int(s), int(t)) for t, s in np.argwhere((probability >= least) & (probability > 0)))


def best_of_rows(probability: Array, null: Array, least: float) -> frozenset[tuple[int, int]]:
    """(row, column) of the largest probability of each row, where it is not below NULL or `least`."""
    entropy = np.zeros(len(probability))
    return frozenset((row, column) for column, row in WordAlignment(probability, null, entropy).best(least))


def path_links(aligner: Aligner, words: tuple[list[Word], list[Word]], side: int) -> Links:
    """The links of the most probable path of one direction."""
    if not all(words):
        return frozenset()
    source, target = (aligner.config.normalise(side_words) for side_words in words)
    chain, log_f = aligner.chain(source, target, side)
    path = chain.posterior(log_f).mode[0].tolist()[:-1]  # without the end
    width = log_f.shape[-1] - 2
    links = ((place, word) for word, place in enumerate(path) if place < width)
    return frozenset(links if side == 0 else ((word, place) for place, word in links))


def row_entropy(probability: Array, null: Array) -> list[float]:
    """Entropy in nats of each row, with NULL as one more outcome."""
    outcomes = np.concatenate([probability, null[:, None]], 1).astype(np.float64)
    log = np.log(outcomes, out=np.zeros_like(outcomes), where=outcomes > 0)
    return [round(max(0.0, float(-e)), 6) for e in (outcomes * log).sum(1)]


def rounded(values: Array) -> Any:
    """Probabilities with four decimals, as lists."""
    return np.round(np.clip(values, 0, 1).astype(np.float64), 4).tolist()


def describe_pair(aligner: Aligner, line: int, pair: AlignedPair, options: LinkOptions) -> dict[str, Any]:
    """A pair as `tasks.alignment.schema.AlignerRecord` describes it."""
    p, known = pair.probability, pair.posterior
    record = {
        "line": line,
        **word_record(pair.source, pair.target),
        "links": [
            {"source": s, "target": t, "probability": min(1.0, float(p[t, s]))} for s, t in sorted(pair.links)
        ],
        "posteriors": rounded(p),
        "target_null": rounded(known.target_null),
        "source_null": rounded(known.source_null),
        "entropy": row_entropy(known.forward, known.target_null),
        "source_entropy": row_entropy(known.backward.T, known.source_null),
    }
    if options.nbest:
        record["paths"] = {
            name: best_paths(aligner, pair, side, options.nbest)
            for side, name in enumerate(("forward", "backward"))
        }
    if options.phrases:
        found = phrase_pairs(pair.links, p, longest=options.phrases)
        record["phrases"] = [asdict(phrase) for phrase in found]
    return record


def best_paths(aligner: Aligner, pair: AlignedPair, side: int, count: int) -> list[dict[str, Any]]:
    """The most probable paths of one direction: a place or None (NULL) for each word that is generated."""
    if not (pair.source and pair.target):
        return []
    config = aligner.config
    chain, log_f = aligner.chain(config.normalise(pair.source), config.normalise(pair.target), side)
    width = log_f.shape[-1] - 2
    return [
        {"log_prob": score, "path": [None if place > width else place for place in path[:-1]]}
        for path, score in chain.posterior(log_f).best_paths(count)[0]
    ]
