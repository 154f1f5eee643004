"""Files that are written completely or not at all, and read with messages that say what to do.

Reading distinguishes two kinds of files. For a file that a user names, a wrong path is an InputError. For a file
that this program wrote (a checkpoint, a model, a tokenizer), every problem is a CheckpointError that says how to
recover. Nothing is pickled. PyTorch is imported only when tensors are read or written.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import os
import re
import shutil
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from latentalign.errors import CheckpointError, InputError, StorageError

if TYPE_CHECKING:
    from torch import Tensor

RECOVERY = "restore it from a copy, or train again from the start"
"""What to do about a damaged file of a run."""


def sha256(data: bytes) -> str:
    """SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


# --- reading files that a user names --------------------------------------------------------------------


@contextmanager
def explain_read_errors(path: Path | str, expected: str = "a file") -> Iterator[None]:
    """Turn errors of the operating system into messages: a wrong path is an InputError, the rest a StorageError."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a directory, expected {expected}") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path}: damaged gzip data ({error}); copy the file again") from None
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror or error}") from error


def open_input(path: Path | str, expected: str = "a file") -> BufferedReader:
    """Open a file that a user named, to read bytes."""
    with explain_read_errors(path, expected):
        try:
            return open(path, "rb")
        except ValueError:  # for example a NUL character in the name
            raise InputError(f"{str(path)!a}: no such file, because no file can have this name") from None


def unpack(file: BinaryIO) -> BufferedReader:
    """The same stream of bytes, unpacked if it is gzip data. The name of the file does not matter."""
    # Standard input that a program has replaced may not be buffered.
    buffered: BufferedReader = (
        file if isinstance(file, BufferedReader) else BufferedReader(cast(RawIOBase, file))
    )
    if not buffered.peek(2).startswith(b"\x1f\x8b"):
        return buffered
    return BufferedReader(gzip.GzipFile(fileobj=buffered))


def read_unpacked(path: Path | str, expected: str = "a file") -> bytes:
    """The bytes of a file that a user named, unpacked if it is gzip data."""
    with explain_read_errors(path, expected), open_input(path, expected) as file:
        return unpack(file).read()


def read_input(path: Path | str, expected: str = "a file") -> bytes:
    """The bytes of a file that a user named."""
    with explain_read_errors(path, expected), open_input(path, expected) as file:
        return file.read()


def read_json_input(path: Path | str) -> Any:
    """The JSON document in a file that a user named."""
    data = read_input(path, "a JSON file")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON ({error})") from None


def fingerprint(path: Path | str) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with explain_read_errors(path), open_input(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- reading files that this program wrote --------------------------------------------------------------


def read_saved(path: Path) -> bytes:
    """The bytes of a file that this program wrote."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise CheckpointError(f"{path}: the file is missing; {RECOVERY}") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from error


def parse_saved_json(path: Path, data: bytes) -> Any:
    """The JSON document in bytes that were read from `path`."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not JSON ({error}); {RECOVERY}") from error


# --- writing --------------------------------------------------------------------------------------------


def require_free(path: Path, *, overwrite: bool) -> None:
    """Raise when an output would replace a file without permission, or when its folder does not exist."""
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists; add --overwrite to replace it")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist; create it first")


def require_folder_place(path: Path) -> None:
    """Raise unless a path is a folder or can become one."""
    for place in (path, *path.parents):
        if place.is_symlink() and not place.exists():
            target = os.readlink(place)
            raise InputError(
                f"{place}: is a symbolic link to {target}, which does not exist; create {target} or remove the link"
            )
        if place.exists() and not place.is_dir():
            raise InputError(f"{place}: is a file, expected a folder; choose another path")
        if place.is_dir():
            if not os.access(place, os.W_OK | os.X_OK):
                raise StorageError(f"{place}: there is no permission to write here")
            return


def write_bytes(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace a file atomically: a reader, or a crash, sees all of the old content or all of the new.

    If many files are written that can be generated again, `durable=False` saves the time of waiting for the disk.
    """
    with explain_write_errors(path.parent, len(data)):
        replace_file(path, data, durable=durable)


def write_text(path: Path, text: str) -> None:
    """Replace a file atomically by UTF-8 text."""
    write_bytes(path, text.encode())


def write_json(path: Path, document: Any) -> None:
    """Replace a file atomically by a JSON document that every reader accepts; NaN and infinity are refused."""
    write_text(path, format_json(document, allow_nan=False))


def format_json(document: Any, *, allow_nan: bool = True) -> str:
    """A JSON document as text, one key per line."""
    return json.dumps(document, indent=1, allow_nan=allow_nan) + "\n"


def replace_file(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write a temporary file and rename it to `path`."""
    # The name is fixed, so that the next write removes what a crash left behind.
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        if durable:
            write_durably(temporary, data)
        else:
            temporary.write_bytes(data)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def write_durably(path: Path, data: bytes) -> None:
    """Write a file and wait until it is on the disk."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    if os.name == "nt":  # Windows cannot open folders, and it journals renames
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def explain_write_errors(folder: Path, size: int) -> Iterator[None]:
    """Turn errors of the operating system into messages; refuse to start if `size` bytes do not fit."""
    place = next((parent for parent in (folder, *folder.absolute().parents) if parent.exists()), folder)
    try:
        if size > shutil.disk_usage(place).free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        yield
    except StorageError:
        raise
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(f"cannot write in {folder}: {error}") from error
        quota = " (the quota is used up)" if error.errno == errno.EDQUOT else ""
        free = shutil.disk_usage(place).free
        raise StorageError(
            f"need {format_size(size)}, have {format_size(free)} in {folder}{quota}: "
            "free some space or write elsewhere"
        ) from error


def format_size(count: int) -> str:
    """A number of bytes in kB or MB."""
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"


# --- tensors --------------------------------------------------------------------------------------------


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Replace a safetensors file and the checksum file `<path>.sha256`, which `sha256sum -c` understands.

    Two files cannot be replaced at once. In between, the checksum file lists the old content and the new one.
    """
    data = encode_tensors(tensors, metadata)
    sums, line = Path(f"{path}.sha256"), f"{sha256(data)}  {path.name}\n".encode()
    try:
        previous = b"".join(f"{digest}  {path.name}\n".encode() for digest in _read_checksums(sums))
    except CheckpointError:
        previous = b""
    with explain_write_errors(path.parent, len(data) + len(previous) + len(line)):
        replace_file(sums, previous + line)
        replace_file(path, data)
        if previous:
            replace_file(sums, line)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a file whose bytes are exactly those that `write_tensors` wrote."""
    data, sums = read_saved(path), Path(f"{path}.sha256")
    if sha256(data) not in _read_checksums(sums):
        raise CheckpointError(f"{path}: checksum mismatch with {sums}; {RECOVERY}")
    return decode_tensors(path, data), _header(data).get("__metadata__", {})


def encode_tensors(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """A safetensors file, with equal bytes for equal content; tensors that share memory are written twice."""
    import safetensors.torch

    separate, seen = {}, set()
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        address = plain.untyped_storage().data_ptr()
        separate[name] = plain.clone() if address in seen else plain
        seen.add(address)
    data = safetensors.torch.save(separate, dict(metadata) or None)
    header = _header(data)
    if metadata:  # safetensors writes metadata in arbitrary order
        header["__metadata__"] = dict(sorted(metadata.items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[8 + int.from_bytes(data[:8], "little") :]


def decode_tensors(path: Path, data: bytes) -> dict[str, Tensor]:
    """The tensors in bytes that were read from `path`, sorted by name."""
    import safetensors.torch

    try:
        return dict(
            sorted(safetensors.torch.load(data).items())
        )  # safetensors returns them in arbitrary order
    except Exception as error:  # safetensors raises many kinds of errors for damaged bytes
        raise CheckpointError(f"{path}: not in safetensors format ({error}); {RECOVERY}") from error


def _header(data: bytes) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return header


def _read_checksums(sums: Path) -> list[str]:
    """The digests in a checksum file, all of which belong to the file whose name it extends."""
    raw, line = read_saved(sums), rb"([0-9a-f]{64})  " + re.escape(sums.stem.encode()) + rb"\n"
    if not re.fullmatch(rb"(?:%b)+" % line, raw):
        raise CheckpointError(f"{sums}: checksum mismatch (not the sha256 of {sums.stem}); {RECOVERY}")
    return [digest.decode() for digest in re.findall(line, raw)]
