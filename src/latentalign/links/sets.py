"""Word-alignment links, gold links, and how the links of two directions are merged.

A link is (source word, target word), both counted from 0. Files are read by `formats`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from latentalign.errors import InputError

Links = frozenset[tuple[int, int]]
LinkProbabilities = Mapping[tuple[int, int], float]
"""The links of a sentence pair, each with its probability."""


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


def format_probabilities(links: LinkProbabilities) -> str:
    """One line of `i-j:probability`, sorted by source and target."""
    return " ".join(f"{source}-{target}:{p:.4g}" for (source, target), p in sorted(links.items()))


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
