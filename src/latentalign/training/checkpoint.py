"""Checkpoints: never half-written, every byte verified before it is used, nothing pickled.

A checkpoint is a folder of numbered saves and a pointer to the current one:

    checkpoint/current.json                names save-00000017 and the sha256 of its manifest
    checkpoint/save-00000017/manifest.json format, version, size and sha256 of each file
    checkpoint/save-00000017/*.safetensors, *.json

A save is complete on disk before the pointer is replaced, and the older save is deleted after that. A process
that is killed at any instant leaves the older or the newer checkpoint. Only one process may save at a time.
"""

import os
import random
import re
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from latentalign import storage
from latentalign.errors import CheckpointError
from latentalign.storage import (
    RECOVERY,
    decode_tensors,
    encode_tensors,
    explain_write_errors,
    format_json,
    parse_saved_json,
    read_saved,
    sha256,
)

VERSION = 1
READABLE_VERSIONS = (1,)

_FORMAT = "latentalign-checkpoint"
_POINTER = "current.json"
_MANIFEST = "manifest.json"
_SAVE = re.compile(r"save-(\d{8})")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\.(safetensors|json)")
_SEAL_END = b'"\n}\n'
T = TypeVar("T")


@dataclass(frozen=True)
class Loaded:
    """The content of a checkpoint: named tensors and documents, by the stem of their files."""

    tensors: dict[str, dict[str, Tensor]]
    documents: dict[str, Any]
    version: int


def exists(folder: Path) -> bool:
    """Whether a save was ever completed in `folder`. It may still be damaged."""
    # The first save exists before the pointer does. If there is a later save, a pointer has been lost.
    return (folder / _POINTER).exists() or _last_number(folder) > 1


def save(
    folder: Path,
    *,
    tensors: Mapping[str, Mapping[str, Tensor]],
    documents: Mapping[str, Any],
    version: int = VERSION,
) -> None:
    """Replace the checkpoint in `folder`. Whatever interrupts this, the old or the new one can be loaded."""
    texts = {f"{stem}.json": format_json(document).encode() for stem, document in documents.items()}
    arrays = {f"{stem}.safetensors": named for stem, named in tensors.items()}
    for name in (*texts, *arrays):
        if not _FILE.fullmatch(name) or name == _MANIFEST:
            raise ValueError(f"{name!r} is not a valid name of a file in a checkpoint")
    payload = sum(map(len, texts.values())) + sum(
        t.nbytes for named in arrays.values() for t in named.values()
    )
    with explain_write_errors(
        folder, payload + 2**14 * (len(texts) + len(arrays) + 2)
    ):  # headers and whole blocks
        folder.mkdir(parents=True, exist_ok=True)
        current = _current_save(folder)
        if current is not None or not exists(folder):
            _remove_all_but(folder, current or "")
        name = f"save-{1 + _last_number(folder):08d}"
        try:
            _write_save(folder, name, texts, arrays=arrays, version=version)
        except BaseException:
            if _current_save(folder) != name:
                shutil.rmtree(folder / name, ignore_errors=True)
            shutil.rmtree(folder / f".{name}.tmp", ignore_errors=True)
            raise
        _remove_all_but(folder, name)


def load(folder: Path, *, versions: Collection[int] = READABLE_VERSIONS) -> Loaded:
    """The current checkpoint in `folder`. Every byte is verified first."""
    if not exists(folder):
        raise CheckpointError(
            f"{folder}: there is no checkpoint; train without --resume, or name another run"
        )
    path = folder / _POINTER
    pointer = _unseal(path, read_saved(path))
    name, digest = _field(pointer, "save", str, path=path), _field(pointer, "manifest_sha256", str, path=path)
    if not _SAVE.fullmatch(name):
        raise CheckpointError(f"{path}: {name!r} is not a save of a checkpoint; {RECOVERY}")
    inside = folder / name
    path = inside / _MANIFEST
    raw = read_saved(path)
    _verify(path, raw, digest)
    manifest = _unseal(path, raw)
    version = _field(manifest, "version", int, path=path)
    if manifest.get("format") != _FORMAT or version not in versions:
        raise CheckpointError(
            f"{path}: format {manifest.get('format')!r}, version {version}; this program reads {_FORMAT!r}, "
            f"version {', '.join(map(str, sorted(versions)))}: use the release that wrote it"
        )
    contents = _read_listed(path, _field(manifest, "files", dict, path=path))
    tensors, documents = {}, {}
    for name in sorted(contents):
        data = contents.pop(name)  # never keep all bytes and all tensors in memory at once
        if name.endswith(".json"):
            documents[name.removesuffix(".json")] = parse_saved_json(inside / name, data)
        else:
            tensors[name.removesuffix(".safetensors")] = decode_tensors(inside / name, data)
    return Loaded(tensors, documents, version)


def _write_save(
    folder: Path,
    name: str,
    texts: Mapping[str, bytes],
    *,
    arrays: Mapping[str, Mapping[str, Tensor]],
    version: int,
) -> None:
    """Write a new save to the disk, then the pointer to it."""
    temporary = folder / f".{name}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    files = {}
    for file in (*texts, *arrays):
        data = texts[file] if file in texts else encode_tensors(arrays[file], {})
        storage.write_durably(temporary / file, data)
        files[file] = {"size": len(data), "sha256": sha256(data)}
    manifest = _seal({"format": _FORMAT, "version": version, "files": files})
    storage.write_durably(temporary / _MANIFEST, manifest)
    storage.sync_folder(temporary)
    os.replace(temporary, folder / name)
    storage.sync_folder(folder)
    storage.replace_file(folder / _POINTER, _seal({"save": name, "manifest_sha256": sha256(manifest)}))


def _current_save(folder: Path) -> str | None:
    """The save that the pointer names; None if there is no pointer or it is damaged."""
    try:
        name = _unseal(folder / _POINTER, read_saved(folder / _POINTER)).get("save")
    except CheckpointError:
        return None
    return name if isinstance(name, str) else None


def _last_number(folder: Path) -> int:
    """The highest number of a save in a folder, 0 if there is none."""
    names = os.listdir(folder) if folder.is_dir() else []
    return max((int(found[1]) for found in map(_SAVE.fullmatch, names) if found), default=0)


def _remove_all_but(folder: Path, name: str) -> None:
    """Delete older saves and the remains of interrupted ones. Files that cannot be deleted stay."""
    for entry in os.listdir(folder):
        if entry != name and _SAVE.fullmatch(entry.removeprefix(".").removesuffix(".tmp")):
            shutil.rmtree(folder / entry, ignore_errors=True)


def _read_listed(manifest: Path, files: dict[str, Any]) -> dict[str, bytes]:
    """The verified bytes of every file that the manifest lists."""
    contents = {}
    for name, facts in files.items():
        if not _FILE.fullmatch(name) or name == _MANIFEST or not isinstance(facts, dict):
            raise CheckpointError(f"{manifest}: {name!r} is not a file of a checkpoint; {RECOVERY}")
        path, size = manifest.with_name(name), _field(facts, "size", int, path=manifest)
        contents[name] = read_saved(path)
        _verify(path, contents[name], _field(facts, "sha256", str, path=manifest), size=size)
    return contents


# --- sealed JSON and verified bytes ---------------------------------------------------------------------


def _seal(document: dict[str, Any]) -> bytes:
    """JSON whose last key is the SHA-256 of every byte before it."""
    head = format_json(document)[:-3].encode() + b',\n "sha256": "'
    return head + sha256(head).encode() + _SEAL_END


def _unseal(path: Path, raw: bytes) -> dict[str, Any]:
    """The document in sealed JSON that was read from `path`."""
    end = max(len(raw) - len(_SEAL_END), 0)
    start = max(end - 64, 0)
    if raw[end:] != _SEAL_END or sha256(raw[:start]).encode() != raw[start:end]:
        raise CheckpointError(f"{path}: checksum mismatch; {RECOVERY}")
    document = parse_saved_json(path, raw)
    if not isinstance(document, dict):
        raise CheckpointError(f"{path}: not a JSON object; {RECOVERY}")
    return document


def _field(document: dict[str, Any], key: str, kind: type[T], *, path: Path) -> T:
    """The value of a key, which must have exactly this type."""
    value = document.get(key)
    if type(value) is not kind:
        raise CheckpointError(f"{path}: key {key!r} is not of type {kind.__name__}; {RECOVERY}")
    return value


def _verify(path: Path, data: bytes, digest: str, *, size: int | None = None) -> None:
    """Raise unless the bytes that were read from `path` have this digest and size."""
    if size is not None and len(data) != size:
        raise CheckpointError(f"{path}: checksum mismatch ({len(data)} bytes, expected {size}); {RECOVERY}")
    if sha256(data) != digest:
        raise CheckpointError(f"{path}: checksum mismatch; {RECOVERY}")


# --- random numbers -------------------------------------------------------------------------------------


def seed(number: int) -> None:
    """Seed the global random generators of Python, NumPy and PyTorch."""
    random.seed(number)
    np.random.seed(number % 2**32)
    torch.manual_seed(number)


def random_state() -> dict[str, Tensor]:
    """The states of Python's, NumPy's and PyTorch's global generators, as tensors for a checkpoint."""
    _, words, gauss = random.getstate()
    _, keys, position, has_gauss, cached = np.random.get_state()
    state = {
        "python": torch.tensor(words),
        "python.gauss": torch.tensor([] if gauss is None else [gauss], dtype=torch.float64),
        "numpy": torch.tensor([*map(int, keys), position, has_gauss]),
        "numpy.gauss": torch.tensor(cached, dtype=torch.float64),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_initialized():
        state |= {f"cuda.{i}": value for i, value in enumerate(torch.cuda.get_rng_state_all())}
    return state


def restore_random_state(state: Mapping[str, Tensor]) -> None:
    """Restore what `random_state` returned. States of CUDA devices that this machine lacks are ignored."""
    try:
        gauss = state["python.gauss"].tolist()
        random.setstate((3, tuple(state["python"].tolist()), gauss[0] if gauss else None))
        *keys, position, has_gauss = state["numpy"].tolist()
        cached = state["numpy.gauss"].item()
        np.random.set_state(("MT19937", np.array(keys, dtype=np.uint32), position, has_gauss, cached))
        torch.set_rng_state(state["torch"])
        for i in range(torch.cuda.device_count()):
            if f"cuda.{i}" in state:
                torch.cuda.set_rng_state(state[f"cuda.{i}"], i)
    except (LookupError, ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise CheckpointError(
            f"the random states of this checkpoint are unusable ({error}); {RECOVERY}"
        ) from error
