"""Problems of parallel text, reported before a model is trained on it: counts for each split, and shifted lines.

Text is read one pair at a time. Only lengths and hashes of a pair are kept, and counts of words.
"""

import math
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from latentalign.links.formats import read_gold
from latentalign.links.sets import lacks_zero, stray_links
from latentalign.tasks.splits import TextSplit
from latentalign.tasks.text_checks.shifts import Array, Shift, find_shifts
from latentalign.tasks.text_checks.swapped import find_swapped, weigh_words

_TAIL = "\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"  # bytes 80-bf, decoded as Latin-1 and as Windows-1252
BROKEN = {
    "control": re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]"),
    "replacement": re.compile("\ufffd"),
    "mojibake": re.compile(f"[ÂÃ][{_TAIL}]|â[€‚„][{_TAIL}]|(?:[ÄÅÐÑ][{_TAIL}]){{2}}"),
}
"""Characters that no text should contain. Mojibake is UTF-8 that was read as Latin-1."""

RATIO, RATIO_LENGTH = 3.0, 30
"""A pair is uneven if the ratio of its lengths differs from the usual one by more than this factor.

The longer side must have at least RATIO_LENGTH characters."""

STRAY = 0.01
"""If more than this share of the gold links point outside their sentences, they are not just slips."""


@dataclass(frozen=True)
class Limits:
    """What a task does about some pairs."""

    max_length: int
    """Words from which on a pair is not learned from."""
    length_key: str
    """The key of the recipe with that number."""
    max_dropped: float
    """Share of training pairs that may be blank or too long."""
    refuses_blanks: bool = True
    """Whether evaluation refuses a blank line."""
    may_know_test: bool = False
    """Whether the test text may be learned from, because what is tested is not in it."""


@dataclass(frozen=True)
class Fault:
    """One kind of problem: how many pairs have it, the lines of the first ones, and whether it is serious."""

    kind: str
    count: int
    lines: tuple[int, ...]
    serious: bool
    text: str


@dataclass(frozen=True, eq=False)
class SplitReport:
    """The problems of a split."""

    counts: dict[str, int]
    faults: tuple[Fault, ...]
    shifts: tuple[Shift, ...]


@dataclass(frozen=True, eq=False)
class _Scan:
    """What is kept of a split: lengths in characters and hashes of each pair."""

    source: Array
    target: Array
    pairs: Array
    """Hashes of whole pairs."""
    sources: Array
    """Hashes of the source sides."""
    counts: Counter[str]
    first: dict[str, list[int]]


def check(splits: Mapping[str, TextSplit], limits: Limits) -> dict[str, SplitReport]:
    """All problems in the splits of a recipe; an InputError if they cannot be read."""
    scans = {name: _scan(split, limits.max_length) for name, split in splits.items()}
    weights = weigh_words(splits["train"], len(scans["train"].source))
    reports = {}
    for name, scan in scans.items():
        _note(scan, "swapped", find_swapped(splits[name], weights))
        if name != "train":
            leaked = np.isin(scan.pairs, scans["train"].pairs)
            known = np.isin(scan.sources, scans["train"].sources)
            _note(scan, "leaked", np.flatnonzero(leaked))
            _note(scan, "leaked_source", np.flatnonzero(known & ~leaked))
        found = find_shifts(scan.source, scan.target)
        shifts = tuple(_confirm_shifts(splits[name], found or []))
        faults = [
            *_shift_faults(splits[name], shifts),
            *_pair_faults(name, splits[name], scan, limits=limits),
        ]
        faults += _gold_faults(name, splits[name])
        if found is None:
            text = "the lengths of the lines are not informative enough to detect shifted lines"
            faults.append(Fault("unclear", 0, (), False, text))
        reports[name] = SplitReport({"pairs": len(scan.source), **scan.counts}, tuple(faults), shifts)
    return reports


def as_json(reports: dict[str, SplitReport]) -> dict[str, Any]:
    """Reports as values that JSON can represent."""
    faults = [(name, fault) for name, report in reports.items() for fault in report.faults]
    return {
        "splits": {
            name: {**report.counts, "shifts": [asdict(shift) for shift in report.shifts]}
            for name, report in reports.items()
        },
        "warnings": [f"{name}: {fault.text}" for name, fault in faults if fault.serious],
        "notes": [f"{name}: {fault.text}" for name, fault in faults if not fault.serious],
    }


# Counting

KINDS = (
    *("blank_source", "blank_target", "overlong", "blank_or_overlong", "duplicate", "identical", "uneven"),
    "swapped",
    *(*BROKEN, "leaked", "leaked_source"),
)


def _scan(split: TextSplit, max_length: int) -> _Scan:
    """Read a split once and count its problems."""
    lengths = array("i"), array("i")
    hashes = array("q"), array("q")
    scan = _Scan(*(np.zeros(0, np.int64),) * 4, Counter(dict.fromkeys(KINDS, 0)), {})
    for place, (source, target) in enumerate(split.read()):
        words = source.split(), target.split()
        # Joined words instead of lines, so that spaces make no difference.
        plain = " ".join(words[0]), " ".join(words[1])
        for side in (0, 1):
            lengths[side].append(len(plain[side]))
        hashes[0].append(hash(plain))
        hashes[1].append(hash(plain[0]))
        for kind in _pair_flaws(source, target, words, max_length=max_length):
            _note(scan, kind, [place])
    lines = [np.array(kept, np.int64) for kept in (*lengths, *hashes)]
    scan = replace(scan, source=lines[0], target=lines[1], pairs=lines[2], sources=lines[3])
    _note(scan, "duplicate", _repeated(scan.pairs))
    _note(scan, "uneven", _uneven(scan.source, scan.target))
    return scan


def _pair_flaws(
    source: str, target: str, words: tuple[list[str], list[str]], *, max_length: int
) -> Iterator[str]:
    """Problems of a pair that can be seen without looking at other pairs."""
    overlong = max(map(len, words)) > max_length
    if not words[0]:
        yield "blank_source"
    if not words[1]:
        yield "blank_target"
    if overlong:
        yield "overlong"
    if overlong or not all(words):
        yield "blank_or_overlong"
    if words[0] and words[0] == words[1]:
        yield "identical"
    for kind, pattern in BROKEN.items():
        if pattern.search(source) or pattern.search(target):
            yield kind


def _note(scan: _Scan, kind: str, places: Sequence[int] | Array) -> None:
    """Count pairs, which are given by their positions from 0, and remember the lines of the first three."""
    scan.counts[kind] += len(places)
    lines = scan.first.setdefault(kind, [])
    lines.extend(int(place) + 1 for place in places[: 3 - len(lines)])


def _repeated(hashes: Array) -> Array:
    """Positions of values that occurred before."""
    again = np.ones(len(hashes), bool)
    again[np.unique(hashes, return_index=True)[1]] = False
    return np.flatnonzero(again)


def _uneven(source: Array, target: Array) -> Array:
    """Positions of pairs whose lengths differ far more than usual."""
    full = (source > 0) & (target > 0)
    if not full.any():
        return np.zeros(0, np.int64)
    ratio = np.log(np.maximum(target, 1) / np.maximum(source, 1))
    far = np.abs(ratio - np.median(ratio[full])) > math.log(RATIO)
    return np.flatnonzero(full & far & (np.maximum(source, target) >= RATIO_LENGTH))


_TEXTS = {
    "duplicate": (0.1, "pairs occur more than once"),
    "identical": (0.05, "pairs have the same text on both sides; are they untranslated?"),
    "uneven": (
        0.02,
        f"pairs have a ratio of lengths that differs from the usual one by a factor over {RATIO:g}",
    ),
    "swapped": (
        0.001,
        "pairs seem to have their sides swapped: the source is in the language of the target; exchange or remove them",
    ),
    "control": (0.001, "pairs contain control characters or Unicode line separators"),
    "replacement": (0.001, "pairs contain U+FFFD, which replaces characters that were lost in a conversion"),
    "mojibake": (0.001, "pairs look like UTF-8 read as Latin-1 (such as Ã¤ for ä); convert the file again"),
    "leaked": (0.01, "pairs are also in the training text; scores on them are not meaningful"),
    "leaked_source": (0.1, "pairs have a source that is in the training text with another target"),
}
"""For each kind of problem: the share of pairs above which it is serious, and its description."""


def _pair_faults(name: str, split: TextSplit, scan: _Scan, *, limits: Limits) -> Iterator[Fault]:
    """The problems that the counts of a split show."""
    total, counts = len(scan.source), scan.counts
    source, target = split.text("source"), split.text("target")

    def fault(kind: str, text: str, *, serious: bool) -> Fault:
        lines = tuple(scan.first[kind])
        more = ", ..." if counts[kind] > len(lines) else ""
        places = f"line{'s' * (len(lines) > 1)} {', '.join(map(str, lines))}{more}"
        text = f"{counts[kind]} {text} ({places})"
        return Fault(kind, counts[kind], lines, serious, text)

    if total == 0:
        yield Fault("empty", 0, (), True, f"there is no text in {split}")
    training = name == "train"
    refused = training and counts["blank_or_overlong"] > limits.max_dropped * total
    for kind, path in (("blank_source", source), ("blank_target", target)):
        if counts[kind]:
            bad = limits.refuses_blanks and not training
            effect = "evaluation refuses them" if bad else "dropped in training" if training else "no links"
            yield fault(kind, f"lines of {path} are blank: {effect}", serious=refused or bad)
    if counts["overlong"] and training:
        text = f"pairs have more words than {limits.length_key} = {limits.max_length}: dropped in training"
        yield fault("overlong", text, serious=refused)
    for kind, (share, text) in _TEXTS.items():
        if counts[kind] and not (limits.may_know_test and kind.startswith("leaked")):
            yield fault(kind, text, serious=counts[kind] > share * total)


def _gold_faults(name: str, split: TextSplit) -> Iterator[Fault]:
    """Gold links that are probably wrong: outside their sentences, or counted from 1 instead of 0."""
    if split.gold is None:
        return
    pairs = [(len(s.split()), len(t.split())) for s, t in split.read()]
    gold = read_gold(split.gold, one_based=split.gold_one_based, sentences=len(pairs))
    stray = stray_links(gold, [s for s, _ in pairs], [t for _, t in pairs])
    links = sum(len(sentence.possible) for sentence in gold)
    if stray:
        lines = tuple(dict.fromkeys(number for number, _, _ in stray))[:3]
        number, source, target = stray[0]
        text = (
            f"{len(stray)} links of {split.gold} point outside their sentences, for example {source}-{target} "
            f"(counted from 0) in sentence {number}; are the sides swapped, or do the links count from 1 "
            f"(data.{name}.gold_one_based)?"
        )
        yield Fault("stray_links", len(stray), lines, len(stray) > STRAY * links, text)
    if lacks_zero(gold):
        remedy = f"if the links count from 1, set data.{name}.gold_one_based"
        text = f"no link of {split.gold} touches a first word; {remedy}"
        yield Fault("no_first_word", 0, (), True, text)


# Shifts

_ANCHOR = re.compile(r"\d+|[^\W\d_]{4,}")


def _confirm_shifts(split: TextSplit, shifts: Sequence[Shift]) -> Iterator[Shift]:
    """Shifts with their shared words, except those whose unmoved lines share enough words."""
    for shift in shifts:
        unmoved, moved = shared = _count_shared(split, shift)
        if unmoved - moved <= 3 * math.sqrt(unmoved + moved):
            yield replace(shift, shared=shared)


def _count_shared(split: TextSplit, shift: Shift) -> tuple[int, int]:
    """How many of up to 500 pairs share a number or a longer word: without moving, and moved by the lag."""
    lag = shift.lag or 1
    start, stop = shift.place - 1, min(shift.last, shift.place + 499)
    sources: dict[int, set[str]] = {}
    targets: dict[int, set[str]] = {}
    for place, (source, target) in enumerate(split.read()):
        if place >= max(stop, stop + lag):
            break
        if start <= place < stop:
            sources[place] = set(_ANCHOR.findall(source))
        if start <= place < stop or start <= place - lag < stop:
            targets[place] = set(_ANCHOR.findall(target))
    both = [place for place in sources if place + lag in targets]
    unmoved = sum(bool(sources[place] & targets[place]) for place in both)
    return unmoved, sum(bool(sources[place] & targets[place + lag]) for place in both)


def _shift_faults(split: TextSplit, shifts: Sequence[Shift]) -> Iterator[Fault]:
    """A message for each shift: where to look, and what to look for."""
    source, target = split.text("source"), split.text("target")
    for shift in shifts:
        where = f"lines {shift.first}-{shift.last} of {split}"
        seen = (
            f"the correlation of lengths in lines {shift.first}-{shift.window_end} is "
            f"{shift.correlation:.2f}, usual is {shift.usual:.2f}"
        )
        if any(shift.shared):
            unmoved, moved = shift.shared
            seen += f"; {unmoved} pairs share a number or word, {moved} after moving one side"
        text = f"{where} do not translate each other ({seen}); compare them"
        if shift.lag:
            lines = "a line is" if abs(shift.lag) == 1 else f"{abs(shift.lag)} lines are"
            few, many = (source, target) if shift.lag > 0 else (target, source)
            text = (
                f"{where} are shifted: from about line {shift.place} on, line n of the source fits line "
                f"n{shift.lag:+d} of the target ({seen}); check whether {lines} missing in {few} or "
                f"superfluous in {many}"
            )
        yield Fault("shift", shift.last - shift.first + 1, (shift.place,), True, text)
