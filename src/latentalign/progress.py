"""Progress on stderr: bars in a terminal, plain lines elsewhere, nothing with `--quiet`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from enum import IntEnum
from importlib.util import find_spec
from types import TracebackType
from typing import Any, TypeVar

PLAIN_SECONDS = 10.0
"""Seconds between plain lines about the same work."""
T = TypeVar("T")


class Verbosity(IntEnum):
    """How much a command prints on stderr. Warnings and errors are always printed."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


class _Setting:
    verbosity = Verbosity.NORMAL


def set_verbosity(verbosity: Verbosity) -> None:
    """Choose how much this process prints, as the options `--quiet` and `--verbose` do."""
    _Setting.verbosity = verbosity


def verbosity() -> Verbosity:
    """How much this process prints."""
    return _Setting.verbosity


def warn(text: str) -> None:
    """Print a line that the user must see."""
    print(f"latentalign: {text}", file=sys.stderr, flush=True)


def inform(text: str) -> None:
    """Print a line unless the user asked for quiet."""
    if verbosity() >= Verbosity.NORMAL:
        warn(text)


def detail(text: str) -> None:
    """Print a line if the user asked for details."""
    if verbosity() >= Verbosity.VERBOSE:
        warn(text)


def format_duration(seconds: float) -> str:
    """A duration as people say it: 45 s, 12 min, 3 h 20 min, 2 d 5 h."""
    if seconds < 100:
        return f"{max(0.0, seconds):.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


class Bars:
    """The progress of one or several pieces of work that go on at the same time."""

    def __init__(self, *, shown: bool = True, live: bool = True) -> None:
        """Without `live`, bars are drawn only when they change, so that no thread disturbs a measurement."""
        self.shown = shown and verbosity() > Verbosity.QUIET
        drawn = self.shown and sys.stderr.isatty() and find_spec("rich") is not None
        self.rich: Any = make_rich_bars(live) if drawn else None
        self.live = live

    def __enter__(self) -> Bars:
        if self.rich is not None:
            self.rich.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.rich is not None:
            self.rich.stop()

    def add(
        self, name: str, total: float | None = None, *, unit: str = "", interval: float | None = None
    ) -> Bar:
        """A new piece of work; `unit` names what is counted, and `interval` the seconds between plain lines."""
        return Bar(self, name, total, unit=unit, interval=PLAIN_SECONDS if interval is None else interval)

    def print(self, text: str) -> None:
        """Print one line that stays."""
        if self.rich is not None:
            self.rich.console.print(text, highlight=False, markup=False)
        elif self.shown:
            print(text, file=sys.stderr, flush=True)


class Bar:
    """The progress of one piece of work."""

    def __init__(self, bars: Bars, name: str, total: float | None, *, unit: str, interval: float) -> None:
        self.bars, self.name, self.total, self.unit = bars, name, total, unit
        self.done, self.text, self.left = 0.0, "", ""
        self.interval, self.began = interval, time.monotonic()
        self.printed = self.began
        self.task = None if bars.rich is None else bars.rich.add_task(name, total=total, text="")

    def advance(self, count: float = 1) -> None:
        """Count work that is done, and estimate the time left."""
        self.done += count
        rate = self.done / max(1e-9, time.monotonic() - self.began)
        left = None if self.total is None else (self.total - self.done) / max(1e-9, rate)
        self.update(text=f"{rate:,.{0 if rate >= 10 else 1}f} {self.unit}/s", left=left)

    def update(
        self,
        *,
        done: float | None = None,
        total: float | None = None,
        name: str | None = None,
        text: str | None = None,
        left: float | None = None,
    ) -> None:
        """Show how far the work is. `left` is the time to its end in seconds."""
        self.done = self.done if done is None else done
        self.total = self.total if total is None else total
        self.name = self.name if name is None else name
        self.text = self.text if text is None else text
        self.left = "" if left is None else f"{format_duration(left)} left"
        if self.task is not None:
            shown = "  ".join(filter(None, (self.text, self.left)))
            self.bars.rich.update(
                self.task,
                description=self.name,
                completed=self.done,
                total=self.total,
                text=shown,
                refresh=not self.bars.live,
            )
        elif self.bars.shown and time.monotonic() - self.printed >= self.interval:
            self.print_plain()

    def print_plain(self) -> None:
        """Print one plain line about the work, where no bar shows it."""
        if self.task is None:
            self.printed = time.monotonic()
            of = "" if self.total is None else f" of {self.total:,.0f}"
            count = f"{self.done:,.0f}{of} {self.unit}" if self.unit else ""
            self.bars.print(f"{self.name}: {', '.join(filter(None, (count, self.text, self.left)))}")

    def finish(self, text: str) -> None:
        """Replace the bar by one line that stays."""
        if self.task is not None:
            self.bars.rich.remove_task(self.task)
        self.bars.print(f"{self.name}: {text}")


def track(items: Iterable[T], name: str, *, total: float | None = None, unit: str) -> Iterator[T]:
    """The same items, counted on stderr while they pass."""
    with Bars() as bars:
        bar = bars.add(name, total, unit=unit)
        for item in items:
            yield item
            bar.advance()


def make_rich_bars(live: bool) -> Any:
    """Bars of the library rich, which is imported only where there is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[text]}", markup=False),
        console=Console(stderr=True),
        transient=True,
        auto_refresh=live,
        redirect_stdout=False,  # rich would write results to stderr
    )
