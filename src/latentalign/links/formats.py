"""Readers of word-alignment files: Pharaoh lines with all common marks, the NAACL `.wa` format, and JSON lines."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentalign.errors import InputError
from latentalign.links.sets import Gold, LinkProbabilities, Links
from latentalign.storage import read_unpacked

LARGEST = 999_999  # largest word position and sentence number; a larger one means that the file is damaged
_LINK = re.compile(r"([0-9]+)([-?p])([0-9]+)")  # not \d, which matches the digits of every script
_NUMBER = re.compile(r"[0-9]+")
_CONFIDENCE = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")
_PHARAOH = "expected links such as 3-4 (sure), 3?4 or 3p4 (possible)"
_PROBABILITY = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_ROUNDING = 1e-6  # probabilities that were summed or rounded may exceed 1 by this much
_PROBABLE = "expected a probability from 0 to 1 after the colon, such as 3-4:0.93"
_WA = "expected `sentence source target`, then optionally S or P, then optionally a confidence"


@dataclass(frozen=True)
class _Line:
    where: str  # file:line, for messages
    text: str
    fields: list[str]

    def error(self, token: str, expected: str) -> InputError:
        shown = token if len(token) <= 40 else token[:40] + "..."
        return InputError(f"{self.where}: {shown!r}: {expected}")


def read_gold(path: str | Path, *, one_based: bool | None = None, sentences: int | None = None) -> list[Gold]:
    """The gold links of every sentence of a file.

    Pharaoh files have one line per sentence with links `i-j` (sure) and `i?j` or `ipj` (possible). All lines may
    begin with a sentence number. Words are counted from 0 unless `one_based` is True. A file that counts from 1
    cannot be distinguished from one in which no first word is linked (`lacks_zero` detects both). NAACL `.wa`
    files have one line per link, `sentence source target [S|P] [confidence]`, and always count from 1. They omit
    sentences without links, so pass `sentences` to get those at the end too.
    """
    lines = _read_lines(path)
    if _is_wa(lines):
        return _parse_wa(lines, sentences)
    gold = [
        Gold(
            sure=frozenset(link for link, mark in links if mark == "-"),
            possible=frozenset(link for link, _ in links),
        )
        for links in _parse_pharaoh(lines, first=int(bool(one_based)), marks="-?p")
    ]
    if sentences is not None and len(gold) != sentences:
        raise InputError(
            f"{path}: {len(gold)} lines of links for {sentences} sentences; expected one line per sentence"
        )
    return gold


@dataclass(frozen=True)
class Predicted:
    """The links that an aligner has chosen for every sentence, with their probabilities if the file has them."""

    links: list[Links]
    probabilities: list[LinkProbabilities] | None = None
    candidates: list[LinkProbabilities] | None = None
    """Probabilities of the links that were considered, chosen or not, if the file has them."""

    @property
    def weights(self) -> list[LinkProbabilities]:
        """The probabilities, or 1 for every link if the file has none."""
        return self.probabilities or [dict.fromkeys(links, 1.0) for links in self.links]


def read_predicted(path: str | Path, *, one_based: bool = False) -> Predicted:
    """The predicted links of every sentence.

    Files have one line per sentence: Pharaoh's `i-j` or `i-j:probability`, with or without sentence numbers, or the
    JSON objects of `latentalign align --format json`.
    """
    lines = _read_lines(path)
    if next((line.text for line in lines if line.fields), "").startswith("{"):
        return _parse_records(lines)
    if _is_wa(lines):
        line = next(line for line in lines if line.fields)
        raise line.error(line.fields[1], "expected links such as 3-4, one line per sentence")
    found: list[LinkProbabilities] = []
    first_of_file: tuple[str, bool] | None = None  # whether the links of this file have probabilities
    for line, tokens in zip(lines, _pharaoh_tokens(lines), strict=True):
        links: dict[tuple[int, int], float] = {}
        for token in tokens:
            plain, colon, probability = token.partition(":")
            first_of_file = first_of_file or (token, bool(colon))
            if bool(colon) != first_of_file[1]:
                raise line.error(
                    token, f"expected a probability for all links or none, as in {first_of_file[0]!r}"
                )
            link, _ = _parse_link(line, plain, first=int(one_based), marks="-")
            if colon and link in links:
                raise line.error(token, "expected every link once")
            links[link] = _parse_probability(line, token, probability) if colon else 1.0
        found.append(links)
    has_probabilities = first_of_file is not None and first_of_file[1]
    return Predicted([frozenset(links) for links in found], found if has_probabilities else None)


def read_links(path: str | Path, *, one_based: bool = False) -> list[Links]:
    """The predicted links of every sentence, in any of the formats of `read_predicted`."""
    return read_predicted(path, one_based=one_based).links


def _parse_probability(line: _Line, token: str, digits: str) -> float:
    if not _PROBABILITY.fullmatch(digits) or float(digits) > 1 + _ROUNDING:
        raise line.error(token, _PROBABLE)
    return min(float(digits), 1.0)


def _parse_records(lines: list[_Line]) -> Predicted:
    """The links of JSON lines, and the posteriors of all links where every line has them."""
    links: list[LinkProbabilities] = []
    candidates: list[LinkProbabilities] = []
    for line in lines:
        try:
            record = json.loads(line.text)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict) or not isinstance(record.get("links"), list):
            raise line.error(line.text.strip(), 'expected a JSON object with the key "links"')
        links.append(dict(_parse_record_link(line, entry) for entry in record["links"]))
        if record.get("posteriors") is not None:
            candidates.append(_parse_posteriors(line, record["posteriors"]))
    complete = len(candidates) == len(links)
    return Predicted([frozenset(found) for found in links], links, candidates if complete else None)


def _parse_record_link(line: _Line, entry: Any) -> tuple[tuple[int, int], float]:
    keys = ("source", "target", "probability")
    source, target, probability = (entry.get(key) for key in keys) if isinstance(entry, dict) else (None,) * 3
    ends = [end for end in (source, target) if type(end) is int and 0 <= end <= LARGEST]
    if len(ends) < 2 or not _is_probability(probability):
        raise line.error(json.dumps(entry), "expected a link with source, target and probability")
    return (ends[0], ends[1]), min(float(probability or 0), 1.0)


def _parse_posteriors(line: _Line, rows: Any) -> LinkProbabilities:
    """The probabilities of a matrix whose rows are target words and whose columns are source words."""
    if not isinstance(rows, list) or not all(
        isinstance(row, list) and all(map(_is_probability, row)) for row in rows
    ):
        raise line.error(
            json.dumps(rows), "expected `posteriors` as rows of probabilities, one per target word"
        )
    return {(v, w): min(float(p), 1.0) for w, row in enumerate(rows) for v, p in enumerate(row)}


def _is_probability(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1 + _ROUNDING


def _read_lines(path: str | Path) -> list[_Line]:
    """Every line with its fields. Only b"\\n" ends a line, and only spaces and tabs separate fields."""
    data = read_unpacked(path, "a file of word links")
    pieces = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if not pieces[-1]:
        pieces.pop()  # nothing follows the last line end
    return [
        _split_line(piece.removesuffix(b"\r"), f"{path}:{number}")
        for number, piece in enumerate(pieces, start=1)
    ]


def _split_line(raw: bytes, where: str) -> _Line:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: not UTF-8 (byte {error.start + 1}); expected plain text") from error
    return _Line(where, text, re.findall(r"[^ \t]+", text))


def _is_wa(lines: list[_Line]) -> bool:
    """Whether the first line with content is a `.wa` line, whose second field is a plain number."""
    first = next((line.fields for line in lines if line.fields), [])
    return len(first) > 1 and all(_NUMBER.fullmatch(number) for number in first[:2])


def _parse_pharaoh(
    lines: list[_Line], *, first: int, marks: str
) -> Iterator[list[tuple[tuple[int, int], str]]]:
    """The (link, mark) pairs of every line. An empty line is a sentence without links."""
    for line, tokens in zip(lines, _pharaoh_tokens(lines), strict=True):
        yield [_parse_link(line, token, first=first, marks=marks) for token in tokens]


def _pharaoh_tokens(lines: list[_Line]) -> Iterator[list[str]]:
    """The links of every line as text, without its sentence number."""
    opening = next((line.fields[0] for line in lines if line.fields), "")
    numbered, last = bool(_NUMBER.fullmatch(opening)), -1
    for line in lines:
        fields = line.fields
        if numbered and fields:
            last, fields = _parse_sentence_number(line, last), fields[1:]
        yield fields


def _parse_sentence_number(line: _Line, last: int) -> int:
    """The number at the start of a line. It must increase, because shuffled lines would be scored wrongly."""
    token = line.fields[0]
    expected = f"expected a sentence number above {last}, because lines are numbered in order"
    if not _NUMBER.fullmatch(token) or len(token) > 18 or int(token) <= last:
        raise line.error(token, expected)
    return int(token)


def _parse_link(line: _Line, token: str, *, first: int, marks: str) -> tuple[tuple[int, int], str]:
    match = _LINK.fullmatch(token)
    if match is None:
        raise line.error(token, _PHARAOH if len(marks) > 1 else "expected links such as 3-4")
    source, mark, target = match.groups()
    if mark not in marks:
        raise line.error(token, "expected links such as 3-4; only gold links are marked as sure or possible")
    return (
        _parse_position(line, token, source, first=first),
        _parse_position(line, token, target, first=first),
    ), mark


def _parse_position(line: _Line, token: str, digits: str, *, first: int) -> int:
    """A position counted from 0, from digits that count from `first`."""
    digits = digits.lstrip("0") or "0"
    if len(digits) > len(str(LARGEST)) or int(digits) < first:
        raise line.error(token, f"expected numbers from {first} to {LARGEST}")
    return int(digits) - first


def _parse_wa(lines: list[_Line], sentences: int | None) -> list[Gold]:
    """The sentences 1, 2, ... of a `.wa` file, including those without links. Blank lines are ignored."""
    sure: dict[int, set[tuple[int, int]]] = {}
    possible: dict[int, set[tuple[int, int]]] = {}
    for line in lines:
        if line.fields:
            sentence, link, mark = _parse_wa_link(line)
            (possible if mark == "P" else sure).setdefault(sentence, set()).add(link)
            if sentences is not None and sentence >= sentences:
                raise line.error(line.fields[0], f"expected a sentence number of at most {sentences}")
    count = max([*sure, *possible], default=-1) + 1 if sentences is None else sentences
    gold = [Gold(frozenset())] * count
    for number in sure.keys() | possible.keys():
        gold[number] = Gold(frozenset(sure.get(number, ())), frozenset(possible.get(number, ())))
    return gold


def _parse_wa_link(line: _Line) -> tuple[int, tuple[int, int], str]:
    """Sentence, link and mark of one `.wa` line. A link without a mark is sure."""
    numbers, rest = line.fields[:3], line.fields[3:]
    for token in numbers:
        if not _NUMBER.fullmatch(token):
            raise line.error(token, _WA)
    if len(numbers) < 3:
        raise line.error(" ".join(line.fields), _WA)
    mark = rest.pop(0) if rest and rest[0] in ("S", "P") else "S"
    if rest and _CONFIDENCE.fullmatch(rest[0]):
        rest.pop(0)
    if rest:
        raise line.error(rest[0], _WA)
    sentence, source, target = (_parse_position(line, token, token, first=1) for token in numbers)
    return sentence, (source, target), mark
