"""Gives damaged files to a reader, counts what happens, and makes failing inputs small."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from fuzz.damage import hostile
from latentalign.errors import LatentAlignError

Check = Callable[[bytes, Random, Path], None]


@dataclass(frozen=True)
class Reader:
    """A reader under test: valid files to damage, and what must hold of a file unless it is refused."""

    name: str
    valid: Callable[[], list[bytes]]
    check: Check


def write_file(folder: Path, name: str, data: bytes) -> Path:
    """Write one input and return its path."""
    path = folder / name
    path.write_bytes(data)
    return path


@dataclass(frozen=True)
class Failure:
    """What went wrong for a seed, and the smallest input for which it still does."""

    reader: str
    seed: int
    error: str
    data: bytes

    def __str__(self) -> str:
        shown = (
            repr(self.data) if len(self.data) <= 300 else f"{self.data[:300]!r}... ({len(self.data)} bytes)"
        )
        return f"{self.reader}, seed {self.seed}: {self.error}\n    {shown}"


@dataclass
class Tally:
    """How the inputs of one reader fared."""

    read: int = 0
    refused: int = 0
    slowest: float = 0.0
    failures: list[Failure] = field(default_factory=list)


def draw(reader: Reader, seed: int) -> bytes:
    """The input of a seed."""
    return hostile(Random(f"{reader.name} {seed}"), reader.valid())


def outcome(reader: Reader, data: bytes, seed: int, folder: Path) -> str:
    """`read`, `refused`, or what went wrong."""
    try:
        reader.check(data, Random(seed), folder)
    except LatentAlignError:
        return "refused"
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a panic of compiled code is no Exception
        return f"{type(error).__name__}: {str(error)[:200]}"
    return "read"


def shrink(data: bytes, fails: Callable[[bytes], bool], attempts: int = 300) -> bytes:
    """A smaller input that still fails, by leaving out ever smaller pieces."""
    size = len(data) // 2
    while size and attempts > 0:
        start = 0
        while start < len(data) and attempts > 0:
            attempts -= 1
            shorter = data[:start] + data[start + size :]
            if fails(shorter):
                data = shorter
            else:
                start += size
        size //= 2
    return data


def fuzz(reader: Reader, seeds: range, folder: Path, *, limit: int = 5) -> Tally:
    """Try the inputs of many seeds; no more than `limit` failures are made minimal."""
    tally = Tally()
    for seed in seeds:
        data, start = draw(reader, seed), time.perf_counter()
        result = outcome(reader, data, seed, folder)
        tally.slowest = max(tally.slowest, time.perf_counter() - start)
        if result in ("read", "refused"):
            setattr(tally, result, getattr(tally, result) + 1)
            continue
        kind = result.split(":")[0]
        if len(tally.failures) < limit:
            data = shrink(data, lambda d: outcome(reader, d, seed, folder).split(":")[0] == kind)  # noqa: B023
        tally.failures.append(Failure(reader.name, seed, result, data))
    return tally
