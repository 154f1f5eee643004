"""Word links of given sentence pairs, in one direction or combined from two."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from latentalign.errors import InputError
from latentalign.tasks.nmt.align import USING, align_in_order, alignment_record, encode_pairs
from latentalign.tasks.nmt.links import (
    SYMMETRIZE,
    Links,
    WordAlignment,
    format_pharaoh,
    reverse,
    symmetrize,
)
from latentalign.tasks.nmt.recipe import TrainedTranslator
from latentalign.tasks.nmt.schemes import Word

DEFAULT_METHOD = "grow-diag-final-and"
TextPairs = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class LinkRule:
    """Which links an alignment has: the best of each target word, or all that are probable enough."""

    threshold: float = 0.0
    """Leave out the link of a word whose best probability is lower."""
    at_least: float | None = None
    """Keep every link of at least this probability instead."""

    def choose(self, alignment: WordAlignment) -> Links:
        """The links of a sentence pair."""
        return alignment.best(self.threshold) if self.at_least is None else alignment.at_least(self.at_least)


@dataclass(frozen=True)
class AlignedText:
    """Sentence pairs with their word alignments and the links chosen from them."""

    words: list[tuple[list[Word], list[Word]]]
    alignments: list[WordAlignment]
    links: list[Links]

    def pharaoh(self) -> Iterator[str]:
        """The links of each pair in Pharaoh's format, `i-j`."""
        return (format_pharaoh(links) for links in self.links)

    def records(self) -> Iterator[dict[str, Any]]:
        """The words and links of each pair, as `schema.AlignedPair` describes them."""
        found = zip(self.words, self.alignments, self.links, strict=True)
        for line, (words, alignment, links) in enumerate(found):
            yield alignment_record(line, words, alignment, links)


def align_text(
    trained: TrainedTranslator,
    text: Iterable[tuple[str, str]],
    *,
    using: str = "posterior",
    threshold: float = 0.0,
    at_least: float | None = None,
    reverse: TrainedTranslator | None = None,
    symmetrize: str | None = None,
) -> AlignedText:
    """Align the words of sentence pairs; with a model of the reverse direction, combine both.

    The text is read after the options were checked.
    """
    require_known("--using", using, USING)
    if symmetrize is not None:
        require_known("--symmetrize", symmetrize, tuple(SYMMETRIZE))
        if reverse is None:
            raise InputError(
                "--symmetrize combines two directions; add --reverse with a run of the other one"
            )
    rule, pairs = LinkRule(threshold, at_least), list(text)
    alignments = align_pairs_of_text(trained, pairs, using)
    links = [rule.choose(alignment) for alignment in alignments]
    if reverse is not None:
        backward = align_pairs_of_text(reverse, [(t, s) for s, t in pairs], using)
        method = symmetrize or DEFAULT_METHOD
        links = combine(links, [rule.choose(alignment) for alignment in backward], method)
    words = [trained.vocabulary.find_pair_words(*pair) for pair in pairs]
    return AlignedText(words, alignments, links)


def combine(forward: Sequence[Links], backward: Sequence[Links], method: str) -> list[Links]:
    """The links of both directions, combined pair by pair."""
    return [symmetrize(f, reverse(b), method) for f, b in zip(forward, backward, strict=True)]


def align_pairs_of_text(trained: TrainedTranslator, pairs: TextPairs, using: str) -> list[WordAlignment]:
    """The word alignment of each pair."""
    encoded = encode_pairs(trained, [s for s, _ in pairs], [t for _, t in pairs])
    return align_in_order(trained, encoded, using)


def require_known(option: str, value: str, known: tuple[str, ...]) -> None:
    """Refuse a name that does not exist."""
    if value not in known:
        raise InputError(f"{option} must be one of {', '.join(known)}, got {value!r}")
