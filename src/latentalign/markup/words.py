"""Words of both texts and the links between them, as the projection needs them."""

from __future__ import annotations

import math
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from latentalign.errors import InputError
from latentalign.links.words import Word

MARKS = frozenset(".,;:!?…\"'¿¡、。，；：！？")


def is_mark(character: str) -> bool:
    """Whether a character is punctuation that may touch a word without belonging to it: stops, quotes, brackets."""
    return character in MARKS or unicodedata.category(character) in ("Ps", "Pe", "Pi", "Pf")


class TextWords:
    """The words of a text, each with its core: what remains without punctuation at its ends."""

    def __init__(self, text: str, words: Sequence[Word]) -> None:
        self.text, self.words = text, words
        self.starts = [word.start for word in words]
        self.cores = [find_core(text, word) for word in words]
        self.core_starts = [start for start, _ in self.cores]
        self.core_ends = [end for _, end in self.cores]

    def __len__(self) -> int:
        return len(self.words)

    def covered(self, start: int, end: int) -> range:
        """The words whose core a range of characters touches."""
        if start >= end:
            return range(0)
        return range(bisect_right(self.core_ends, start), bisect_left(self.core_starts, end))

    def around(self, position: int) -> int | None:
        """The word that a position is strictly inside."""
        i = bisect_left(self.starts, position) - 1
        return i if i >= 0 and position < self.words[i].end else None

    def string(self, i: int) -> str:
        """A word as it stands in the text."""
        return self.text[self.words[i].start : self.words[i].end]

    def is_punctuation(self, i: int) -> bool:
        """Whether a word has no letter or digit, but only punctuation."""
        return all(unicodedata.category(c).startswith("P") for c in self.string(i))

    def round_up(self, position: int) -> int:
        """The position, or the end of the word that it is inside."""
        i = self.around(position)
        return position if i is None else self.words[i].end

    def round_down(self, position: int) -> int:
        """The position, or the start of the word that it is inside."""
        i = self.around(position)
        return position if i is None else self.words[i].start


def find_core(text: str, word: Word) -> tuple[int, int]:
    """A word without punctuation at its ends; all of it if there is nothing else."""
    start, end = word.start, word.end
    while start < end and is_mark(text[start]):
        start += 1
    while end > start and is_mark(text[end - 1]):
        end -= 1
    return (start, end) if start < end else (word.start, word.end)


class LinkTable:
    """Links with probabilities, by source word and by target word."""

    def __init__(self, links: Iterable[Sequence[float]], sources: int, targets: int) -> None:
        self.of_source: dict[int, dict[int, float]] = {}
        self.of_target: dict[int, dict[int, float]] = {}
        for link in links:
            i, j, p = parse_link(link, sources, targets)
            if p > 0:
                self.of_source.setdefault(i, {})[j] = p
                self.of_target.setdefault(j, {})[i] = p
        self.total = {j: sum(found.values()) for j, found in self.of_target.items()}

    def mass(self, sources: range) -> dict[int, float]:
        """For each target word that is linked to some source words, the sum of these probabilities."""
        found: dict[int, float] = {}
        for i in sources:
            for j, p in self.of_source.get(i, {}).items():
                found[j] = found.get(j, 0.0) + p
        return found

    def partner(self, i: int, *, last: bool) -> tuple[int, float] | None:
        """The most probable target word of a source word; of equals, the first or the last."""
        if i not in self.of_source:
            return None
        j, p = max(self.of_source[i].items(), key=lambda item: (item[1], item[0] if last else -item[0]))
        return j, p


def parse_link(link: Sequence[float], sources: int, targets: int) -> tuple[int, int, float]:
    """Source word, target word and probability of a link, which is 1 unless it is given."""
    shown = repr(tuple(link))
    if len(link) not in (2, 3):
        raise InputError(f"link {shown}: expected (source, target) or (source, target, probability)")
    i, j, p = int(link[0]), int(link[1]), float(link[2]) if len(link) == 3 else 1.0
    if (i, j) != (link[0], link[1]) or not (0 <= i < sources and 0 <= j < targets):
        raise InputError(
            f"link {shown}: the source has {sources} words and the target {targets}; count them from 0, "
            "in the text without markup"
        )
    if math.isnan(p) or not 0 <= p <= 1 + 1e-6:
        raise InputError(f"link {shown}: the probability must be between 0 and 1")
    return i, j, p
