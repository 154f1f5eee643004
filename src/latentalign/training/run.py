"""A run directory: everything that was trained, how, and what came of it."""

from __future__ import annotations

import json
import platform
import shutil
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from latentalign.errors import CheckpointError, InputError, StorageError
from latentalign.training import checkpoint


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
        return resume and checkpoint.exists(self.checkpoint)

    def clear(self) -> None:
        """Remove the files of an earlier run, and nothing else."""
        for path in (self.config, self.tokenizer, self.model, self.metrics, self.card):
            path.unlink(missing_ok=True)
        Path(f"{self.model}.sha256").unlink(missing_ok=True)
        for folder in (self.checkpoint, self.cache):
            shutil.rmtree(folder, ignore_errors=True)

    def require(self) -> None:
        """Raise unless this is a finished or interrupted run with a model."""
        if not self.folder.is_dir():
            raise CheckpointError(f"{self.folder}: no such run directory")
        for path in (self.config, self.model):
            if not path.is_file():
                raise CheckpointError(
                    f"{self.folder}: {path.name} is missing; train it first, or train --resume"
                )

    def save_model(self, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
        checkpoint.write_checked_tensors(self.model, tensors, metadata)

    def load_model(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        return checkpoint.read_checked_tensors(self.model)

    def log(self, record: dict[str, Any]) -> None:
        """Append a line to metrics.jsonl."""
        try:
            with open(self.metrics, "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:
            raise StorageError(f"{self.metrics}: cannot be written: {error.strerror or error}") from error

    def history(self) -> list[dict[str, Any]]:
        """All lines of metrics.jsonl that are whole."""
        if not self.metrics.is_file():
            return []
        records = []
        for line in self.metrics.read_bytes().split(b"\n"):
            try:
                records.append(json.loads(line))
            except ValueError:
                continue
        return [r for r in records if isinstance(r, dict)]

    def rewind(self, step: int) -> None:
        """Forget metrics beyond a step, after going back to its checkpoint."""
        kept = [r for r in self.history() if r.get("step", 0) <= step]
        text = "".join(json.dumps(r) + "\n" for r in kept)
        checkpoint.write_bytes_atomic(self.metrics, text.encode())

    def write_card(self, card: dict[str, Any]) -> None:
        """card.json: what a reader must know to trust or repeat the run."""
        versions = {name: version(name) for name in ("latentalign", "torch", "tokenizers", "sacrebleu")}
        system = {"python": platform.python_version(), "machine": platform.machine()}
        threads = {"threads": torch.get_num_threads()}
        checkpoint.write_json_atomic(
            self.card, {**card, "versions": versions, "system": {**system, **threads}}
        )
