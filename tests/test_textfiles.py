import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentalign.errors import InputError, StorageError
from latentalign.storage import fingerprint
from latentalign.textfiles import count_lines, read_lines, read_parallel


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
