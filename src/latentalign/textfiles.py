"""Lines of UTF-8 text files, read one at a time. Every error names the file and the line.

A line ends at b"\\n" and nowhere else: U+2028, U+0085 and a lone "\\r" stay inside it. One "\\r" before the end
is dropped, and so is a byte order mark at the start of the file. A last line without "\\n" counts. Bytes that are
not UTF-8 (including encoded surrogates) and NUL characters (a sign of UTF-16 or of a binary file) are errors.
Gzip data is recognised by its content and unpacked.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import IO

from latentalign.errors import InputError
from latentalign.storage import explain_read_errors, open_input, unpack

BLOCK = 2**20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class TextColumn:
    """One side of a file of sentence pairs: source, tab, target."""

    path: Path | str
    column: int
    """0 or 1."""

    def __str__(self) -> str:
        return f"{self.path} (column {self.column + 1})"


Text = Path | str | TextColumn
"""A text file, or one column of a file with two."""


def read_lines(text: Text) -> Iterator[str]:
    """Each line of a text, without its end. A file may be gzip data."""
    if isinstance(text, TextColumn):
        yield from (row[text.column] for row in read_pairs(text.path))
        return
    with explain_read_errors(text, "a text file"), open_input(text, "a text file") as file:
        yield from decode_lines(unpack(file), text)


def read_stdin() -> Iterator[str]:
    """Each line of standard input, which may be gzip data."""
    name = "standard input"
    if sys.stdin is None:
        raise InputError(f"{name} is closed; name a file with --input")
    with explain_read_errors(name, "text"):
        yield from decode_lines(unpack(sys.stdin.buffer), name)


def read_pairs(path: Path | str) -> Iterator[tuple[str, str]]:
    """Sentence pairs of a file with two columns, separated by one tab."""
    for number, line in enumerate(read_lines(path), start=1):
        columns = line.split("\t")
        if len(columns) != 2:
            found = "no tab" if len(columns) == 1 else f"{len(columns)} columns"
            raise InputError(
                f"{path}, line {number}: {found}; expected two columns, source and target, separated by one tab"
            )
        yield columns[0], columns[1]


def decode_lines(stream: IO[bytes], name: Path | str) -> Iterator[str]:
    """Each line of a stream of bytes, by the same rules. Errors call the stream by its name."""
    for number, raw in enumerate(stream, start=1):
        if number == 1:
            raw = raw.removeprefix(BYTE_ORDER_MARK)
            if not raw:  # the file contains nothing but the mark
                return
        raw = raw.removesuffix(b"\n").removesuffix(b"\r")
        try:
            line = raw.decode()
        except UnicodeDecodeError as error:
            raise InputError(
                f"{name}, line {number}: not UTF-8 (byte 0x{raw[error.start]:02x} at byte {error.start + 1} "
                f"of the line); convert the file to UTF-8"
            ) from None
        if "\0" in line:
            raise InputError(
                f"{name}, line {number}: a NUL character; if the file is UTF-16, convert it to UTF-8, "
                f"otherwise remove the character"
            )
        yield line


def open_pairs(
    source: Text | None, target: Text | None, pairs: Path | str | None
) -> Iterator[tuple[str, str]]:
    """The sentence pairs that the options --source and --target, or --pairs, name."""
    if pairs is not None and source is None and target is None:
        return read_pairs(pairs)
    if pairs is not None or source is None or target is None:
        raise InputError("pass --source and --target with one file each, or --pairs with one file for both")
    return read_parallel(source, target)


def count_lines(text: Text) -> int:
    """How many lines `read_lines` finds in a text. The text is not checked."""
    lines, last = 0, b"\n"
    path = text.path if isinstance(text, TextColumn) else text
    with explain_read_errors(path, "a text file"), open_input(path, "a text file") as packed:
        file = unpack(packed)
        while block := file.read(BLOCK):
            lines += block.count(b"\n")
            last = block if lines == 0 else block[-1:]
    return lines + (not last.endswith(b"\n") and last != BYTE_ORDER_MARK)


def read_parallel(source: Text, target: Text) -> Iterator[tuple[str, str]]:
    """Line pairs of two files; an InputError if one file ends before the other."""
    for source_line, target_line in zip_longest(read_lines(source), read_lines(target)):
        if source_line is None or target_line is None:
            raise InputError(explain_unequal(source, target))
        yield source_line, target_line


def require_equal_lines(source: Text, target: Text) -> None:
    """Raise unless two files have the same number of lines."""
    if count_lines(source) != count_lines(target):
        raise InputError(explain_unequal(source, target))


def explain_unequal(source: Text, target: Text) -> str:
    """The message about two files of which one ends before the other."""
    return (
        f"{source} has {count_lines(source)} lines but {target} has {count_lines(target)}; "
        f"line n of one must translate line n of the other"
    )
