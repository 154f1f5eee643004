"""A run directory: everything that was trained, how, and what came of it."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from latentalign import storage
from latentalign.errors import CheckpointError, InputError, StorageError
from latentalign.training import checkpoint

ENDING = 15.0
"""Seconds that a training may take to end after SIGTERM."""
_SEAL = b"# sha256 of what follows: "


@dataclass(frozen=True)
class Run:
    """Names of the files of a run, and how they are written: each at once or not at all."""

    folder: Path

    @property
    def config(self) -> Path:
        return self.folder / "config.toml"

    @property
    def tokenizer(self) -> Path:
        return self.folder / "tokenizer.json"

    @property
    def model(self) -> Path:
        return self.folder / "model.safetensors"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def metrics(self) -> Path:
        return self.folder / "metrics.jsonl"

    @property
    def card(self) -> Path:
        return self.folder / "card.json"

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    @property
    def warm_start(self) -> Path:
        """Where a training on an easier objective, made first, has its own run."""
        return self.folder / "warm-start"

    @property
    def warm_start_seconds(self) -> float:
        """How long that one trained; 0 where there was none."""
        history = Run(self.warm_start).history()
        return float(history[-1].get("seconds", 0.0)) if history else 0.0

    def validations(self) -> list[dict[str, Any]]:
        """Every validation, its `seconds` counted from the beginning of the warm start."""
        before = self.warm_start_seconds
        return [{**r, "seconds": r["seconds"] + before} for r in self.history() if r["kind"] == "validation"]

    def begin(self, *, resume: bool, overwrite: bool) -> bool:
        """Make the directory; True when there is a checkpoint to go on from. Never overwrites unasked."""
        if resume and overwrite:
            raise InputError("--resume and --overwrite exclude each other")
        if self.folder.is_dir() and any(self.folder.iterdir()) and not (resume or overwrite):
            raise InputError(
                f"{self.folder} is not empty; add --resume to go on, or --overwrite to begin anew"
            )
        if overwrite and self.folder.is_dir():
            self.clear()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{self.folder}: cannot be made: {error.strerror or error}") from error
        if self.config.is_file():
            self.check_config()
        going_on = resume and checkpoint.exists(self.checkpoint)
        if not going_on:
            self.metrics.unlink(missing_ok=True)  # of a training that never came to a checkpoint
        return going_on

    @contextmanager
    def alone(self, resume: bool) -> Iterator[None]:
        """Hold the directory against every other training; to resume one that is just ending, wait for it.

        The lock is the kernel's and ends with the process however it ends; nothing is written.
        """
        try:
            import fcntl
        except ImportError:  # a system without such locks
            yield
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            until = time.monotonic() + (ENDING if resume else 0)
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        raise InputError(f"{self.folder}: another process is training here") from None
                    time.sleep(0.2)
                except OSError:  # a file system without locks
                    break
            yield
        finally:
            os.close(handle)

    def clear(self) -> None:
        """Remove the files of an earlier run, and nothing else."""
        for path in (self.config, self.tokenizer, self.model, self.metrics, self.card):
            path.unlink(missing_ok=True)
        Path(f"{self.model}.sha256").unlink(missing_ok=True)
        made = [self.folder / name for name in ("diagnose", "tensorboard")]
        for folder in (self.checkpoint, self.cache, self.warm_start, *made):
            shutil.rmtree(folder, ignore_errors=True)

    def require(self) -> None:
        """Raise unless this is a finished or interrupted run with a model."""
        if not self.folder.is_dir():
            raise CheckpointError(f"{self.folder}: no such run directory")
        for path in (self.config, self.model):
            if not path.is_file():
                raise CheckpointError(f"{path}: the file is missing; train it first, or train --resume")
        self.check_config()

    def write_config(self, text: str) -> None:
        """config.toml, under a line with the checksum of all that follows."""
        body = b"\n" + text.encode()
        storage.write_bytes(self.config, _SEAL + _sha256(body) + b"\n" + body)

    def check_config(self) -> None:
        """Raise when config.toml is not as it was written; where it has no checksum, it was written by hand."""
        try:
            first, _, body = self.config.read_bytes().partition(b"\n")
        except OSError as error:
            raise CheckpointError(f"{self.config}: cannot be read ({error.strerror})") from error
        if first.startswith(_SEAL) and first != _SEAL + _sha256(body):
            raise CheckpointError(
                f"{self.config}: checksum mismatch; restore it, or delete its first line if you meant to change it"
            )

    def save_model(self, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
        storage.write_tensors(self.model, tensors, metadata)

    def load_model(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        return storage.read_tensors(self.model)

    def log(self, record: dict[str, Any]) -> None:
        """Append a line to metrics.jsonl."""
        line = (json.dumps(record) + "\n").encode()
        with storage.explain_write_errors(self.folder, len(line)), open(self.metrics, "ab") as file:
            file.write(line)

    def history(self) -> list[dict[str, Any]]:
        """All lines of metrics.jsonl that are whole: they say what they are and of which step."""
        if not self.metrics.is_file():
            return []
        records = []
        for line in self.metrics.read_bytes().split(b"\n"):
            try:
                records.append(json.loads(line))
            except (ValueError, RecursionError):
                continue
        return [r for r in records if isinstance(r, dict) and is_record(r)]

    def rewind(self, step: int, *, validated: bool = True) -> None:
        """Forget metrics beyond a checkpoint, which may be of before or after the validation at its step."""
        kept = [r for r in self.history() if r["step"] <= step]
        if not validated:
            kept = [r for r in kept if r["step"] < step or r["kind"] != "validation"]
        text = "".join(json.dumps(r) + "\n" for r in kept)
        storage.write_bytes(self.metrics, text.encode())

    def write_card(self, card: dict[str, Any]) -> None:
        """card.json: what a reader must know to trust or repeat the run."""
        names = ("latentalign", "torch", "tokenizers", "sacrebleu")
        versions = {name: version(name) for name in names if find_spec(name)}
        system = {"python": platform.python_version(), "machine": platform.machine()}
        threads = {"threads": torch.get_num_threads()}
        storage.write_json(self.card, {**card, "versions": versions, "system": {**system, **threads}})


def is_record(line: dict[str, Any]) -> bool:
    """Whether a line of metrics.jsonl has what every one has."""
    return isinstance(line.get("kind"), str) and isinstance(line.get("step"), int)


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()
