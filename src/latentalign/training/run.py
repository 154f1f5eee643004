"""A run directory: the model, how it was trained, and its metrics."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
from latentalign.memory import explain_memory
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
        times = [r["seconds"] for r in Run(self.warm_start).history() if is_number(r.get("seconds"))]
        return float(times[-1]) if times else 0.0

    def validations(self) -> list[dict[str, Any]]:
        """All complete validations, those of the warm start first; `seconds` count from its start."""
        before, warm = self.warm_start_seconds, Run(self.warm_start)
        own = [{**r, "seconds": r["seconds"] + before} for r in complete_validations(self.history())]
        return [*({**r, "phase": "warm start"} for r in complete_validations(warm.history())), *own]

    def check_free(self, *, resume: bool, overwrite: bool) -> None:
        """Raise if the directory cannot be made or is in use. Nothing changes."""
        if resume and overwrite:
            raise InputError("--resume and --overwrite exclude each other")
        storage.require_folder_place(self.folder)
        if self.folder.is_dir() and any(self.folder.iterdir()) and not (resume or overwrite):
            with lock_folder(self.folder, 0.0):  # a run that is going on is a better reason
                pass
            raise InputError(
                f"{self.folder} is not empty; add --resume to continue, or --overwrite to start again"
                if self.config.is_file()
                else f"{self.folder} is not empty and holds no run to --resume; choose another folder, "
                "or add --overwrite, which keeps files that are not of a run"
            )

    def open(self, *, resume: bool, overwrite: bool) -> None:
        """Make the directory. Never overwrites a run unless asked to."""
        self.check_free(resume=resume, overwrite=overwrite)
        if overwrite and self.folder.is_dir():
            self.set_aside()
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

        The lock belongs to the kernel and ends with the process, however that ends. Nothing is written. A directory
        that is made for the lock and still empty at the end is removed.
        """
        made = [path for path in (self.folder, *self.folder.absolute().parents) if not path.exists()]
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with lock_folder(self.folder, LOCK_PATIENCE if wait else 0.0):
                yield
        finally:
            with suppress(OSError):  # not empty
                for path in made:
                    path.rmdir()

    @contextmanager
    def undo_if_refused(self) -> Iterator[None]:
        """If a run is refused before its first checkpoint, remove its files and put back what it replaced.

        A model that does not fit into memory counts as refused.
        """
        before = set(os.listdir(self.folder))
        try:
            yield
        except (InputError, MemoryError, RuntimeError) as error:
            refused = isinstance(error, InputError) or explain_memory(error) is not None
            if refused and not any(
                checkpoint.exists(Run(f).checkpoint) for f in (self.folder, self.warm_start)
            ):
                replaced = set(os.listdir(self.replaced)) if self.replaced.is_dir() else set()
                for name in set(os.listdir(self.folder)) - (before - replaced) - {self.replaced.name}:
                    remove(self.folder / name)
                for name in replaced:
                    os.replace(self.replaced / name, self.folder / name)
                remove(self.replaced)
            raise

    @property
    def own_files(self) -> list[Path]:
        """Everything that a training run and the commands about it write into the directory."""
        files = [self.config, self.tokenizer, self.model, self.metrics, self.card]
        made = [self.folder / name for name in ("diagnose", "evaluation", "tensorboard")]
        return [*files, Path(f"{self.model}.sha256"), self.checkpoint, self.cache, self.warm_start, *made]

    @property
    def replaced(self) -> Path:
        """Where `--overwrite` keeps the files of the earlier run until the new one starts."""
        return self.folder / ".replaced"

    def set_aside(self) -> None:
        """Move the files of an earlier run, and nothing else, to where they can be put back."""
        remove(self.replaced)
        for path in self.own_files:
            if path.exists():
                self.replaced.mkdir(exist_ok=True)
                os.replace(path, self.replaced / path.name)

    def forget_replaced(self) -> None:
        """Remove the files of an earlier run that this one replaces."""
        remove(self.replaced)

    def read_recipe(self) -> Recipe:
        """The recipe of a run with a model, finished or interrupted; every defect is a CheckpointError."""
        if not self.folder.is_dir():
            what = "a file, not a run directory" if self.folder.exists() else "no such run directory"
            raise CheckpointError(f"{self.folder}: {what}; `latentalign train` makes one with --out")
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

    def read_card(self) -> dict[str, Any]:
        """The content of card.json; empty if it is missing or damaged, because it is for people to read."""
        try:
            card = json.loads(self.card.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return card if isinstance(card, dict) else {}

    def write_card(self, card: dict[str, Any]) -> None:
        """Write card.json: what a reader must know to trust or repeat the run."""
        names = ("latentalign", "torch", "tokenizers", "sacrebleu")
        versions = {name: version(name) for name in names if find_spec(name)}
        system = {"python": platform.python_version(), "machine": platform.machine()}
        threads = {"threads": torch.get_num_threads()}
        storage.write_json(self.card, {**card, "versions": versions, "system": {**system, **threads}})


@contextmanager
def lock_folder(folder: Path, patience: float) -> Iterator[None]:
    """Hold the kernel's lock of a folder; an InputError if another process holds it for longer than `patience`."""
    try:
        import fcntl
    except ImportError:  # a system without such locks
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        until = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise InputError(f"{folder}: another process is training here") from None
                time.sleep(0.2)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        os.close(handle)


def remove(path: Path) -> None:
    """Remove a file or a folder, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def is_record(line: dict[str, Any]) -> bool:
    """Whether a line of metrics.jsonl has the keys that every line has."""
    return isinstance(line.get("kind"), str) and isinstance(line.get("step"), int)


def is_number(value: object) -> bool:
    """Whether a value of metrics.jsonl or a recipe is a number; true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def complete_validations(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The validations that have all figures of a training curve."""
    keys = ("seconds", "bound", "ppl")
    return [r for r in history if r["kind"] == "validation" and all(is_number(r.get(key)) for key in keys)]


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()
