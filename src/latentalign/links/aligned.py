"""Sentence pairs with their word alignments: which links are chosen, and the records of `align`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latentalign.links.expected import best_threshold
from latentalign.links.sets import Links, format_pharaoh, reverse, symmetrize
from latentalign.links.words import Word, WordAlignment


@dataclass(frozen=True)
class LinkRule:
    """Which links an alignment has: the best of each target word, or all that are probable enough."""

    threshold: float | None = 0.0
    """Leave out the link of a word whose best probability is lower. None: the one with the best expected F1."""
    at_least: float | None = None
    """Keep every link of at least this probability instead."""

    def fit(self, alignments: Sequence[WordAlignment]) -> LinkRule:
        """The same rule with a threshold; if it has none, the one whose links have the largest expected F1."""
        if self.threshold is not None:
            return self
        best = [a.probability.max(axis=1)[a.linked] for a in alignments if a.probability.size]
        total = sum(float(a.probability.sum()) for a in alignments)
        threshold, _ = best_threshold(np.concatenate(best) if best else np.zeros(0), total)
        return replace(self, threshold=threshold)

    def choose(self, alignment: WordAlignment) -> Links:
        """The links of a sentence pair."""
        if self.at_least is not None:
            return alignment.at_least(self.at_least)
        assert self.threshold is not None, "fit the rule first"
        return alignment.best(self.threshold)


@dataclass(frozen=True, eq=False)
class LinkedWords:
    """A sentence pair with its links and the probability of every link, a row for each target word."""

    words: tuple[list[Word], list[Word]]
    probability: np.ndarray
    links: Links


@dataclass(frozen=True)
class AlignedText:
    """Sentence pairs with their word alignments and the links chosen from them."""

    words: list[tuple[list[Word], list[Word]]]
    alignments: list[WordAlignment]
    links: list[Links]

    def linked_pairs(self) -> Iterator[LinkedWords]:
        """The words and links of each pair."""
        rows = zip(self.words, self.alignments, self.links, strict=True)
        return (LinkedWords(words, alignment.probability, links) for words, alignment, links in rows)

    def pharaoh(self) -> Iterator[str]:
        """The links of each pair in Pharaoh's format, `i-j`."""
        return (format_pharaoh(links) for links in self.links)

    def records(self) -> Iterator[dict[str, Any]]:
        """The words and links of each pair, as `schema.AlignedPair` describes them."""
        found = zip(self.words, self.alignments, self.links, strict=True)
        for line, (words, alignment, links) in enumerate(found):
            yield alignment_record(line, words, alignment, links)


def combine(forward: Sequence[Links], backward: Sequence[Links], method: str) -> list[Links]:
    """The links of both directions, combined pair by pair."""
    return [symmetrize(f, reverse(b), method) for f, b in zip(forward, backward, strict=True)]


def word_record(source: Sequence[Word], target: Sequence[Word]) -> dict[str, Any]:
    """The words of a sentence pair and where they stand, as `tasks.nmt.schema.WordPair` describes them."""
    return {
        "source": [word.text for word in source],
        "target": [word.text for word in target],
        "source_spans": [[word.start, word.end] for word in source],
        "target_spans": [[word.start, word.end] for word in target],
    }


def alignment_record(
    line: int, words: tuple[Sequence[Word], Sequence[Word]], alignment: WordAlignment, links: Links
) -> dict[str, Any]:
    """Words and links of a sentence pair, as `tasks.nmt.schema.AlignedPair` describes them."""
    entropy = [round(float(e), 6) for e in alignment.entropy]
    return {"line": line, **word_record(*words), "links": alignment.to_json(links), "entropy": entropy}
