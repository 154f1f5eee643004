"""Readers of text and of word links."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random

from fuzz.fuzzer import Reader, write_file
from latentalign.data import demo
from latentalign.errors import InputError
from latentalign.links.formats import LARGEST, read_gold, read_links
from latentalign.links.sets import Gold, format_pharaoh
from latentalign.textfiles import BYTE_ORDER_MARK, count_lines, decode_lines, read_lines, read_parallel


@cache
def demo_pairs() -> list[demo.Pair]:
    return demo.generate(12, seed=0)


def texts() -> list[bytes]:
    lines = [" ".join(pair.source) for pair in demo_pairs()]
    return [
        "\n".join(lines).encode(),
        "\r\n".join(["\ufeff" + lines[0], "", *lines[1:4], ""]).encode(),
        b"",
        b"\n",
    ]


def _expected_lines(data: bytes) -> list[str] | None:
    """What a text file holds, the slow way; None where it is no text."""
    pieces = data.removeprefix(BYTE_ORDER_MARK).split(b"\n")
    if not pieces[-1]:
        pieces.pop()
    try:
        lines = [piece.removesuffix(b"\r").decode() for piece in pieces]
    except UnicodeDecodeError:
        return None
    return None if any("\0" in line for line in lines) else lines


def check_lines(data: bytes, random: Random, folder: Path) -> None:
    """N lines in are N lines out, of files and of streams; what is no text is refused."""
    path, expected = write_file(folder, "text", data), _expected_lines(data)
    pieces = data.removeprefix(BYTE_ORDER_MARK).count(b"\n")
    partial_line = bool(data.removeprefix(BYTE_ORDER_MARK)) and not data.endswith(b"\n")
    assert count_lines(path) == pieces + partial_line, "lines are miscounted"
    with open(path, "rb") as stream:
        try:
            assert list(decode_lines(stream, "-")) == expected, "a stream is read differently"
        except InputError:
            assert expected is None, "good text is refused in a stream"
    if expected is None:
        must_refuse(lambda: list(read_lines(path)))
    assert list(read_lines(path)) == expected, "lines are read wrongly"


def check_parallel(data: bytes, random: Random, folder: Path) -> None:
    """Files of equal length are read in pairs, others are refused."""
    source, expected = write_file(folder, "source", data), _expected_lines(data)
    count = max(0, data.count(b"\n") + random.choice((-1, 0, 1, 1, 1)))
    target = write_file(folder, "target", b"y\r\n" * count)
    if expected is None or len(expected) != count:
        must_refuse(lambda: list(read_parallel(source, target)))
    assert list(read_parallel(source, target)) == [(line, "y") for line in expected or []]


def must_refuse(read: Callable[[], object]) -> None:
    """Raises the refusal of what must be refused."""
    read()
    raise AssertionError("bad input is accepted")


def pharaoh_files() -> list[bytes]:
    gold = "\n".join(demo.pharaoh(pair) for pair in demo_pairs())
    sure = "\n".join(format_pharaoh(pair.sure) for pair in demo_pairs())
    numbered = "\n".join(f"{place}\t{format_pharaoh(pair.sure)}" for place, pair in enumerate(demo_pairs()))
    return [text.encode() for text in (gold, gold.replace("?", "p"), sure, numbered, "0-0\n\n3-4 1?2\n")]


def naacl_files() -> list[bytes]:
    lines = [
        f"{place:04d} {i + 1} {j + 1}{mark}"
        for place, pair in enumerate(demo_pairs(), start=1)
        for (i, j), mark in zip(
            sorted(pair.sure), (" S", " P", "", " S 0.5", " 1", " P .25") * 9, strict=False
        )
    ]
    return ["\n".join(lines).encode(), b"1 1 1\r\n3 2 2 P\r\n", b"2 1 1"]


def probable_files() -> list[bytes]:
    links = [{link: 0.25 + 0.5 * (link[0] % 2) for link in sorted(pair.sure)} for pair in demo_pairs()]
    pharaoh = "\n".join(" ".join(f"{i}-{j}:{p}" for (i, j), p in line.items()) for line in links)
    keys = ("source", "target", "probability")
    records = [[dict(zip(keys, (*link, p), strict=True)) for link, p in line.items()] for line in links]
    return [pharaoh.encode(), "\n".join(json.dumps({"links": record}) for record in records).encode()]


def check_gold(data: bytes, random: Random, folder: Path) -> None:
    """Positions are within bounds, and links written again are read back as they were."""
    one_based, sentences = random.choice((None, True, False)), random.choice((None, None, 3, 12))
    gold = read_gold(write_file(folder, "gold", data), one_based=one_based, sentences=sentences)
    assert sentences is None or len(gold) == sentences, "another number of sentences"
    if len(gold) > 10_000:
        gold = gold[-50:]  # of a .wa file that names a sentence far away
    positions = [position for one in gold for link in one.possible for position in link]
    assert all(0 <= position <= LARGEST for position in positions), "a position beyond bounds"
    assert all(one.sure <= one.possible for one in gold), "a sure link that is not possible"
    again = folder / "again"
    marked = ([(*link, "-" if link in one.sure else "?") for link in sorted(one.possible)] for one in gold)
    again.write_text("".join(" ".join(f"{i}{mark}{j}" for i, j, mark in line) + "\n" for line in marked))
    assert read_gold(again) == gold, "written links are read differently"


def check_links(data: bytes, random: Random, folder: Path) -> None:
    """A set of links for each line, which is read back as it was."""
    links = read_links(write_file(folder, "links", data), one_based=random.random() < 0.3)
    body = data.removeprefix(BYTE_ORDER_MARK)
    assert len(links) == body.count(b"\n") + (bool(body) and not body.endswith(b"\n")), "lines are lost"
    again = folder / "again"
    again.write_text("".join(format_pharaoh(line) + "\n" for line in links))
    assert read_links(again) == links, "written links are read differently"
    assert read_gold(again) == [Gold(line) for line in links], "gold and predictions are read differently"


TEXT_READERS = (
    Reader("text", texts, check_lines),
    Reader("parallel text", texts, check_parallel),
    Reader("gold links", pharaoh_files, check_gold),
    Reader("gold links, .wa", naacl_files, check_gold),
    Reader("predicted links", pharaoh_files, check_links),
    Reader("predicted links with probabilities", probable_files, check_links),
)
