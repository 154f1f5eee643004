"""Shifted lines in parallel text, found from the lengths of the lines.

If one side lost or gained a line, all later pairs are wrong, although each file looks right. The lengths of
translations are correlated, the lengths of other pairs of sentences are not. So a shift is a stretch of lines in
which the correlation is far below its usual value, and comes back if one side is moved.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

WINDOWS = (50, 100, 200, 400, 800)
"""Sizes of windows to try, in lines."""
SHORTEST = 30
"""The smallest window, in lines."""
SAMPLE = 40
"""How many windows are used to learn the usual correlation."""
NEAR, FAR = 100, 20_000
"""How many lines away the translation of a window is searched for: first NEAR, then FAR."""
CLEAR = 4.0
"""Standard errors by which a correlation must stand out."""
LOST, FITS = 0.4, 0.75
"""Shares of the usual correlation (in Fisher's z). Lines below LOST do not belong together, lines above FITS do."""
NEIGHBOURS = 0.6
"""If the lengths of consecutive lines correlate more than this, a shift cannot be detected."""
MOST_SHIFTS = 20
"""Report at most this many shifts of a split."""


@dataclass(frozen=True)
class Shift:
    """Source lines `first` to `last` that do not fit the target lines with the same numbers."""

    first: int
    """The first line of the first suspicious window, counted from 1; `window_end` is its last line."""
    window_end: int
    last: int
    place: int
    """The estimated line at which the shift begins."""
    lag: int | None
    """Source line n fits target line n + lag; None if it fits nowhere."""
    correlation: float
    """Correlation of the lengths in the first window, without moving a line."""
    usual: float
    """The correlation to expect in such a window, estimated from the rest of the text."""
    shared: tuple[int, int] = (0, 0)
    """Pairs that share a number or a word: without moving, and moved by the lag (by one line if lag is None)."""


def find_shifts(source: Array, target: Array) -> list[Shift] | None:
    """Stretches in which the lengths of the two sides do not correlate, and by how many lines they are shifted.

    In each window, the correlation of the log-lengths is compared (as Fisher's z) with the usual correlation of
    lengths that vary as much as in this window. So nothing is claimed if all sentences have about the same
    length. The usual correlation comes from the windows that fit best at any lag, so it is known even if all
    lines are shifted. The result is None if the method cannot work: too few lines, lengths that are unrelated
    or all equal, or lines that are sorted by length.
    """
    if len(source) < SHORTEST:
        return None
    x, y = _log_lengths(source), _log_lengths(target)
    if max(map(_correlation_of_neighbours, (x, y))) > NEIGHBOURS:
        return None
    windows = _choose_windows(x, y)
    if windows is None:
        return None
    shifts = (_describe_shift(x, y, windows, first, last) for first, last in _suspicious_stretches(windows))
    return list(islice((shift for shift in shifts if shift is not None), MOST_SHIFTS))


def _log_lengths(lengths: Array) -> Array:
    """Centred logarithms of lengths. The most extreme one percent is clipped, so that no line dominates."""
    logs = np.log1p(lengths)
    result: Array = np.clip(logs, *np.quantile(logs, [0.005, 0.995])) - logs.mean()
    return result


def _correlation_of_neighbours(values: Array) -> float:
    """Correlation of consecutive values, relative to the local variance: near 1 if they are sorted."""
    spread = float(_variances(values, SHORTEST).mean())
    return 1 - float(np.mean(np.diff(values) ** 2)) / 2 / spread if spread > 1e-9 else 1.0


@dataclass(frozen=True, eq=False)
class _Windows:
    """Correlations of lengths in overlapping windows of `size` lines that begin at `starts`."""

    size: int
    starts: Array
    unmoved: Array
    """Correlations without moving a line."""
    usual: Array
    """Correlations to expect of translations whose lengths vary as much as in the window."""

    @property
    def suspicious(self) -> Array:
        """Whether each window is far below its usual correlation."""
        usual = np.arctanh(self.usual)
        result: Array = (usual * _scale(self.size) > 2 * CLEAR) & (np.arctanh(self.unmoved) < LOST * usual)
        return result


def _scale(size: int) -> float:
    """Standard errors per unit of Fisher's z."""
    return math.sqrt(size - 3)


def _choose_windows(x: Array, y: Array) -> _Windows | None:
    """The smallest windows in which lengths are informative; None if they never are."""
    for size in sorted({min(size, len(x) - len(x) // 10) for size in WINDOWS}):
        sample = np.unique(np.linspace(0, len(x) - size, SAMPLE).astype(np.int64))
        fits = [_best_fit(x, y, int(start), size, reach=FAR) for start in sample]
        best, lags = map(np.array, zip(*fits, strict=True))
        # In a short text, most windows may contain lines from before and after a shift.
        typical = 0.5 if len(x) > 8 * size else 0.2
        if np.quantile(np.arctanh(best), 1 - typical) * _scale(size) > _threshold(x, FAR):
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


def _threshold(x: Array, reach: int) -> float:
    """Standard errors that the best lag must reach. The best of n null values is near sqrt(2 log n)."""
    return CLEAR + math.sqrt(2 * math.log(min(len(x), 2 * reach)))


def _best_fit(x: Array, y: Array, start: int, size: int, *, reach: int) -> tuple[float, int]:
    """The best correlation of a window of x with one of y at most `reach` lines away, and its lag."""
    low, high = max(0, start - reach), min(len(y), start + size + reach)
    window = x[start : start + size] - x[start : start + size].mean()
    spread = np.sqrt(_variances(y[low:high], size) * window.var())
    fits = np.correlate(y[low:high], window, "valid") / size / np.maximum(spread, 1e-9)
    found = int(np.argmax(fits))
    return float(min(0.999, fits[found])), low + found - start


def _sums(values: Array, size: int) -> Array:
    """Sums over every `size` consecutive values."""
    total: Array = np.concatenate([[0.0], np.cumsum(values)])
    return total[size:] - total[:-size]


def _variances(values: Array, size: int) -> Array:
    """Variances of every `size` consecutive values."""
    return np.maximum(0, _sums(values**2, size) / size - (_sums(values, size) / size) ** 2)


def _correlations(x: Array, y: Array, size: int) -> Array:
    """Correlations of every `size` consecutive pairs; 0 if one side does not vary."""
    covariance = _sums(x * y, size) / size - _sums(x, size) * _sums(y, size) / size**2
    spread = np.sqrt(_variances(x, size) * _variances(y, size))
    result: Array = np.clip(np.where(spread > 1e-9, covariance / np.maximum(spread, 1e-9), 0), -0.999, 0.999)
    return result


def _suspicious_stretches(windows: _Windows) -> Iterator[tuple[int, int]]:
    """First and last index of suspicious windows that are near each other."""
    found = np.flatnonzero(windows.suspicious)
    if len(found):
        breaks = np.flatnonzero(np.diff(windows.starts[found]) > 4 * windows.size)
        ends = np.append(0, breaks + 1), np.append(breaks, len(found) - 1)
        yield from ((int(found[first]), int(found[last])) for first, last in zip(*ends, strict=True))


def _describe_shift(x: Array, y: Array, windows: _Windows, first: int, last: int) -> Shift | None:
    """The shift between two suspicious windows; None if the lines are only less alike than others."""
    start, size = int(windows.starts[first]), windows.size
    # Look at more windows near the beginning, where the shift begins.
    indices = sorted({min(last, first + step) for step in (*range(8), *(2**power for power in range(3, 20)))})
    lags = Counter(lag for index in indices if (lag := _find_lag(x, y, windows, index)) is not None)
    lag = lags.most_common(1)[0][0] if lags else None
    if lag is None and np.arctanh(windows.unmoved[first : last + 1].min()) * _scale(size) > 3:
        return None
    return Shift(
        first=start + 1,
        window_end=start + size,
        last=int(windows.starts[last]) + size,
        place=_find_place(x, y, lag or 0, start=start, size=size) + 1,
        lag=lag,
        correlation=round(float(windows.unmoved[first]), 3),
        usual=round(float(windows.usual[first]), 3),
    )


def _find_lag(x: Array, y: Array, windows: _Windows, index: int) -> int | None:
    """By how many lines the target must be moved for a window to fit; None if it fits nowhere."""
    for reach in (NEAR, FAR):
        best, lag = _best_fit(x, y, int(windows.starts[index]), windows.size, reach=reach)
        z, usual = np.arctanh([best, windows.usual[index]])
        if lag and z > FITS * usual and z * _scale(windows.size) > _threshold(x, reach):
            return lag
    return None


def _find_place(x: Array, y: Array, lag: int, *, start: int, size: int) -> int:
    """The line at which pairs stop fitting unmoved and start fitting moved: the least sum of squared misfits."""
    lines = np.arange(max(0, start - size, -lag), min(len(x), start + size, len(x) - lag))
    if lag == 0 or not len(lines):
        return start
    gain = (x[lines] - y[lines]) ** 2 - (x[lines] - y[lines + lag]) ** 2
    return int(lines[0] + np.argmin(np.append(0, np.cumsum(gain))))
