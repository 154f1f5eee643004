import gzip
import io
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentalign import textfiles
from latentalign.errors import InputError, StorageError
from latentalign.storage import fingerprint
from latentalign.textfiles import (
    TextColumn,
    count_lines,
    open_pairs,
    read_lines,
    read_pairs,
    read_parallel,
    read_stdin,
)


@pytest.fixture
def write(tmp_path: Path):
    def write(content: bytes, name: str = "text") -> Path:
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\nb", ["a", "b"]),
        (b"a\nb\n", ["a", "b"]),
        (b"a\n\n", ["a", ""]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\rb\n", ["a\rb"]),
        (b"a\r\r\n", ["a\r"]),
        (b"\xef\xbb\xbfa\n", ["a"]),
        (b"\xef\xbb\xbf", []),
        (b"\xef\xbb\xbf\n", [""]),
        ("a\u2028b\u0085c\x0bd\x0ce\n\ufeffx".encode(), ["a\u2028b\u0085c\x0bd\x0ce", "\ufeffx"]),
    ],
)
def test_a_line_ends_at_newline_and_nowhere_else(write, content, lines):
    path = write(content)
    assert list(read_lines(path)) == lines
    assert count_lines(path) == len(lines)


@given(st.lists(st.text(st.characters(exclude_characters="\0\n\r\ufeff", exclude_categories=["Cs"]))))
def test_written_lines_are_read_back(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("lines") / "text"
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    assert list(read_lines(path)) == lines


@pytest.mark.parametrize("bad", [b"\xff\xfeh\x00", b"caf\xe9", b"\xed\xa0\x80", b"a\0b"])
def test_what_is_not_text_is_named_with_its_line(write, bad):
    path = write(b"fine\nfine\n" + bad + b"\n")
    with pytest.raises(InputError, match=rf"{path}, line 3: .*UTF-8"):
        list(read_lines(path))


def test_a_wrong_path_is_bad_input(write, tmp_path):
    for read in (list, lambda lines: next(lines)):
        with pytest.raises(InputError, match="absent: no such file"):
            read(read_lines(tmp_path / "absent"))
    with pytest.raises(InputError, match="no such file"):
        count_lines(write(b"") / "below-a-file")
    with pytest.raises(InputError, match="is a directory"):
        count_lines(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        fingerprint(tmp_path / "absent")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="the superuser reads everything")
def test_a_file_that_may_not_be_read_is_a_storage_error(write):
    path = write(b"a")
    path.chmod(0)
    with pytest.raises(StorageError, match="cannot be read"):
        list(read_lines(path))


def test_equal_files_are_read_in_pairs(write):
    pairs = read_parallel(write(b"a\r\nb", "de"), write(b"A\nB\n", "en"))
    assert list(pairs) == [("a", "A"), ("b", "B")]


@pytest.mark.parametrize(
    ("source", "target", "counts"),
    [(b"a\nb\nc\n", b"A\n", (3, 1)), (b"a\n", b"A\nB\nC", (1, 3)), (b"", b"A", (0, 1))],
)
def test_unequal_files_are_refused_with_both_counts(write, source, target, counts):
    left, right = write(source, "de"), write(target, "en")
    with pytest.raises(InputError, match=f"{left} has {counts[0]} lines but {right} has {counts[1]}"):
        list(read_parallel(left, right))


def test_a_trailing_blank_line_counts_as_a_line(write):
    with pytest.raises(InputError, match=r"has 2 lines but .* has 1"):
        list(read_parallel(write(b"a\n\n", "de"), write(b"A\n", "en")))


def test_fingerprint_follows_the_bytes(write):
    assert fingerprint(write(b"a\n", "x")) == fingerprint(write(b"a\n", "y"))
    assert fingerprint(write(b"a\n", "x")) != fingerprint(write(b"a\r\n", "y"))


def test_gzip_is_recognised_by_content_whatever_the_name(write, monkeypatch):
    packed = gzip.compress("\ufeffein Hund\r\nzwei".encode()) + gzip.compress(b" Hunde\n\n")
    path = write(packed, "text.txt")
    assert list(read_lines(path)) == ["ein Hund", "zwei Hunde", ""]
    assert count_lines(path) == 3
    assert list(read_lines(write(b"plain\n", "text.gz"))) == ["plain"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(packed))))
    assert list(read_stdin()) == ["ein Hund", "zwei Hunde", ""]


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-6], lambda data: data[:12] + b"x" * 20, lambda data: data[:2]]
)
def test_damaged_gzip_is_bad_input_that_names_the_file(write, damage):
    path = write(damage(gzip.compress(b"ein Hund schlaeft\n" * 9)))
    for read in (count_lines, lambda path: list(read_lines(path))):
        with pytest.raises(InputError, match=f"{path}: damaged gzip data"):
            read(path)


def test_text_inside_gzip_is_checked_like_any_other(write):
    with pytest.raises(InputError, match=r"text, line 2: not UTF-8"):
        list(read_lines(write(gzip.compress(b"a\n\xff\n"))))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_file_of_pairs_has_two_columns(write, pack):
    path = write(pack(b"ein Hund\ta dog\n\t \r\nzwei\ttwo"))
    assert list(read_pairs(path)) == [("ein Hund", "a dog"), ("", " "), ("zwei", "two")]
    assert list(read_lines(TextColumn(path, 1))) == ["a dog", " ", "two"]
    assert count_lines(TextColumn(path, 0)) == 3
    assert str(TextColumn("x.tsv", 1)) == "x.tsv (column 2)"


@pytest.mark.parametrize(("row", "problem"), [(b"a b", "no tab"), (b"", "no tab"), (b"a\tb\tc", "3 columns")])
def test_a_row_without_exactly_two_columns_is_named_by_its_line(write, row, problem):
    path = write(b"a\tb\n" + row + b"\nc\td\n")
    with pytest.raises(InputError, match=f"{path}, line 2: {problem}; expected two columns"):
        list(read_pairs(path))


def test_options_name_two_files_or_one_file_of_pairs(write):
    pairs, source, target = write(b"a\tA\n", "tsv"), write(b"a\n", "de"), write(b"A\n", "en")
    assert list(open_pairs(source, target, None)) == list(open_pairs(None, None, pairs)) == [("a", "A")]
    for wrong in ((source, None, None), (None, None, None), (source, target, pairs), (None, target, pairs)):
        with pytest.raises(InputError, match="--source and --target"):
            open_pairs(*wrong)


@pytest.mark.parametrize(
    "content", [b"", b"a", b"ab\ncd\n", b"abcd\n\nef", b"\xef\xbb\xbf", b"a\n\xef\xbb\xbf", b"abc\ndefgh"]
)
def test_lines_are_counted_alike_in_small_blocks(write, content, monkeypatch):
    monkeypatch.setattr(textfiles, "BLOCK", 3)
    path = write(content)
    assert count_lines(path) == len(list(read_lines(path)))


def test_a_folder_is_no_text_file(tmp_path):
    for read in (count_lines, lambda path: list(read_lines(path))):
        with pytest.raises(InputError, match="is a directory, expected a text file"):
            read(tmp_path)


def test_errors_in_standard_input_call_it_so(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(b"fine\n\xff\n"))))
    with pytest.raises(InputError, match="standard input, line 2: not UTF-8"):
        list(read_stdin())
