"""Parallel text as batches of ids: encoded once into memory-mapped files, then batched by length."""

import errno
import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, fields
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentalign.core.devices import send
from latentalign.errors import InputError, StorageError
from latentalign.storage import explain_read_errors, fingerprint, write_text
from latentalign.tasks.nmt.encoding import ARRAYS, write_ids
from latentalign.tasks.nmt.splits import SplitConfig
from latentalign.tasks.nmt.tokenizer import EOS, PAD, Tokenizer
from latentalign.tasks.padding import pad_rows
from latentalign.tasks.splits import Side

HEADER = "corpus.json"
SETTLED = 2_000_000_000
"""Nanoseconds after which a file that is written again certainly gets another time."""


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
    processes: int | None = None,
    expected: Mapping[str, str] | None = None,
) -> Corpus:
    """The pairs of a split, encoded into `folder` unless the same were encoded there before.

    With a `max_length`, for training, pairs that are longer or blank are dropped and counted, and an
    InputError is raised when they are more than the share `max_dropped`. Without one, for evaluation, every
    pair is kept, and a blank side is an InputError. `processes` share a large corpus; None is one for each core.
    Text with other fingerprints than `expected` is refused.
    """
    folder = Path(folder)
    known = KnownFiles(_read_header(folder))
    fingerprints = {name: known.fingerprint(path) for name, path in split.files.items()}
    _refuse_changed_text(split, fingerprints, expected or {})
    identity = {
        "version": 1,
        **fingerprints,
        "tokenizer": tokenizer.fingerprint(),
        "max_length": max_length,
    }
    try:
        header = _find_complete(folder, identity, known)
        if header is None:
            header = _build(tokenizer, split, folder, identity=identity, known=known, processes=processes)
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


class KnownFiles:
    """Fingerprints of files that a header remembers. A file is read again only if its size or time has changed."""

    def __init__(self, header: Mapping[str, Any]) -> None:
        stamps = header.get("stamps")
        self.before: dict[str, Any] = stamps if isinstance(stamps, dict) else {}
        self.stamps: dict[str, dict[str, Any]] = {}

    def fingerprint(self, path: Path, name: str | None = None) -> str:
        """SHA-256 of a file, which is remembered under its path or under a shorter name."""
        name = name or str(path.absolute())
        with explain_read_errors(path):
            facts = path.stat()
        stamp = {"size": facts.st_size, "mtime_ns": facts.st_mtime_ns}
        old = self.before.get(name)
        if isinstance(old, dict) and isinstance(old.get("sha256"), str) and {**old, **stamp} == old:
            self.stamps[name] = old
            return str(old["sha256"])
        found = fingerprint(path)
        # A file that was written just now may change again without another time.
        if facts.st_mtime_ns < time.time_ns() - SETTLED:
            self.stamps[name] = {**stamp, "sha256": found}
        return found

    @property
    def changed(self) -> bool:
        """Whether there is something new to remember."""
        return self.stamps != {name: self.before.get(name) for name in self.stamps}


def _read_header(folder: Path) -> dict[str, Any]:
    """The header of a cache; empty if there is none that can be read."""
    try:
        header = json.loads((folder / HEADER).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return header if isinstance(header, dict) else {}


def _refuse_changed_text(
    split: SplitConfig, fingerprints: Mapping[str, str], expected: Mapping[str, str]
) -> None:
    """An InputError if the text of a run is not the one that it was started with."""
    for name, path in split.files.items():
        if name in expected and expected[name] != fingerprints[name]:
            raise InputError(
                f"{path}: has changed since this run was started (sha256 is {fingerprints[name]}, was "
                f"{expected[name]}); restore the file, or start again with --overwrite"
            )


def _find_complete(folder: Path, identity: dict[str, Any], known: KnownFiles) -> dict[str, Any] | None:
    """What a folder holds; None if it is not a complete cache of just this."""
    header = _read_header(folder)
    try:
        sizes = {name: (folder / name).stat().st_size for name in ARRAYS}
        complete = header["identity"] == identity and header["bytes"] == sizes
        if not complete or header["sha256"] != _sums(folder, known):
            return None
        header["dropped"]["blank"]
    except (OSError, LookupError, TypeError):
        return None
    if known.changed:
        header["stamps"] = known.stamps
        with suppress(OSError):  # a run that can only be read is checked again next time
            write_text(folder / HEADER, json.dumps(header, indent=1))
    return header


def _sums(folder: Path, known: KnownFiles) -> dict[str, str]:
    """SHA-256 of each array: a cache is read as it was written, or made anew."""
    return {name: known.fingerprint(folder / name, name) for name in ARRAYS}


def _too_full(folder: Path, split: SplitConfig) -> str:
    """What to say when a disk has no room for the ids, which take about as much of it as the text."""
    need = sum(path.stat().st_size for path in split.files.values()) + 2**14 * len(ARRAYS)
    have = shutil.disk_usage(folder).free
    sizes = f"need {need / 1e6:.2f} MB, have {have / 1e6:.2f} MB"
    return f"{sizes} in {folder}: free some space or write elsewhere"


def _build(
    tokenizer: Tokenizer,
    split: SplitConfig,
    folder: Path,
    *,
    identity: dict[str, Any],
    known: KnownFiles,
    processes: int | None,
) -> dict[str, Any]:
    """Encode all pairs into files that take their names only when complete, the header last."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".building-") as name:
        building = Path(name)
        dropped = write_ids(
            tokenizer, split, building, max_length=identity["max_length"], processes=processes
        )
        for name in ARRAYS:  # dated back, so that any later change gives the file another time
            os.utime(building / name, ns=(time.time_ns() - 2 * SETTLED,) * 2)
        sizes = {name: (building / name).stat().st_size for name in ARRAYS}
        header = {"identity": identity, "dropped": dropped, "bytes": sizes, "sha256": _sums(building, known)}
        (building / HEADER).write_text(json.dumps({**header, "stamps": known.stamps}, indent=1), "utf-8")
        (folder / HEADER).unlink(missing_ok=True)
        for name in [*ARRAYS, HEADER]:
            os.replace(building / name, folder / name)
    return header


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
        moved: list[Any] = [send(value, device) if isinstance(value, Tensor) else value for value in values]
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
