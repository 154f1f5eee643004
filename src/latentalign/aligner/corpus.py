"""Sentence pairs for an aligner, in files that are mapped into memory: ids of words, and for every cell its word pair.

A cell is a target position and a source position of one sentence pair. Training reads and counts one number per cell,
the index of its pair of words among all pairs that occur together. These indices are the largest part of the data. They
are written once, batch by batch, and read from disk in every pass. Memory holds one batch and the table of word pairs.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from latentalign.aligner.config import AlignerConfig, unit_of

Array = np.ndarray[Any, np.dtype[Any]]
CELLS = 400_000
"""Cells of a batch, padding included."""
WAITING = 1_000_000
"""New word pairs that are collected before they are merged into the table."""
NO_PAIR = 0
"""Index of cells without a word pair: padding, and pairs that are too rare for the table."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Sentence pairs of similar length, padded."""

    lines: Int[Array, " B"]
    """Numbers of the sentence pairs."""
    source: Int[Tensor, "B T"]
    target: Int[Tensor, "B S"]
    source_exists: Bool[Tensor, "B T"]
    target_exists: Bool[Tensor, "B S"]
    cells: Int[Tensor, "B S T"]
    """Index of the word pair of every cell."""


@dataclass(frozen=True, eq=False)
class Sentences:
    """The sentences of one language as ids, one after the other."""

    ids: Int[Array, " words"]
    offsets: Int[Array, " sentences_1"]

    @cached_property
    def lengths(self) -> Int[Array, " sentences"]:
        return np.diff(self.offsets)

    def pad(self, chosen: Sequence[int] | Array) -> tuple[Int[Array, "B T"], Bool[Array, "B T"]]:
        """Some sentences as rows of equal length, and which places exist."""
        lengths = self.lengths[chosen]
        place = np.arange(int(lengths.max(initial=1)))
        exists = place < lengths[:, None]
        where = np.minimum(self.offsets[chosen][:, None] + place, max(len(self.ids) - 1, 0))
        return np.where(exists, self.ids[where], 0), exists


class Vocabulary:
    """Words and their ids, in the order in which they were first seen."""

    def __init__(self, words: Iterable[str] = ()) -> None:
        self.ids = {word: number for number, word in enumerate(words)}

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, words: Iterable[str]) -> list[int]:
        """The ids of words, new ones included."""
        ids = self.ids
        return [ids.setdefault(word, len(ids)) for word in words]

    def units(self, kind: str, length: int) -> tuple[Vocabulary, Int[Array, " words"]]:
        """The units of all words, and the unit of every word."""
        units = Vocabulary()
        return units, np.array(units.add(unit_of(word, kind, length) for word in self.ids), np.int64)


def map_file(path: Path, kind: str) -> Array:
    """The numbers of a file, mapped into memory; an empty file is an empty array."""
    if path.stat().st_size == 0:
        return np.zeros(0, kind)
    return np.asarray(np.memmap(path, kind, mode="r"))


def open_side(folder: Path, name: str) -> Sentences:
    return Sentences(map_file(folder / f"{name}.ids", "<i4"), map_file(folder / f"{name}.offsets", "<i8"))


def plan_batches(
    source: Int[Array, " n"], target: Int[Array, " n"], *, longest: int | None, cells: int = CELLS
) -> list[Int[Array, " B"]]:
    """Pairs of similar length, so that padding is rare. Pairs with a blank or overlong side are left out."""
    usable = (source > 0) & (target > 0)
    if longest is not None:
        usable &= (source <= longest) & (target <= longest)
    numbers = np.flatnonzero(usable)
    size = np.maximum(source[numbers], target[numbers]) // 4
    order = numbers[np.lexsort((target[numbers], source[numbers], size))]
    batches, start, width, height = [], 0, 0, 0
    for end, number in enumerate(order):
        wide, high = max(width, int(source[number])), max(height, int(target[number]))
        if end > start and wide * high * (end - start + 1) > cells:
            batches.append(order[start:end])
            start, wide, high = end, int(source[number]), int(target[number])
        width, height = wide, high
    return [*batches, order[start:]] if len(order) else []


class TrainingCorpus:
    """The sentence pairs that an aligner learns from, in the files of a folder."""

    def __init__(self, folder: Path, pairs: Iterable[tuple[str, str]], config: AlignerConfig) -> None:
        self.folder, self.source_words, self.target_words = folder, Vocabulary(), Vocabulary()
        self.pairs = 0
        self._encode(pairs, config)
        self.source, self.target = open_side(folder, "source"), open_side(folder, "target")
        lengths = self.source.lengths, self.target.lengths
        self.batches = plan_batches(*lengths, longest=config.longest) or plan_batches(*lengths, longest=None)
        self._shapes = [
            (
                len(b),
                int(self.target.lengths[b].max()),
                int(self.source.lengths[b].max()),
            )
            for b in self.batches
        ]
        self._starts = np.cumsum([0, *(a * b * c for a, b, c in self._shapes)])
        self.keys = self._index_cells(config.largest_table)
        self._cells = map_file(folder / "cells", "<i4")

    def _encode(self, pairs: Iterable[tuple[str, str]], config: AlignerConfig) -> None:
        """Write both sides as ids, reading the text once."""
        vocabularies = (self.source_words, self.target_words)
        offsets = (array("q", [0]), array("q", [0]))
        with (
            open(self.folder / "source.ids", "wb") as source,
            open(self.folder / "target.ids", "wb") as target,
        ):
            for pair in pairs:
                self.pairs += 1
                sides = zip((source, target), vocabularies, offsets, config.split_pair(pair), strict=True)
                for file, vocabulary, starts, found in sides:
                    words = config.normalise(found)
                    array("i", vocabulary.add(words)).tofile(file)
                    starts.append(starts[-1] + len(words))
        for name, starts in zip(("source", "target"), offsets, strict=True):
            np.array(starts, np.int64).tofile(self.folder / f"{name}.offsets")

    def _index_cells(self, largest: int) -> Int[Array, " pairs"]:
        """Write the index of every cell's word pair; the keys of the table, whose first entry is for no pair.

        A batch is first numbered on its own. Then the pairs of all batches are merged, and its numbers are replaced.
        """
        table = PairTable(largest)
        with open(self.folder / "cells", "wb") as cells, open(self.folder / "local", "wb") as local:
            sizes = []
            for batch in self.batches:
                found, numbers, counts = np.unique(
                    self._cell_keys(batch), return_inverse=True, return_counts=True
                )
                numbers.astype("<i4").tofile(cells)
                found.tofile(local)
                sizes.append(len(found))
                table.add(found, counts)
        keys, start = table.finish(), 0
        pairs = map_file(self.folder / "local", "<i8")
        for number, size in enumerate(sizes):
            own = pairs[start : start + size]
            index = np.minimum(np.searchsorted(keys, own), len(keys) - 1)
            index = np.where((keys[index] == own) & (own >= 0), index, NO_PAIR).astype("<i4")
            begin, end = self._starts[number : number + 2]
            view = np.memmap(
                self.folder / "cells", "<i4", mode="r+", offset=int(begin) * 4, shape=(int(end - begin),)
            )
            view[:] = index[view]
            view.flush()
            start += size
        (self.folder / "local").unlink()
        return keys

    def _cell_keys(self, batch: Int[Array, " B"]) -> Int[Array, " cells"]:
        """source * |target vocabulary| + target of every cell; -1 for padding."""
        source, source_exists = self.source.pad(batch)
        target, target_exists = self.target.pad(batch)
        keys = source.astype(np.int64)[:, None, :] * len(self.target_words) + target[:, :, None]
        keys[~(target_exists[:, :, None] & source_exists[:, None, :])] = -1
        return keys.reshape(-1)

    def __len__(self) -> int:
        return len(self.batches)

    def load(self, number: int) -> Batch:
        """A batch, with the indices of its cells read from disk."""
        lines = self.batches[number]
        source, source_exists = self.source.pad(lines)
        target, target_exists = self.target.pad(lines)
        start, end = self._starts[number : number + 2]
        cells = torch.from_numpy(np.array(self._cells[start:end])).view(self._shapes[number])
        numbers = (torch.from_numpy(a) for a in (source, target, source_exists, target_exists))
        source_t, target_t, source_e, target_e = numbers
        return Batch(lines, source_t.long(), target_t.long(), source_e, target_e, cells)

    def __iter__(self) -> Iterator[Batch]:
        return (self.load(number) for number in range(len(self)))

    def frequencies(self) -> tuple[Tensor, Tensor]:
        """How often each word occurs, on both sides."""
        counts = (
            np.bincount(side.ids, minlength=len(words))
            for side, words in ((self.source, self.source_words), (self.target, self.target_words))
        )
        source, target = (torch.from_numpy(c).float() for c in counts)
        return source, target


class PairTable:
    """All word pairs of a text in bounded memory: if there are too many, the rarest are forgotten."""

    def __init__(self, largest: int) -> None:
        self.largest = largest
        self.keys, self.counts = np.full(1, -1, np.int64), np.ones(1, np.int32)
        self.waiting: list[tuple[Array, Array]] = []
        self.size = 0

    def add(self, keys: Int[Array, " n"], counts: Int[Array, " n"]) -> None:
        """Count the pairs of one batch, which are sorted."""
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        known = self.keys[place] == keys
        self.counts[place[known]] += counts[known].astype(np.int32)
        self.waiting.append((keys[~known], counts[~known]))
        self.size += len(self.waiting[-1][0])
        if self.size > WAITING:
            self._merge()

    def _merge(self) -> None:
        """Add the pairs that wait. If there are too many, forget the rarest first (lossy counting)."""
        keys, counts = sum_by_key(*(np.concatenate(column) for column in zip(*self.waiting, strict=True)))
        self.waiting, self.size = [], 0
        self.keys, self.counts = sum_by_key(
            np.concatenate([self.keys, keys]), np.concatenate([self.counts, counts])
        )
        least = 1
        while len(self.keys) > self.largest:
            least += 1
            keep = (self.counts >= least) | (self.keys < 0)
            self.keys, self.counts = self.keys[keep], self.counts[keep]

    def finish(self) -> Int[Array, " pairs"]:
        """The sorted keys of all pairs; the first is -1, for no pair."""
        if self.waiting:
            self._merge()
        return self.keys


def sum_by_key(keys: Int[Array, " n"], counts: Int[Array, " n"]) -> tuple[Array, Array]:
    """Sorted keys without repetitions, and the sums of their counts."""
    order = np.argsort(keys, kind="stable")  # linear for runs that are sorted already
    keys, counts = keys[order], counts[order]
    first = np.flatnonzero(np.diff(keys, prepend=np.int64(-2))) if len(keys) else np.zeros(0, np.int64)
    return keys[first], np.add.reduceat(counts, first).astype(np.int32) if len(first) else counts
