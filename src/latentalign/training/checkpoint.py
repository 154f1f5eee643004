"""Tensors and JSON on disk: never half-written, every byte checked before it is read, nothing pickled.

A checkpoint is a folder of numbered saves and a pointer to the current one:

    checkpoint/current.json                names save-00000017 and the sha256 of its manifest
    checkpoint/save-00000017/manifest.json format, version, size and sha256 of each file
    checkpoint/save-00000017/*.safetensors, *.json

A save is complete on disk before the pointer is replaced, and the older save is deleted after that: a process
killed at any instant leaves the older or the newer checkpoint. One process at a time may save.
"""

import errno
import hashlib
import json
import os
import random
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from latentalign.errors import CheckpointError, StorageError

VERSION = 1
READABLE_VERSIONS = (1,)

_FORMAT = "latentalign-checkpoint"
_POINTER = "current.json"
_MANIFEST = "manifest.json"
_SAVE = re.compile(r"save-(\d{8})")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\.(safetensors|json)")
_SEAL_END = b'"\n}\n'
T = TypeVar("T")
_REMEDY = "restore it from a copy, or train again from the start"


@dataclass(frozen=True)
class Loaded:
    """What a checkpoint holds: named tensors and documents by the stem of their files."""

    tensors: dict[str, dict[str, Tensor]]
    documents: dict[str, Any]
    version: int


def exists(folder: Path) -> bool:
    """Whether a save was ever completed in `folder`; it may still be damaged."""
    # The first save may be there before the pointer is; with a later one, a pointer has been lost.
    return (folder / _POINTER).exists() or _last_number(folder) > 1


def save(
    folder: Path,
    *,
    tensors: Mapping[str, Mapping[str, Tensor]],
    documents: Mapping[str, Any],
    version: int = VERSION,
) -> None:
    """Replaces the checkpoint in `folder`; whatever interrupts this, the old or the new one can be loaded."""
    texts = {f"{stem}.json": _json(document).encode() for stem, document in documents.items()}
    arrays = {f"{stem}.safetensors": named for stem, named in tensors.items()}
    for name in (*texts, *arrays):
        if not _FILE.fullmatch(name) or name == _MANIFEST:
            raise ValueError(f"{name!r} cannot be the name of a file of a checkpoint")
    payload = sum(map(len, texts.values())) + sum(
        t.nbytes for named in arrays.values() for t in named.values()
    )
    with writing(folder, payload + 2**14 * (len(texts) + len(arrays) + 2)):  # headers and whole blocks
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
    """The current checkpoint in `folder`, all of whose bytes are those that were saved."""
    if not exists(folder):
        raise CheckpointError(f"{folder}: no checkpoint here; train without resuming, or name another run")
    path = folder / _POINTER
    pointer = _unseal(path, _read(path))
    name, digest = _field(pointer, "save", str, path=path), _field(pointer, "manifest_sha256", str, path=path)
    if not _SAVE.fullmatch(name):
        raise CheckpointError(f"{path}: {name!r} is no save of a checkpoint; {_REMEDY}")
    inside = folder / name
    path = inside / _MANIFEST
    raw = _read(path)
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
        data = contents.pop(name)  # so that bytes and tensors are not all in memory at once
        if name.endswith(".json"):
            documents[name.removesuffix(".json")] = _parse_json(inside / name, data)
        else:
            tensors[name.removesuffix(".safetensors")] = _parse_tensors(inside / name, data)
    return Loaded(tensors, documents, version)


def _write_save(
    folder: Path,
    name: str,
    texts: Mapping[str, bytes],
    *,
    arrays: Mapping[str, Mapping[str, Tensor]],
    version: int,
) -> None:
    """A new save on disk, and then the pointer to it."""
    temporary = folder / f".{name}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    files = {}
    for file in (*texts, *arrays):
        data = texts[file] if file in texts else _tensor_bytes(arrays[file], {})
        _write_through(temporary / file, data)
        files[file] = {"size": len(data), "sha256": _sha256(data)}
    manifest = _seal({"format": _FORMAT, "version": version, "files": files})
    _write_through(temporary / _MANIFEST, manifest)
    _sync_folder(temporary)
    os.replace(temporary, folder / name)
    _sync_folder(folder)
    _replace_file(folder / _POINTER, _seal({"save": name, "manifest_sha256": _sha256(manifest)}))


def _current_save(folder: Path) -> str | None:
    """The save that the pointer names; None where there is no pointer or it cannot be trusted."""
    try:
        name = _unseal(folder / _POINTER, _read(folder / _POINTER)).get("save")
    except CheckpointError:
        return None
    return name if isinstance(name, str) else None


def _last_number(folder: Path) -> int:
    """The highest number of a save in a folder, 0 where there is none."""
    names = os.listdir(folder) if folder.is_dir() else []
    return max((int(found[1]) for found in map(_SAVE.fullmatch, names) if found), default=0)


def _remove_all_but(folder: Path, name: str) -> None:
    """Deletes older saves and what an interrupted one left; a file that cannot be deleted is only left over."""
    for entry in os.listdir(folder):
        if entry != name and _SAVE.fullmatch(entry.removeprefix(".").removesuffix(".tmp")):
            shutil.rmtree(folder / entry, ignore_errors=True)


def _read_listed(manifest: Path, files: dict[str, Any]) -> dict[str, bytes]:
    """The bytes of every file that the manifest lists, all verified."""
    contents = {}
    for name, facts in files.items():
        if not _FILE.fullmatch(name) or name == _MANIFEST or not isinstance(facts, dict):
            raise CheckpointError(f"{manifest}: {name!r} is no file of a checkpoint; {_REMEDY}")
        path, size = manifest.with_name(name), _field(facts, "size", int, path=manifest)
        contents[name] = _read(path)
        _verify(path, contents[name], _field(facts, "sha256", str, path=manifest), size=size)
    return contents


# --- single files ---------------------------------------------------------------------------------------


def write_bytes_atomic(path: Path, data: bytes) -> None:
    """Replaces the file `path`: a reader, or a crash, sees all of the old content or all of the new."""
    with writing(path.parent, len(data)):
        _replace_file(path, data)


def write_json_atomic(path: Path, document: Any) -> None:
    """Replaces the file `path` by a JSON document that any reader accepts (NaN and infinity are refused)."""
    write_bytes_atomic(path, _json(document, allow_nan=False).encode())


def write_checked_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Replaces a safetensors file and `<path>.sha256` beside it, which `sha256sum -c` understands.

    Two files cannot be replaced at once: in between, the checksum file lists the old content and the new one.
    """
    data = _tensor_bytes(tensors, metadata)
    sums, line = _sums_path(path), f"{_sha256(data)}  {path.name}\n".encode()
    try:
        former = b"".join(f"{digest}  {path.name}\n".encode() for digest in _listed_sums(path))
    except CheckpointError:
        former = b""
    with writing(path.parent, len(data) + len(former) + len(line)):
        _replace_file(sums, former + line)
        _replace_file(path, data)
        if former:
            _replace_file(sums, line)


def read_checked_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a file that is, byte for byte, what `write_checked_tensors` wrote."""
    data = _read(path)
    if _sha256(data) not in _listed_sums(path):
        raise CheckpointError(f"{path}: checksum mismatch with {_sums_path(path)}; {_REMEDY}")
    return _parse_tensors(path, data), _header(data).get("__metadata__", {})


def _sums_path(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _listed_sums(path: Path) -> list[str]:
    sums = _sums_path(path)
    raw, line = _read(sums), rb"([0-9a-f]{64})  " + re.escape(path.name.encode()) + rb"\n"
    if not re.fullmatch(rb"(?:%b)+" % line, raw):
        raise CheckpointError(f"{sums}: checksum mismatch (not the sha256 of {path.name}); {_REMEDY}")
    return [digest.decode() for digest in re.findall(line, raw)]


def _replace_file(path: Path, data: bytes) -> None:
    temporary = path.with_name(
        f".{path.name}.tmp"
    )  # one fixed name: the next write removes what a crash left
    try:
        _write_through(temporary, data)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _write_through(path: Path, data: bytes) -> None:
    """Writes a file and waits until the disk has it."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Waits until the disk has the names in a folder."""
    if os.name == "nt":  # where a folder cannot be opened and renames are journalled
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def writing(folder: Path, need: int) -> Iterator[None]:
    """Turns what the system refuses while `need` bytes are written into a message that can be acted on."""
    place = next((parent for parent in (folder, *folder.absolute().parents) if parent.exists()), folder)
    try:
        if need > shutil.disk_usage(place).free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        yield
    except StorageError:
        raise
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(f"cannot write in {folder}: {error}") from error
        quota = " (the quota is used up)" if error.errno == errno.EDQUOT else ""
        raise StorageError(
            f"need {_size(need)}, have {_size(shutil.disk_usage(place).free)} in {folder}{quota}: "
            "free some space or write elsewhere"
        ) from error


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"


# --- bytes ----------------------------------------------------------------------------------------------


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _json(document: Any, *, allow_nan: bool = True) -> str:
    return json.dumps(document, indent=1, allow_nan=allow_nan) + "\n"


def _seal(document: dict[str, Any]) -> bytes:
    """JSON whose last key is the sha256 of every byte before that sum."""
    head = _json(document)[:-3].encode() + b',\n "sha256": "'
    return head + _sha256(head).encode() + _SEAL_END


def _unseal(path: Path, raw: bytes) -> dict[str, Any]:
    end = len(raw) - len(_SEAL_END)
    if (
        raw[max(end, 0) :] != _SEAL_END
        or _sha256(raw[: max(end - 64, 0)]).encode() != raw[max(end - 64, 0) : end]
    ):
        raise CheckpointError(f"{path}: checksum mismatch; {_REMEDY}")
    document = _parse_json(path, raw)
    if not isinstance(document, dict):
        raise CheckpointError(f"{path}: not a JSON object; {_REMEDY}")
    return document


def _field(document: dict[str, Any], key: str, kind: type[T], *, path: Path) -> T:
    value = document.get(key)
    if type(value) is not kind:
        raise CheckpointError(f"{path}: key {key!r} is not of type {kind.__name__}; {_REMEDY}")
    return value


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise CheckpointError(f"{path}: the file is missing; {_REMEDY}") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from error


def _verify(path: Path, data: bytes, digest: str, *, size: int | None = None) -> None:
    if size is not None and len(data) != size:
        raise CheckpointError(
            f"{path}: checksum mismatch ({len(data)} bytes, {size} were written); {_REMEDY}"
        )
    if _sha256(data) != digest:
        raise CheckpointError(f"{path}: checksum mismatch; {_REMEDY}")


def _parse_json(path: Path, data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not JSON ({error}); {_REMEDY}") from error


def _header(data: bytes) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return header


def _parse_tensors(path: Path, data: bytes) -> dict[str, Tensor]:
    try:
        return dict(sorted(safetensors.torch.load(data).items()))  # the parser's own order is arbitrary
    except Exception as error:  # whatever the parser makes of bytes that are not its own
        raise CheckpointError(f"{path}: not in safetensors format ({error}); {_REMEDY}") from error


def _tensor_bytes(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """A safetensors file, the same bytes for the same content; tensors that share memory are written twice."""
    separate, seen = {}, set()
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        where = plain.untyped_storage().data_ptr()
        separate[name] = plain.clone() if where in seen else plain
        seen.add(where)
    data = safetensors.torch.save(separate, dict(metadata) or None)
    header = _header(data)
    if metadata:  # the writer's own order of metadata is arbitrary
        header["__metadata__"] = dict(sorted(metadata.items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[8 + int.from_bytes(data[:8], "little") :]


# --- random numbers -------------------------------------------------------------------------------------


def seed(number: int) -> None:
    """Begin the random states of this process anew."""
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
    """Puts back what `random_state` gave; states of CUDA devices that this machine lacks are left out."""
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
            f"the random states of this checkpoint are unusable ({error}); {_REMEDY}"
        ) from error
