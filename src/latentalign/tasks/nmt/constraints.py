"""A lexicon in decoding: which source words of a line it knows, and whether an output translates them as it says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentalign.links.words import WordAlignment
from latentalign.tasks.nmt.lexicon import Entry, Lexicon, occurrences, plain, plain_words, read_lexicon
from latentalign.tasks.nmt.tokenizer import Encoded, Tokenizer

SHOWN = 5
"""Unsatisfied constraints that a summary lists."""


@dataclass(frozen=True)
class Constraint:
    """Source words [start, end) of a line whose translation is known, and the alternatives."""

    start: int
    end: int
    pieces: tuple[int, ...]
    """Positions of the pieces of the words."""
    entries: tuple[Entry, ...]
    targets: tuple[tuple[int, ...], ...]
    """The target of each entry as ids."""


def find_constraints(
    lexicon: Lexicon, tokenizer: Tokenizer, lines: Sequence[str], encoded: Sequence[Encoded]
) -> list[list[Constraint]]:
    """The constraints of each source line, which may have been cut to fewer pieces."""
    entries = lexicon.entries
    ids = tokenizer.encode_target_batch([entry.target_text for entry in entries])
    known = {entry: tuple(target.ids) for entry, target in zip(entries, ids, strict=True)}
    found = []
    for line, source in zip(lines, encoded, strict=True):
        here = []
        for place in lexicon.find(plain_words(tokenizer, line, "source")):
            pieces = tuple(t for t, word in enumerate(source.words) if place.start <= word < place.end)
            if pieces:
                targets = tuple(known[entry] for entry in place.entries)
                here.append(Constraint(place.start, place.end, pieces, place.entries, targets))
        found.append(here)
    return found


def satisfied_by(constraints: Sequence[Constraint], words: Sequence[str]) -> list[tuple[int, int] | None]:
    """For each constraint, the plain output words [start, end) that satisfy it; None if no word does.

    Words that start at one position satisfy one constraint; as many constraints as possible are satisfied.
    """
    options = [
        [
            (start, start + len(entry.target))
            for entry in c.entries
            for start in occurrences(entry.target, words)
        ]
        for c in constraints
    ]
    taken: dict[int, int] = {}  # start of the words -> constraint
    chosen: dict[int, tuple[int, int]] = {}

    def assign(constraint: int, seen: set[int]) -> bool:
        """Find words for a constraint; others may move to other words (augmenting paths)."""
        for span in sorted(options[constraint], key=lambda span: span[0] in taken):  # free words first
            if span[0] in seen:
                continue
            seen.add(span[0])
            if span[0] not in taken or assign(taken[span[0]], seen):
                taken[span[0]], chosen[constraint] = constraint, span
                return True
        return False

    for number in range(len(constraints)):
        assign(number, set())
    return [chosen.get(number) for number in range(len(constraints))]


@dataclass(frozen=True)
class LexiconUse:
    """The constraints of some lines, and what became of them."""

    tokenizer: Tokenizer
    lines: Sequence[str]
    constraints: list[list[Constraint]]

    @classmethod
    def read(
        cls, path: Path, tokenizer: Tokenizer, lines: Sequence[str], encoded: Sequence[Encoded]
    ) -> LexiconUse:
        """The use of a lexicon for lines that were encoded, and perhaps cut."""
        lexicon = read_lexicon(path, tokenizer)
        lexicon.require_producible(tokenizer)
        return cls(tokenizer, lines, find_constraints(lexicon, tokenizer, lines, encoded))

    def satisfied(self, number: int, target: Sequence[str]) -> list[tuple[int, int] | None]:
        """The words of an output of a line that satisfy each of its constraints."""
        words = [plain(word, lowercase=self.tokenizer.lowercase) for word in target]
        return satisfied_by(self.constraints[number], words)

    def records(self, number: int, target: Sequence[str], alignment: WordAlignment) -> list[dict[str, Any]]:
        """The outcome of each constraint of a line, as `schema.ConstraintOutcome` describes it."""
        found = []
        for c, span in zip(self.constraints[number], self.satisfied(number, target), strict=True):
            probability = None
            if span is not None:
                probability = float(alignment.probability[slice(*span), c.start : c.end].sum(1).mean())
            found.append(
                {
                    "source": [c.start, c.end],
                    "alternatives": [entry.target_text for entry in c.entries],
                    "satisfied": span is not None,
                    "target": None if span is None else list(span),
                    "probability": probability,
                }
            )
        return found

    def summary(self, outputs: Iterable[Sequence[str]]) -> list[str]:
        """The number of satisfied constraints and some of the others, from the words of each output, as lines."""
        missing = []
        for number, target in enumerate(outputs):
            outcome = zip(self.constraints[number], self.satisfied(number, target), strict=True)
            missing += [(number, c) for c, span in outcome if span is None]
        total = sum(map(len, self.constraints))
        lines = [f"lexicon: {total - len(missing)} of {total} source words and phrases translated as it says"]
        for number, c in missing[:SHOWN]:
            words = self.tokenizer.find_words(self.lines[number], "source")[c.start : c.end]
            wanted = " or ".join(repr(entry.target_text) for entry in c.entries)
            lines.append(f"  line {number + 1}: no {wanted} for {' '.join(w.text for w in words)!r}")
        return lines + ([f"  and {len(missing) - SHOWN} more"] if len(missing) > SHOWN else [])
