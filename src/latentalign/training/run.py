"""A run directory: the model, how it was trained, and its metrics."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from latentalign import storage
from latentalign.config import Recipe
from latentalign.errors import CheckpointError, InputError, StorageError
from latentalign.textfiles import decode_lines
from latentalign.training import checkpoint

LOCK_PATIENCE = 15.0
"""Seconds that another process may take to end after SIGTERM before `--resume` gives up."""
_SEAL = b"# sha256 of what follows: "


class Run:
    """The files of a run; each is written completely or not at all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "config.toml"
        self.tokenizer = folder / "tokenizer.json"
        self.model = folder / "model.safetensors"
        self.checkpoint = folder / "checkpoint"
        self.metrics = folder / "metrics.jsonl"
        self.card = folder / "card.json"
        self.cache = folder / "cache"
        self.evaluation = folder / "evaluation"
        """Results of `latentalign evaluate`, one file for each split."""
        self.warm_start = folder / "warm-start"
        """The run directory of the training on an easier objective that came first."""

    @property
    def warm_start_seconds(self) -> float:
        """How long the warm start took; 0 without one."""
        history = Run(self.warm_start).history()
        return float(history[-1].get("seconds", 0.0)) if history else 0.0

    def validations(self) -> list[dict[str, Any]]:
        """All validations, with `seconds` counted from the start of the warm start."""
        before = self.warm_start_seconds
        return [{**r, "seconds": r["seconds"] + before} for r in self.history() if r["kind"] == "validation"]

    def open(self, *, resume: bool, overwrite: bool) -> None:
        """Make the directory. Never overwrites a run unless asked to."""
        if resume and overwrite:
            raise InputError("--resume and --overwrite exclude each other")
        if self.folder.is_dir() and any(self.folder.iterdir()) and not (resume or overwrite):
            raise InputError(
                f"{self.folder} is not empty; add --resume to continue, or --overwrite to start again"
            )
        if overwrite and self.folder.is_dir():
            self.clear()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{self.folder}: cannot be made: {error.strerror or error}") from error
        if self.config.is_file():
            self.read_config()
        if not (resume and checkpoint.exists(self.checkpoint)):
            self.metrics.unlink(missing_ok=True)  # of a training run that never reached a checkpoint

    @contextmanager
    def lock(self, *, wait: bool) -> Iterator[None]:
        """Keep other training processes out of the directory; `wait` gives one that is about to end time to do so.

        The lock belongs to the kernel and ends with the process, however that ends. Nothing is written.
        """
        try:
            import fcntl
        except ImportError:  # a system without such locks
            yield
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            until = time.monotonic() + (LOCK_PATIENCE if wait else 0)
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
        """Remove the files of an earlier run and nothing else."""
        for path in (self.config, self.tokenizer, self.model, self.metrics, self.card):
            path.unlink(missing_ok=True)
        Path(f"{self.model}.sha256").unlink(missing_ok=True)
        made = [self.folder / name for name in ("diagnose", "evaluation", "tensorboard")]
        for folder in (self.checkpoint, self.cache, self.warm_start, *made):
            shutil.rmtree(folder, ignore_errors=True)

    def read_recipe(self) -> Recipe:
        """The recipe of a run with a model, finished or interrupted; every defect is a CheckpointError."""
        if not self.folder.is_dir():
            raise CheckpointError(f"{self.folder}: no such run directory")
        for path in (self.config, self.model):
            if not path.is_file():
                raise CheckpointError(f"{path}: the file is missing; train it first, or train --resume")
        content = BytesIO(self.read_config())
        try:
            text = "\n".join(decode_lines(content, self.config))
            return Recipe.parse(text, str(self.config), self.folder.absolute())
        except InputError as error:
            raise CheckpointError(f"{self.config}: {error}") from None

    def write_config(self, text: str) -> None:
        """Write config.toml, under a line with the checksum of everything that follows."""
        body = b"\n" + text.encode()
        storage.write_bytes(self.config, _SEAL + _sha256(body) + b"\n" + body)

    def read_config(self) -> bytes:
        """The bytes of config.toml, unchanged since it was written. Without a checksum, it was written by hand."""
        try:
            content = self.config.read_bytes()
        except OSError as error:
            raise CheckpointError(f"{self.config}: cannot be read ({error.strerror})") from error
        first, _, body = content.partition(b"\n")
        if first.startswith(_SEAL) and first != _SEAL + _sha256(body):
            raise CheckpointError(
                f"{self.config}: checksum mismatch; restore it, or delete its first line if you meant to change it"
            )
        return content

    def save_model(self, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
        """Write the best model."""
        storage.write_tensors(self.model, tensors, metadata)

    def load_model(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        """The tensors and the metadata of the best model."""
        return storage.read_tensors(self.model)

    def log(self, record: dict[str, Any]) -> None:
        """Append a line to metrics.jsonl."""
        line = (json.dumps(record) + "\n").encode()
        with storage.explain_write_errors(self.folder, len(line)), open(self.metrics, "ab") as file:
            file.write(line)

    def history(self) -> list[dict[str, Any]]:
        """All complete lines of metrics.jsonl: those with a kind and a step."""
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
        """Remove metrics beyond a checkpoint, which was written before or after the validation at its step."""
        kept = [r for r in self.history() if r["step"] <= step]
        if not validated:
            kept = [r for r in kept if r["step"] < step or r["kind"] != "validation"]
        text = "".join(json.dumps(r) + "\n" for r in kept)
        storage.write_bytes(self.metrics, text.encode())

    def write_card(self, card: dict[str, Any]) -> None:
        """Write card.json: what a reader must know to trust or repeat the run."""
        names = ("latentalign", "torch", "tokenizers", "sacrebleu")
        versions = {name: version(name) for name in names if find_spec(name)}
        system = {"python": platform.python_version(), "machine": platform.machine()}
        threads = {"threads": torch.get_num_threads()}
        storage.write_json(self.card, {**card, "versions": versions, "system": {**system, **threads}})


def is_record(line: dict[str, Any]) -> bool:
    """Whether a line of metrics.jsonl has the keys that every line has."""
    return isinstance(line.get("kind"), str) and isinstance(line.get("step"), int)


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()
