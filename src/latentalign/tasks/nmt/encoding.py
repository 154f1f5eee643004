"""Ids of all pairs of a split, written to files a chunk of lines at a time. Several processes share a large corpus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from latentalign.errors import InputError, LatentAlignError
from latentalign.progress import Bars
from latentalign.tasks.nmt.encoder_pool import EncoderPool, Lines, choose_processes
from latentalign.tasks.nmt.splits import SplitConfig
from latentalign.tasks.nmt.tokenizer import Tokenizer
from latentalign.tasks.splits import Side
from latentalign.textfiles import count_lines

# Little-endian everywhere, so that a cache means the same on every machine.
ARRAYS = {
    "source.ids": "<i4",
    "source.offsets": "<i8",
    "target.ids": "<i4",
    "target.offsets": "<i8",
    "lines": "<i8",
}
CHUNK = 50_000
"""Lines that are encoded at once: a word that is repeated among them is encoded once."""
LARGE = 100_000
"""Pairs from which other processes are started and progress is shown. Fewer take about two seconds."""


def write_ids(
    tokenizer: Tokenizer,
    split: SplitConfig,
    folder: Path,
    *,
    max_length: int | None,
    processes: int | None = None,
) -> dict[str, int]:
    """Write the ids of all pairs into `folder`; how many pairs were dropped, and why."""
    dropped = {"blank": 0, "overlong": 0}
    ends = {"source": 0, "target": 0}
    with ExitStack() as stack:
        files = {name: stack.enter_context(open(folder / name, "wb")) for name in ARRAYS}
        for side in ends:
            files[f"{side}.offsets"].write(bytes(8))
        first = 1
        for lines, rows in encode_chunks(tokenizer, split, stack, processes=processes):
            kept = _keep(split, rows, first, max_length=max_length, dropped=dropped)
            np.add(np.flatnonzero(kept), first, dtype=ARRAYS["lines"]).tofile(files["lines"])
            for side, found in rows.items():
                ids, lengths = found.where(kept)
                offsets = ends[side] + np.cumsum(lengths, dtype=ARRAYS[f"{side}.offsets"])
                ends[side] += int(lengths.sum())
                offsets.tofile(files[f"{side}.offsets"])
                ids.astype(ARRAYS[f"{side}.ids"]).tofile(files[f"{side}.ids"])
            first += len(lines)
    return dropped


@dataclass(frozen=True, eq=False)
class Rows:
    """Ids of the sentences of one side, one after the other, and the number of ids of each."""

    ids: np.ndarray
    lengths: np.ndarray

    def where(self, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ids and lengths of some of the sentences."""
        if kept.all():
            return self.ids, self.lengths
        return self.ids[np.repeat(kept, self.lengths)], self.lengths[kept]


def encode_chunks(
    tokenizer: Tokenizer, split: SplitConfig, stack: ExitStack, *, processes: int | None
) -> Iterator[tuple[Lines, dict[Side, Rows]]]:
    """Chunks of pairs with their ids. The processes and the bar of a large corpus end with `stack`."""
    total, chunks = _count_pairs(split), _chunks(split.read())
    if total < LARGE:
        for lines in chunks:
            yield lines, _encode_here(tokenizer, lines)
        return
    bar = stack.enter_context(Bars()).add(f"encoding {split}", total, unit="pairs")
    count = choose_processes(processes)
    pool = EncoderPool.start(tokenizer, count) if count > 1 else None
    if pool is None:
        encoded = ((lines, _encode_here(tokenizer, lines)) for lines in chunks)
    else:
        found = stack.enter_context(pool).encode(chunks)
        encoded = ((lines, {"source": Rows(*a), "target": Rows(*b)}) for lines, (a, b) in found)
    for lines, rows in encoded:
        yield lines, rows
        bar.advance(len(lines))


def _count_pairs(split: SplitConfig) -> int:
    """The number of lines of a split; 0 if they cannot be counted, which reading explains in its turn."""
    try:
        return count_lines(split.text("source"))
    except LatentAlignError:
        return 0


def _encode_here(tokenizer: Tokenizer, lines: Lines) -> dict[Side, Rows]:
    """The ids of a chunk, computed by this process."""
    return {side: Rows(*tokenizer.id_arrays(text, side)) for side, text in _sides(lines)}


def _sides(lines: Lines) -> list[tuple[Side, list[str]]]:
    """The text of both sides."""
    return [("source", [line for line, _ in lines]), ("target", [line for _, line in lines])]


def _keep(
    split: SplitConfig, rows: dict[Side, Rows], first: int, *, max_length: int | None, dropped: dict[str, int]
) -> np.ndarray:
    """Which pairs of a chunk are kept, counting the others; where nothing may be dropped, an InputError instead.

    `first` is the line of the first pair.
    """
    source, target = rows["source"].lengths, rows["target"].lengths
    blank = np.minimum(source, target) == 0
    if max_length is None:
        if blank.any():
            place = int(blank.argmax())
            text = split.text("target" if source[place] else "source")
            raise InputError(
                f"{text}, line {first + place}: blank; every line of a validation or test file needs words"
            )
        return np.ones(len(source), bool)
    overlong = np.maximum(source, target) > max_length
    dropped["overlong"] += int(overlong.sum())
    dropped["blank"] += int((blank & ~overlong).sum())
    kept: np.ndarray = ~(blank | overlong)
    return kept


def _chunks(items: Iterable[Any]) -> Iterator[list[Any]]:
    """Lists of up to `CHUNK` items."""
    iterator = iter(items)
    while chunk := list(islice(iterator, CHUNK)):
        yield chunk
