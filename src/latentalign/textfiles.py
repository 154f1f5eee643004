"""Lines of UTF-8 text files, streamed: one line in memory at a time, every complaint with file and line.

A line ends at b"\\n" and nowhere else (U+2028, U+0085 and a lone "\\r" stay inside it); one "\\r" before
the end is dropped, so is a byte order mark at the start of the file. A last line without "\\n" counts.
Bytes that are not UTF-8, among them encoded surrogates, and NUL characters (a sign of UTF-16 or of a
binary file) are refused.
"""

import hashlib
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import IO, BinaryIO

from latentalign.errors import InputError, StorageError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_lines(path: Path | str) -> Iterator[str]:
    """Each line of a text file, without its end."""
    return _decoded(_raw_lines(path), path)


def decode_lines(stream: IO[bytes], name: str) -> Iterator[str]:
    """Each line of a stream of bytes, by the same rules."""
    return _decoded(_without_ends(stream), name)


def _decoded(lines: Iterator[bytes], path: Path | str) -> Iterator[str]:
    for number, raw in enumerate(lines, start=1):
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path}, line {number}: not UTF-8 (byte 0x{raw[error.start]:02x} at byte {error.start + 1} "
                f"of the line); convert the file to UTF-8"
            ) from None
        if "\0" in line:
            raise InputError(
                f"{path}, line {number}: a NUL character; if the file is UTF-16 convert it to UTF-8, "
                f"otherwise remove the character"
            )
        yield line


def count_lines(path: Path | str) -> int:
    """How many lines `read_lines` finds in a file; the text itself is not checked."""
    return sum(1 for _ in _raw_lines(path))


def read_parallel(source: Path | str, target: Path | str) -> Iterator[tuple[str, str]]:
    """Line pairs of two files; an InputError where one of them ends before the other."""
    for source_line, target_line in zip_longest(read_lines(source), read_lines(target)):
        if source_line is None or target_line is None:
            raise InputError(
                f"{source} has {count_lines(source)} lines but {target} has {count_lines(target)}; "
                f"line n of one must translate line n of the other"
            )
        yield source_line, target_line


def fingerprint(path: Path | str) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    try:
        with _opened(path) as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()
    except OSError as error:
        raise _explained(path, error) from error


def _raw_lines(path: Path | str) -> Iterator[bytes]:
    """Lines as bytes, without "\\n", "\\r\\n" and a leading byte order mark."""
    try:
        with _opened(path) as handle:
            yield from _without_ends(handle)
    except OSError as error:
        raise _explained(path, error) from error


def _opened(path: Path | str) -> BinaryIO:
    """A file to read bytes from; a name that no file can have, say with a NUL in it, is an InputError."""
    try:
        return open(path, "rb")
    except ValueError:
        raise InputError(f"{str(path)!a}: no such file, as none can have that name") from None


def _without_ends(stream: IO[bytes]) -> Iterator[bytes]:
    for number, raw in enumerate(stream):
        line = raw.removeprefix(BYTE_ORDER_MARK) if number == 0 else raw
        if line:  # empty only for a file that holds nothing but the mark
            yield line.removesuffix(b"\n").removesuffix(b"\r")


def _explained(path: Path | str, error: OSError) -> InputError | StorageError:
    """The same failure in words: a wrong path is the input's fault, the rest is the storage's."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return InputError(f"{path}: no such file")
    if isinstance(error, IsADirectoryError):
        return InputError(f"{path}: is a directory, expected a text file")
    return StorageError(f"{path}: cannot be read: {error.strerror or error}")
