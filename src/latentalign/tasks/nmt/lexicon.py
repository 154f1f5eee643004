"""Lexicons: which target words translate a source word, as a file says; and where the entries occur in a line.

A file has one entry per line: source, tab, target, and optionally a tab and a weight above 0 (1 if it is absent). Both
sides may have several words. Several entries with one source are alternatives.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from latentalign.errors import InputError
from latentalign.links.sets import LinkProbabilities
from latentalign.tasks.nmt.tokenizer import UNK, Tokenizer
from latentalign.tasks.splits import Side
from latentalign.textfiles import read_lines

COLUMNS = "expected source, target and optionally a weight, separated by tabs"
_WEIGHT = re.compile(r"[0-9]+\.?[0-9]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+(?:[eE][-+]?[0-9]+)?")


@dataclass(frozen=True)
class Entry:
    """A translation that is known."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    """Words, as `plain_words` gives them."""
    target_text: str
    """The target as the file has it."""
    weight: float
    line: int
    """Line of the file, from 1."""


@dataclass(frozen=True)
class Occurrence:
    """Words [start, end) of a line that are the source of some entries."""

    start: int
    end: int
    entries: tuple[Entry, ...]


class Lexicon:
    """Entries by their source."""

    def __init__(self, entries: Iterable[Entry], path: Path | str = "the lexicon") -> None:
        self.path = path
        self.by_source: dict[tuple[str, ...], tuple[Entry, ...]] = {}
        for entry in entries:
            self.by_source[entry.source] = (*self.by_source.get(entry.source, ()), entry)
        self.longest = max(map(len, self.by_source), default=0)

    @property
    def entries(self) -> list[Entry]:
        """All entries."""
        return [entry for group in self.by_source.values() for entry in group]

    def find(self, words: Sequence[str]) -> list[Occurrence]:
        """The entries that occur among plain words, from left to right. The longest source wins and uses its words."""
        found, start = [], 0
        while start < len(words):
            for length in range(min(self.longest, len(words) - start), 0, -1):
                entries = self.by_source.get(tuple(words[start : start + length]))
                if entries is not None:
                    found.append(Occurrence(start, start + length, entries))
                    start += length - 1
                    break
            start += 1
        return found

    def match(self, source: Sequence[str], target: Sequence[str]) -> LinkProbabilities:
        """Links between the plain words of a pair that the lexicon knows as translations, with weights."""
        links: dict[tuple[int, int], float] = {}
        for place in self.find(source):
            for entry in place.entries:
                for first in occurrences(entry.target, target):
                    for v in range(place.start, place.end):
                        for w in range(first, first + len(entry.target)):
                            links[v, w] = max(entry.weight, links.get((v, w), 0.0))
        return links

    def require_producible(self, tokenizer: Tokenizer) -> None:
        """Raise if a model with this tokenizer cannot write a target of the lexicon."""
        entries = self.entries
        encoded = tokenizer.encode_target_batch([entry.target_text for entry in entries])
        for entry, target in zip(entries, encoded, strict=True):
            if UNK in target.ids:
                raise InputError(
                    f"{self.path}, line {entry.line}: the model cannot write {entry.target_text!r}: it is not in the "
                    "run's target vocabulary; remove the line, or use a spelling that the training text has"
                )


def read_lexicon(path: Path | str, tokenizer: Tokenizer) -> Lexicon:
    """The lexicon of a file. Words are what the tokenizer calls a word."""
    entries: list[Entry] = []
    known: dict[tuple[tuple[str, ...], tuple[str, ...]], Entry] = {}
    for number, line in enumerate(read_lines(path), start=1):
        entry = _parse(f"{path}, line {number}", line, number, tokenizer=tokenizer)
        earlier = known.setdefault((entry.source, entry.target), entry)
        if earlier.weight != entry.weight:
            raise InputError(
                f"{path}, line {number}: line {earlier.line} has the same entry with the weight {earlier.weight:g}, "
                f"not {entry.weight:g}; keep one of them"
            )
        if earlier is entry:
            entries.append(entry)
    if not entries:
        raise InputError(f"{path}: no entries; {COLUMNS}")
    return Lexicon(entries, path)


def _parse(where: str, line: str, number: int, *, tokenizer: Tokenizer) -> Entry:
    """The entry of a line."""
    columns = line.split("\t")
    if len(columns) not in (2, 3):
        found = "a blank line" if not line.strip() else f"{len(columns)} column{'s'[: len(columns) != 1]}"
        raise InputError(f"{where}: {found}; {COLUMNS}")
    for name, text in zip(("source", "target"), columns, strict=False):
        if not text.strip():
            raise InputError(f"{where}: the {name} is empty; {COLUMNS}")
    weight = _parse_weight(where, columns[2]) if len(columns) == 3 else 1.0
    source, target = (plain_words(tokenizer, text, side) for text, side in _sides(columns))
    return Entry(tuple(source), tuple(target), columns[1].strip(), weight, number)


def _sides(columns: Sequence[str]) -> list[tuple[str, Side]]:
    return [(columns[0], "source"), (columns[1], "target")]


def _parse_weight(where: str, text: str) -> float:
    """A finite number above 0."""
    value = float(text) if _WEIGHT.fullmatch(text.strip()) else math.nan
    if not 0 < value < math.inf:
        raise InputError(
            f"{where}: {text.strip()!r} is no weight; expected a number above 0, such as 1 or 0.5, or no third column"
        )
    return value


def plain_words(tokenizer: Tokenizer, line: str, side: Side) -> list[str]:
    """The words of a line without punctuation at their edges, lowered if the tokenizer lowers text."""
    return [plain(word.text, lowercase=tokenizer.lowercase) for word in tokenizer.find_words(line, side)]


def plain(word: str, *, lowercase: bool) -> str:
    """A word without punctuation at its edges, unless it is nothing else."""
    text = word.lower() if lowercase else word
    start, end = 0, len(text)
    while start < end and is_punctuation(text[start]):
        start += 1
    while end > start and is_punctuation(text[end - 1]):
        end -= 1
    return text[start:end] or text


def is_punctuation(char: str) -> bool:
    """Whether a character is punctuation or a symbol."""
    return unicodedata.category(char)[0] in "PS"


def occurrences(phrase: Sequence[str], words: Sequence[str]) -> list[int]:
    """Where a phrase starts among words."""
    wanted, size = list(phrase), len(phrase)
    starts = (i for i, word in enumerate(words) if word == wanted[0])
    return [i for i in starts if list(words[i : i + size]) == wanted]
