"""What is wrong with parallel text, before a model is trained on it: counts for each split, and shifted lines.

Text is read once, a pair at a time; of a pair only its lengths and hashes are kept. Where one side lost or
gained a line, all later pairs are wrong although each file looks right. Lengths show it: those of
translations go together, those of other sentences do not.
"""

import math
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from latentalign.tasks.nmt.data import DataConfig, SplitConfig
from latentalign.tasks.nmt.link_formats import read_gold
from latentalign.tasks.nmt.links import lacks_zero, stray_links
from latentalign.textfiles import read_parallel

_TAIL = "\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"  # bytes 80-bf as Latin-1 and as Windows-1252 show them
BROKEN = {
    "control": re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]"),
    "replacement": re.compile("\ufffd"),
    "mojibake": re.compile(f"[ÂÃ][{_TAIL}]|â[€‚„][{_TAIL}]|(?:[ÄÅÐÑ][{_TAIL}]){{2}}"),
}
"""Characters that no text should hold; the last are UTF-8 read as if it were Latin-1."""

RATIO, RATIO_LENGTH = 3.0, 30
"""A pair is uneven when the ratio of its lengths is this many times off the usual, the longer of so many characters."""

WINDOWS = (50, 100, 200, 400, 800)
SHORTEST = 30
"""Lines that a window needs at least."""
SAMPLE = 40
"""Windows from which the usual correlation is learnt."""
NEAR, FAR = 100, 20_000
"""How many lines away the translation of a window is looked for, first and then."""
CLEAR = 4.0
"""Standard errors by which a correlation must stand out."""
LOST, FITS = 0.4, 0.75
"""Shares of the usual correlation (in Fisher's z) below which lines do not belong together, above which they do."""
NEIGHBOURS = 0.6
"""Correlation of the lengths of consecutive lines beyond which a shift does not show."""
STRAY = 0.01
"""Share of human links beyond their sentences above which they are more than slips."""
SHOWN = 20
"""Shifts of a split at most: who has so many need not know of more."""


@dataclass(frozen=True)
class Shift:
    """Source lines `first` to `last` that do not fit the target lines of the same numbers."""

    first: int
    """Where the first suspicious window begins, from 1; `window_end` is its last line."""
    window_end: int
    last: int
    place: int
    """The estimated line at which the fault begins."""
    lag: int | None
    """Source line n fits target line n + lag; None where no place fits."""
    correlation: float
    """Of the lengths in the first window, as the lines stand."""
    usual: float
    """Of the lengths in a window like this, going by the rest of the text."""
    shared: tuple[int, int] = (0, 0)
    """Pairs with a number or a word in common, as they stand and moved by the lag (by one line without a lag)."""


@dataclass(frozen=True)
class Fault:
    """One kind of flaw of a split: how many pairs have it, the first of them, and whether it matters."""

    kind: str
    count: int
    lines: tuple[int, ...]
    serious: bool
    text: str


@dataclass(frozen=True, eq=False)
class SplitReport:
    """What was found in a split."""

    counts: dict[str, int]
    faults: tuple[Fault, ...]
    shifts: tuple[Shift, ...]


@dataclass(frozen=True, eq=False)
class _Scan:
    """What is kept of a split: a number or two per pair."""

    source: np.ndarray
    target: np.ndarray
    pairs: np.ndarray
    """Hashes of whole pairs."""
    sources: np.ndarray
    counts: Counter[str]
    first: dict[str, list[int]]


def check(data: DataConfig) -> dict[str, SplitReport]:
    """Everything that looks wrong in the splits of a recipe; an InputError where they cannot be read."""
    splits = {name: split for name in ("train", "valid", "test") if (split := getattr(data, name))}
    scans = {name: _scan(split, data.max_length) for name, split in splits.items()}
    reports = {}
    for name, scan in scans.items():
        if name != "train":
            leaked = np.isin(scan.pairs, scans["train"].pairs)
            known = np.isin(scan.sources, scans["train"].sources)
            _note(scan, "leaked", np.flatnonzero(leaked))
            _note(scan, "leaked_source", np.flatnonzero(known & ~leaked))
        found = find_shifts(scan.source, scan.target)
        shifts = tuple(_confirmed(splits[name], found or []))
        faults = [*_misfits(splits[name], shifts), *_faults(name, splits[name], scan, data=data)]
        faults += _gold_faults(name, splits[name])
        if found is None:
            faults.append(Fault("unclear", 0, (), False, "lengths tell too little to see shifted lines"))
        reports[name] = SplitReport({"pairs": len(scan.source), **scan.counts}, tuple(faults), shifts)
    return reports


def as_json(reports: dict[str, SplitReport]) -> dict[str, Any]:
    """Reports as plain values."""
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
    *(*BROKEN, "leaked", "leaked_source"),
)


def _scan(split: SplitConfig, max_length: int) -> _Scan:
    """One pass over a split."""
    lengths = array("i"), array("i")
    hashes = array("q"), array("q")
    scan = _Scan(*(np.zeros(0, np.int64),) * 4, Counter(dict.fromkeys(KINDS, 0)), {})
    for place, (source, target) in enumerate(read_parallel(split.source, split.target)):
        words = source.split(), target.split()
        # Not the lines themselves, so that spaces make no difference.
        plain = " ".join(words[0]), " ".join(words[1])
        for side in (0, 1):
            lengths[side].append(len(plain[side]))
        hashes[0].append(hash(plain))
        hashes[1].append(hash(plain[0]))
        for kind in _flaws(source, target, words, max_length=max_length):
            _note(scan, kind, [place])
    lines = [np.array(kept, np.int64) for kept in (*lengths, *hashes)]
    scan = replace(scan, source=lines[0], target=lines[1], pairs=lines[2], sources=lines[3])
    _note(scan, "duplicate", _repeated(scan.pairs))
    _note(scan, "uneven", _uneven(scan.source, scan.target))
    return scan


def _flaws(source: str, target: str, words: tuple[list[str], list[str]], *, max_length: int) -> Iterator[str]:
    """The flaws of a pair that show without looking at any other."""
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


def _note(scan: _Scan, kind: str, places: Sequence[int] | np.ndarray) -> None:
    """Count pairs, given by their places from 0, and remember the lines of the first three."""
    scan.counts[kind] += len(places)
    lines = scan.first.setdefault(kind, [])
    lines.extend(int(place) + 1 for place in places[: 3 - len(lines)])


def _repeated(hashes: np.ndarray) -> np.ndarray:
    """Places of all that came before."""
    again = np.ones(len(hashes), bool)
    again[np.unique(hashes, return_index=True)[1]] = False
    return np.flatnonzero(again)


def _uneven(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Places of pairs whose sides differ in length far more than usual."""
    full = (source > 0) & (target > 0)
    if not full.any():
        return np.zeros(0, np.int64)
    ratio = np.log(np.maximum(target, 1) / np.maximum(source, 1))
    far = np.abs(ratio - np.median(ratio[full])) > math.log(RATIO)
    return np.flatnonzero(full & far & (np.maximum(source, target) >= RATIO_LENGTH))


_TEXTS = {
    "duplicate": (0.1, "pairs stand there more than once"),
    "identical": (0.05, "pairs have the same text on both sides; left untranslated?"),
    "uneven": (0.02, f"pairs have lengths whose ratio is over {RATIO:g} times off the usual"),
    "control": (0.001, "pairs hold control characters or Unicode line separators"),
    "replacement": (0.001, "pairs hold U+FFFD, which stands for characters lost in a conversion"),
    "mojibake": (0.001, "pairs look like UTF-8 read as Latin-1 (such as Ã¤ for ä); convert the file again"),
    "leaked": (0.01, "pairs are also in the training text; scores on them say little"),
    "leaked_source": (0.1, "pairs have a source that the training text holds with another target"),
}
"""For each kind of flaw the share of pairs above which it is serious, and what it is."""


def _faults(name: str, split: SplitConfig, scan: _Scan, *, data: DataConfig) -> Iterator[Fault]:
    """The flaws of a split that its counts show."""
    total, counts = len(scan.source), scan.counts

    def fault(kind: str, text: str, *, serious: bool) -> Fault:
        lines = tuple(scan.first[kind])
        more = ", ..." if counts[kind] > len(lines) else ""
        text = f"{counts[kind]} {text} (line {', '.join(map(str, lines))}{more})"
        return Fault(kind, counts[kind], lines, serious, text)

    if total == 0:
        yield Fault("empty", 0, (), True, f"{split.source} and {split.target} are empty")
    training = name == "train"
    refused = training and counts["blank_or_overlong"] > data.max_dropped * total
    for kind, path in (("blank_source", split.source), ("blank_target", split.target)):
        if counts[kind]:
            effect = "dropped in training" if training else "evaluation refuses them"
            yield fault(kind, f"lines of {path} are blank: {effect}", serious=refused or not training)
    if counts["overlong"] and training:
        text = f"pairs have more words than data.max_length = {data.max_length}: dropped in training"
        yield fault("overlong", text, serious=refused)
    for kind, (share, text) in _TEXTS.items():
        if counts[kind]:
            yield fault(kind, text, serious=counts[kind] > share * total)


def _gold_faults(name: str, split: SplitConfig) -> Iterator[Fault]:
    """Human links that cannot be meant so: beyond their sentences, or counted from another number."""
    if split.gold is None:
        return
    pairs = [(len(s.split()), len(t.split())) for s, t in read_parallel(split.source, split.target)]
    gold = read_gold(split.gold, one_based=split.gold_one_based, sentences=len(pairs))
    stray = stray_links(gold, [s for s, _ in pairs], [t for _, t in pairs])
    links = sum(len(sentence.possible) for sentence in gold)
    if stray:
        lines = tuple(dict.fromkeys(number for number, _, _ in stray))[:3]
        number, source, target = stray[0]
        text = (
            f"{len(stray)} links of {split.gold} point beyond their sentences: {source}-{target}, counted from 0, "
            f"of sentence {number}; are the sides swapped, or do they count from 1 (data.{name}.gold_one_based)?"
        )
        yield Fault("stray_links", len(stray), lines, len(stray) > STRAY * links, text)
    if lacks_zero(gold):
        text = f"no link of {split.gold} touches a first word: if it counts from 1, set data.{name}.gold_one_based"
        yield Fault("no_first_word", 0, (), True, text)


# Shifts


def find_shifts(source: np.ndarray, target: np.ndarray) -> list[Shift] | None:
    """Stretches in which the lengths of the two sides do not go together, and by how much they are shifted.

    In each window the correlation of log-lengths is compared, as Fisher's z, with what is usual for lengths
    that vary as much as in this window: where all sentences are about as long nothing is claimed. What is
    usual comes from some windows where they fit best, so that it is known even if all lines are shifted.
    None where that cannot work: few lines, lengths that are unrelated or all alike, or lines sorted by length.
    """
    if len(source) < SHORTEST:
        return None
    x, y = _scaled(source), _scaled(target)
    if max(map(_likeness_of_neighbours, (x, y))) > NEIGHBOURS:
        return None
    windows = _windows(x, y)
    if windows is None:
        return None
    shifts = (_shift(x, y, windows, first, last) for first, last in _stretches(windows))
    return list(islice((shift for shift in shifts if shift is not None), SHOWN))


def _scaled(lengths: np.ndarray) -> np.ndarray:
    """Logarithms of lengths, the most extreme in a hundred cut off: no sentence weighs more for being an oddity."""
    logs = np.log1p(lengths)
    return np.clip(logs, *np.quantile(logs, [0.005, 0.995])) - logs.mean()


def _likeness_of_neighbours(values: np.ndarray) -> float:
    """Correlation of consecutive values, against what varies locally: near 1 where they are sorted."""
    spread = float(_variances(values, SHORTEST).mean())
    return 1 - float(np.mean(np.diff(values) ** 2)) / 2 / spread if spread > 1e-9 else 1.0


@dataclass(frozen=True, eq=False)
class _Windows:
    """Correlations of lengths in overlapping windows of `size` lines that begin at `starts`."""

    size: int
    starts: np.ndarray
    standing: np.ndarray
    """As the lines stand."""
    usual: np.ndarray
    """Where lines are translations, going by how much lengths vary in the window."""

    @property
    def lost(self) -> np.ndarray:
        """Windows far below what is usual."""
        usual = np.arctanh(self.usual)
        return (usual * _scale(self.size) > 2 * CLEAR) & (np.arctanh(self.standing) < LOST * usual)


def _scale(size: int) -> float:
    """Standard errors per unit of Fisher's z."""
    return math.sqrt(size - 3)


def _windows(x: np.ndarray, y: np.ndarray) -> _Windows | None:
    """Windows just large enough for lengths to tell something; None if they never do."""
    for size in sorted({min(size, len(x) - len(x) // 10) for size in WINDOWS}):
        sample = np.unique(np.linspace(0, len(x) - size, SAMPLE).astype(np.int64))
        best, lags = map(
            np.array, zip(*(_best_fit(x, y, int(s), size, reach=FAR) for s in sample), strict=True)
        )
        # In a short text most windows may hold lines from before and from after a fault.
        typical = 0.5 if len(x) > 8 * size else 0.2
        if np.quantile(np.arctanh(best), 1 - typical) * _scale(size) > _stands_out(x, FAR):
            break
    else:
        return None
    starts = np.unique(np.append(np.arange(0, len(x) - size, size // 4), len(x) - size))
    usual = np.full(len(starts), 0.99)
    for variances, places in ((_variances(x, size), sample), (_variances(y, size), sample + lags)):
        noise = np.quantile(variances[places] * (1 - best**2), typical)
        explained = 1 - noise / np.maximum(variances[starts], 1e-12)
        usual = np.minimum(usual, np.sqrt(np.clip(explained, 0, 1)))
    return _Windows(size, starts, _correlations(x, y, size)[starts], usual)


def _stands_out(x: np.ndarray, reach: int) -> float:
    """Standard errors that the best of all lags must reach: the best of n null values is near sqrt(2 log n)."""
    return CLEAR + math.sqrt(2 * math.log(min(len(x), 2 * reach)))


def _best_fit(x: np.ndarray, y: np.ndarray, start: int, size: int, *, reach: int) -> tuple[float, int]:
    """The best correlation of a window of x with one of y at most `reach` lines away, and the lag between them."""
    low, high = max(0, start - reach), min(len(y), start + size + reach)
    window = x[start : start + size] - x[start : start + size].mean()
    spread = np.sqrt(_variances(y[low:high], size) * window.var())
    fits = np.correlate(y[low:high], window, "valid") / size / np.maximum(spread, 1e-9)
    found = int(np.argmax(fits))
    return float(min(0.999, fits[found])), low + found - start


def _sums(values: np.ndarray, size: int) -> np.ndarray:
    """Sums over every `size` consecutive values."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    return total[size:] - total[:-size]


def _variances(values: np.ndarray, size: int) -> np.ndarray:
    """Variances of every `size` consecutive values."""
    return np.maximum(0, _sums(values**2, size) / size - (_sums(values, size) / size) ** 2)


def _correlations(x: np.ndarray, y: np.ndarray, size: int) -> np.ndarray:
    """Correlations of every `size` consecutive pairs; 0 where one side does not vary."""
    covariance = _sums(x * y, size) / size - _sums(x, size) * _sums(y, size) / size**2
    spread = np.sqrt(_variances(x, size) * _variances(y, size))
    return np.clip(np.where(spread > 1e-9, covariance / np.maximum(spread, 1e-9), 0), -0.999, 0.999)


def _stretches(windows: _Windows) -> Iterator[tuple[int, int]]:
    """First and last index of suspicious windows that are near each other."""
    lost = np.flatnonzero(windows.lost)
    if len(lost):
        breaks = np.flatnonzero(np.diff(windows.starts[lost]) > 4 * windows.size)
        ends = np.append(0, breaks + 1), np.append(breaks, len(lost) - 1)
        yield from ((int(lost[first]), int(lost[last])) for first, last in zip(*ends, strict=True))


def _shift(x: np.ndarray, y: np.ndarray, windows: _Windows, first: int, last: int) -> Shift | None:
    """What became of the lines between two suspicious windows; None if they are only less alike than others."""
    start, size = int(windows.starts[first]), windows.size
    # More of them near the beginning, where the fault is.
    indices = sorted({min(last, first + step) for step in (*range(8), *(2**power for power in range(3, 20)))})
    lags = Counter(lag for index in indices if (lag := _lag(x, y, windows, index)) is not None)
    lag = lags.most_common(1)[0][0] if lags else None
    if lag is None and np.arctanh(windows.standing[first : last + 1].min()) * _scale(size) > 3:
        return None
    return Shift(
        first=start + 1,
        window_end=start + size,
        last=int(windows.starts[last]) + size,
        place=_place(x, y, lag or 0, start=start, size=size) + 1,
        lag=lag,
        correlation=round(float(windows.standing[first]), 3),
        usual=round(float(windows.usual[first]), 3),
    )


def _lag(x: np.ndarray, y: np.ndarray, windows: _Windows, index: int) -> int | None:
    """By how many lines the target must be moved for a window to fit; None if it fits nowhere."""
    for reach in (NEAR, FAR):
        best, lag = _best_fit(x, y, int(windows.starts[index]), windows.size, reach=reach)
        z, usual = np.arctanh([best, windows.usual[index]])
        if lag and z > FITS * usual and z * _scale(windows.size) > _stands_out(x, reach):
            return lag
    return None


def _place(x: np.ndarray, y: np.ndarray, lag: int, *, start: int, size: int) -> int:
    """Where lines cease to fit as they stand and begin to fit moved: the least sum of misfits before and after."""
    lines = np.arange(max(0, start - size, -lag), min(len(x), start + size, len(x) - lag))
    if lag == 0 or not len(lines):
        return start
    gain = (x[lines] - y[lines]) ** 2 - (x[lines] - y[lines + lag]) ** 2
    return int(lines[0] + np.argmin(np.append(0, np.cumsum(gain))))


_ANCHOR = re.compile(r"\d+|[^\W\d_]{4,}")


def _confirmed(split: SplitConfig, shifts: Sequence[Shift]) -> Iterator[Shift]:
    """Shifts, with what their lines share, but for those whose lines share enough as they stand."""
    for shift in shifts:
        standing, moved = shared = _shared(split, shift)
        if standing - moved <= 3 * math.sqrt(standing + moved):
            yield replace(shift, shared=shared)


def _shared(split: SplitConfig, shift: Shift) -> tuple[int, int]:
    """How many pairs have a number or a longer word in common, as they stand and moved, of up to 500."""
    lag = shift.lag or 1
    start, stop = shift.place - 1, min(shift.last, shift.place + 499)
    sources: dict[int, set[str]] = {}
    targets: dict[int, set[str]] = {}
    for place, (source, target) in enumerate(read_parallel(split.source, split.target)):
        if place >= max(stop, stop + lag):
            break
        if start <= place < stop:
            sources[place] = set(_ANCHOR.findall(source))
        if start <= place < stop or start <= place - lag < stop:
            targets[place] = set(_ANCHOR.findall(target))
    both = [place for place in sources if place + lag in targets]
    standing = sum(bool(sources[place] & targets[place]) for place in both)
    return standing, sum(bool(sources[place] & targets[place + lag]) for place in both)


def _misfits(split: SplitConfig, shifts: Sequence[Shift]) -> Iterator[Fault]:
    """Each shift in words: where to look, and for what."""
    for shift in shifts:
        where = f"lines {shift.first}-{shift.last} of {split.source} and {split.target}"
        seen = (
            f"lengths correlate {shift.correlation:.2f} in lines {shift.first}-{shift.window_end}, "
            f"where {shift.usual:.2f} is usual"
        )
        if any(shift.shared):
            standing, moved = shift.shared
            seen += f"; {standing} pairs share a number or word as they stand, {moved} if moved"
        text = f"{where} do not fit each other ({seen}); compare them"
        if shift.lag:
            lines = "a line is" if abs(shift.lag) == 1 else f"{abs(shift.lag)} lines are"
            few, many = (split.source, split.target) if shift.lag > 0 else (split.target, split.source)
            text = (
                f"{where} are shifted: from about line {shift.place} on, line n of the source fits line "
                f"n{shift.lag:+d} of the target ({seen}); see whether {lines} missing there from {few} or "
                f"too much in {many}"
            )
        yield Fault("shift", shift.last - shift.first + 1, (shift.place,), True, text)
