"""Parallel text as batches of ids: encoded once into memory-mapped files, then batched by length."""

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, field, fields
from functools import cached_property
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentalign.errors import InputError, StorageError
from latentalign.storage import fingerprint
from latentalign.tasks.nmt.splits import SplitConfig
from latentalign.tasks.nmt.tokenizer import EOS, PAD, Tokenizer
from latentalign.tasks.padding import pad_rows
from latentalign.tasks.splits import Side

HEADER = "corpus.json"
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


@dataclass(frozen=True, eq=False)
class Corpus:
    """Sentence pairs as ids, read from disk when asked for."""

    arrays: Mapping[str, np.ndarray]
    dropped: Mapping[str, int]
    """Pairs left out: `blank` with a side without words, `overlong` with a side beyond the maximum."""
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of each text file."""

    def __len__(self) -> int:
        """How many pairs there are."""
        return len(self.arrays["lines"])

    def lengths(self, side: Side) -> np.ndarray:
        """Tokens of each sentence of a side, without specials."""
        return np.diff(self.arrays[f"{side}.offsets"])

    def source(self, index: int) -> np.ndarray:
        """Ids of a source sentence."""
        return self._sentence("source", index)

    def target(self, index: int) -> np.ndarray:
        """Ids of a target sentence, without specials."""
        return self._sentence("target", index)

    def line(self, index: int) -> int:
        """The line of the text files, from 1, at which a pair stands."""
        return int(self.arrays["lines"][index])

    def _sentence(self, side: Side, index: int) -> np.ndarray:
        start, stop = self.arrays[f"{side}.offsets"][index : index + 2]
        return self.arrays[f"{side}.ids"][start:stop]


def build_cache(
    tokenizer: Tokenizer,
    split: SplitConfig,
    folder: Path | str,
    *,
    max_length: int | None,
    max_dropped: float = 0.1,
) -> Corpus:
    """The pairs of a split, encoded into `folder` unless the same were encoded there before.

    With a `max_length`, for training, pairs that are longer or blank are dropped and counted, and an
    InputError is raised when they are more than the share `max_dropped`. Without one, for evaluation, every
    pair is kept, and a blank side is an InputError.
    """
    folder = Path(folder)
    fingerprints = split.fingerprints()
    identity = {
        "version": 1,
        **fingerprints,
        "tokenizer": tokenizer.fingerprint(),
        "max_length": max_length,
    }
    header = _header(folder, identity)
    if header is None:
        try:
            header = _build(tokenizer, split, folder, identity=identity)
        except StorageError:
            raise
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise StorageError(_too_full(folder, split)) from error
            raise StorageError(f"{folder}: cannot be written: {error.strerror or error}") from error
    _refuse_poor_data(split, header, max_length=max_length, max_dropped=max_dropped)
    # As plain arrays, still mapped: slicing the subclass costs several times as much.
    arrays = {name: np.asarray(np.memmap(folder / name, dtype, mode="r")) for name, dtype in ARRAYS.items()}
    return Corpus(arrays, header["dropped"], fingerprints)


def _header(folder: Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    """What a folder holds; None if it is not a complete cache of just this."""
    try:
        header = json.loads((folder / HEADER).read_bytes())
        sizes = {name: (folder / name).stat().st_size for name in ARRAYS}
        known = header["identity"] == identity and header["bytes"] == sizes
        return header if known and header["sha256"] == _sums(folder) else None
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def _sums(folder: Path) -> dict[str, str]:
    """SHA-256 of each array: a cache is read as it was written, or made anew."""
    return {name: fingerprint(folder / name) for name in ARRAYS}


def _too_full(folder: Path, split: SplitConfig) -> str:
    """What to say when a disk has no room for the ids, which take about as much of it as the text."""
    need = sum(path.stat().st_size for path in split.files.values()) + 2**14 * len(ARRAYS)
    have = shutil.disk_usage(folder).free
    sizes = f"need {need / 1e6:.2f} MB, have {have / 1e6:.2f} MB"
    return f"{sizes} in {folder}: free some space or write elsewhere"


def _build(
    tokenizer: Tokenizer, split: SplitConfig, folder: Path, *, identity: dict[str, Any]
) -> dict[str, Any]:
    """Encode all pairs into files that take their names only when complete, the header last."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".building-") as name:
        building = Path(name)
        dropped = _encode(tokenizer, split, building, max_length=identity["max_length"])
        sizes = {name: (building / name).stat().st_size for name in ARRAYS}
        header = {"identity": identity, "dropped": dropped, "bytes": sizes, "sha256": _sums(building)}
        (building / HEADER).write_text(json.dumps(header, indent=1), "utf-8")
        (folder / HEADER).unlink(missing_ok=True)
        for name in [*ARRAYS, HEADER]:
            os.replace(building / name, folder / name)
    return header


def _encode(
    tokenizer: Tokenizer, split: SplitConfig, folder: Path, *, max_length: int | None
) -> dict[str, int]:
    """Write the ids of all pairs, a chunk of lines at a time; how many pairs were dropped, and why."""
    dropped = {"blank": 0, "overlong": 0}
    ends = {"source": 0, "target": 0}
    with ExitStack() as stack:
        files = {name: stack.enter_context(open(folder / name, "wb")) for name in ARRAYS}
        for side in ends:
            files[f"{side}.offsets"].write(bytes(8))
        first = 1
        for lines in _chunks(split.read()):
            rows = {side: Rows(*tokenizer.id_arrays(text, side)) for side, text in _sides(lines)}
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


def _sides(lines: list[tuple[str, str]]) -> list[tuple[Side, list[str]]]:
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


def _refuse_poor_data(
    split: SplitConfig, header: Mapping[str, Any], *, max_length: int | None, max_dropped: float
) -> None:
    """An InputError if nothing is left, or too much was dropped."""
    kept = header["bytes"]["lines"] // 8
    dropped = header["dropped"]
    total = kept + sum(dropped.values())
    if total == 0:
        raise InputError(f"{split}: empty, no sentence pairs")
    if kept == 0 or total - kept > max_dropped * total:
        raise InputError(
            f"{split}: {total - kept} of {total} pairs dropped, {dropped['blank']} with "
            f"a blank side and {dropped['overlong']} longer than {max_length} tokens; repair the files or raise "
            f"data.max_length or data.max_dropped ({max_dropped:g})"
        )


@dataclass(frozen=True, eq=False)
class Batch:
    """Padded sentence pairs; masks are True at tokens. Targets end with </s>, sources do not."""

    source: Int[Tensor, "B T"]
    source_mask: Bool[Tensor, "B T"]
    target: Int[Tensor, "B S"]
    target_mask: Bool[Tensor, "B S"]
    index: Int[Tensor, "n"]
    """Positions in the corpus; none in a batch that only keeps a process busy."""
    external: Float[Tensor, "B S T"] | None = None
    """log q of another aligner, where the recipe has one."""
    evidence: Float[Tensor, "B S M"] | None = None
    """log p(e | z, y) of what is known about alignments, for every member; at most 0. Only training has it."""
    queries: int = -1
    """Number of target tokens, </s> included; counted unless it is passed."""
    examples: int = field(init=False)
    """Number of sentence pairs."""

    def __post_init__(self) -> None:
        if self.queries < 0:
            object.__setattr__(self, "queries", int(self.target_mask.sum()))
        object.__setattr__(self, "examples", len(self.index))

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on a device."""
        values = (getattr(self, f.name) for f in fields(self) if f.init)
        moved: list[Any] = [value.to(device) if isinstance(value, Tensor) else value for value in values]
        return Batch(*moved)


def collate(corpus: Corpus, indices: np.ndarray | Sequence[int]) -> Batch:
    """The batch of the pairs at these positions; without positions one of no rows."""
    index = torch.tensor([int(index) for index in indices], dtype=torch.int64)
    source, source_mask = pad_rows([corpus.source(place) for place in index.tolist()], PAD)
    target, target_mask = pad_rows([np.append(corpus.target(place), EOS) for place in index.tolist()], PAD)
    return Batch(source, source_mask, target, target_mask, index)


@dataclass(frozen=True)
class Batches:
    """Which pairs make up each batch of each epoch, as a function of seed and epoch alone.

    Training may therefore go on at any batch: its state is the epoch and the position in `epoch_batches`.
    Of `batch_sentences` and `batch_tokens` (padded source and target tokens, </s> included) one is set. With
    a `world` of several processes, batches are formed `world` times as large and dealt out in turn: every
    process takes as many steps, but its share of a small batch may be empty.
    """

    corpus: Corpus
    _: KW_ONLY
    batch_tokens: int | None = None
    batch_sentences: int | None = None
    seed: int = 0
    shuffle: bool = True
    """Mixed anew in each epoch, sorted by length within pools only; else sorted as a whole, for evaluation."""
    pool: int = 100
    """Batches in a pool."""
    rank: int = 0
    world: int = 1

    def __post_init__(self) -> None:
        """Refuse a batch size that is absent, double or not positive."""
        sizes = [size for size in (self.batch_tokens, self.batch_sentences) if size is not None]
        if len(sizes) != 1 or sizes[0] < 1:
            raise InputError(
                f"set one of batch_tokens and batch_sentences to a positive number, the other not at all; "
                f"got {self.batch_tokens} and {self.batch_sentences}"
            )

    def epoch_batches(self, epoch: int) -> list[np.ndarray]:
        """Positions in the corpus of each of this process's batches, in the order of training."""
        random = np.random.default_rng((self.seed, epoch))
        total = len(self.corpus)
        order = random.permutation(total) if self.shuffle else np.arange(total)
        pool = self.pool * self._sentences if self.shuffle else total
        order = order[np.lexsort((self._target[order], self._source[order], np.arange(total) // pool))]
        bounds = self._bounds(order, [*range(0, total, pool), total])
        batches = [order[start:stop] for start, stop in pairwise(bounds)]
        if self.shuffle:
            batches = [batches[index] for index in random.permutation(len(batches))]
        return [batch[self.rank :: self.world] for batch in batches]

    @cached_property
    def _source(self) -> np.ndarray:
        return self.corpus.lengths("source")

    @cached_property
    def _target(self) -> np.ndarray:
        return self.corpus.lengths("target") + 1  # with </s>

    @cached_property
    def _sentences(self) -> int:
        """Sentences of a batch of all processes, on average where tokens are counted."""
        if self.batch_sentences is not None:
            return self.batch_sentences * self.world
        return max(1, int(self._tokens / (self._source.mean() + self._target.mean())))

    @property
    def _tokens(self) -> int:
        """Padded tokens of a batch of all processes."""
        assert self.batch_tokens is not None
        return self.batch_tokens * self.world

    def _bounds(self, order: np.ndarray, pools: list[int]) -> list[int]:
        """Where batches begin in an order sorted within pools, and its end."""
        if self.batch_sentences is not None:
            return [*range(0, len(order), self._sentences), len(order)]
        limit = self._tokens
        source, target = self._source[order], self._target[order]
        bounds = [0]
        for start, end in pairwise(pools):
            while start < end:
                # No later source of the pool is shorter, which bounds how many sentences can fit.
                stop = min(end, start + max(1, limit // int(source[start] + 1)))
                widths = source[start:stop] + np.maximum.accumulate(target[start:stop])
                padded = widths * np.arange(1, stop - start + 1)
                start += max(1, int(np.searchsorted(padded, limit, side="right")))
                bounds.append(start)
        return bounds
