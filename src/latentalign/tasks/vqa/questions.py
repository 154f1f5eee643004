"""Questions, human answers and predicted answers in the official JSON formats of VQA, plain or gzip."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import sys
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from latentalign.errors import InputError
from latentalign.storage import read_input, write_text
from latentalign.textfiles import BYTE_ORDER_MARK

LARGEST_ID = 2**63 - 1  # the largest id that a features file can store
_GZIP = b"\x1f\x8b"
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Question:
    """A question about an image."""

    question_id: int
    image_id: int
    question: str


@dataclass(frozen=True)
class Annotation:
    """The human answers to a question, its types, and the gold boxes x1, y1, x2, y2 that the answer depends on."""

    question_id: int
    image_id: int
    question_type: str
    answer_type: str
    answers: tuple[str, ...]
    regions: tuple[Box, ...]


@dataclass(frozen=True)
class Coverage:
    """The share of human answers in a vocabulary, and of questions with at least one answer in it."""

    votes: float
    questions: float


Entry = TypeVar("Entry", Question, Annotation)


# Reading


def read_questions(path: Path | str) -> list[Question]:
    """The questions of a file, in the order of the file."""
    return [
        Question(number, entry.number("image_id"), entry.question())
        for number, entry in _with_question_ids(_entries_of_key(path, "questions"))
    ]


def read_annotations(path: Path | str) -> list[Annotation]:
    """The human answers of a file, in the order of the file."""
    return [
        Annotation(
            number,
            entry.number("image_id"),
            question_type=sys.intern(entry.text("question_type")),
            answer_type=sys.intern(entry.text("answer_type")),
            answers=entry.answers(),
            regions=entry.regions(),
        )
        for number, entry in _with_question_ids(_entries_of_key(path, "annotations"))
    ]


def read_results(path: Path | str) -> dict[int, str]:
    """Predicted answers by question id, from a file in the official results format."""
    document = _read_document(path)
    if not isinstance(document, list):
        raise InputError(
            f'{path}: expected a list of {{"question_id": ..., "answer": ...}}, found {_abbreviate(document)}'
        )
    return {number: entry.text("answer") for number, entry in _with_question_ids(_entries(path, document))}


@dataclass(frozen=True)
class _Entry:
    """One object of a file, with methods that read and check its values."""

    where: str  # file and entry, for messages
    values: dict[str, Any]

    def error(self, key: str, expected: str, found: Any) -> InputError:
        return InputError(f"{self.where}: key {key!r}: expected {expected}, found {_abbreviate(found)}")

    def value(self, key: str) -> Any:
        if key not in self.values:
            raise InputError(f"{self.where}: the key {key!r} is missing")
        return self.values[key]

    def number(self, key: str) -> int:
        value = self.value(key)
        if type(value) is not int or not 0 <= value <= LARGEST_ID:
            raise self.error(key, f"an integer from 0 to {LARGEST_ID}", value)
        return value

    def text(self, key: str) -> str:
        value = self.value(key)
        if not _is_text(value):
            raise self.error(key, "text", value)
        return str(value)

    def question(self) -> str:
        """A question, which needs at least one word."""
        text = self.text("question")
        if not words(text):
            raise self.error("question", "at least one word", text)
        return text

    def answers(self) -> tuple[str, ...]:
        """The answers of all people. Equal texts are kept in memory only once."""
        found = self.value("answers")
        if not isinstance(found, list) or not found:
            raise self.error("answers", "a list of at least one answer", found)
        for place, answer in enumerate(found, start=1):
            if not isinstance(answer, dict) or not _is_text(answer.get("answer")):
                raise self.error("answers", f'{{"answer": text}} at position {place}', answer)
        return tuple(sys.intern(answer["answer"]) for answer in found)

    def regions(self) -> tuple[Box, ...]:
        """The gold boxes; none if the key is absent."""
        found = self.values.get("regions", [])
        if not isinstance(found, list):
            raise self.error("regions", "a list of boxes", found)
        for place, box in enumerate(found, start=1):
            if not _is_box(box):
                expected = f"[x1, y1, x2, y2] with 0 <= x1 < x2 <= 1 and 0 <= y1 < y2 <= 1 for box {place}"
                raise self.error("regions", expected, box)
        return tuple((float(x1), float(y1), float(x2), float(y2)) for x1, y1, x2, y2 in found)


def _is_text(value: Any) -> bool:
    """Whether a value is text that can be written again. A lone surrogate cannot."""
    return isinstance(value, str) and (value.isascii() or not re.search("[\ud800-\udfff]", value))


def _is_box(value: Any) -> bool:
    """Whether a value is a box x1, y1, x2, y2 within [0, 1]."""
    if not isinstance(value, list) or [type(side) in (int, float) for side in value] != [True] * 4:
        return False
    x1, y1, x2, y2 = value
    return bool(0 <= x1 < x2 <= 1 and 0 <= y1 < y2 <= 1)  # also false for NaN


def _abbreviate(value: Any) -> str:
    """A value for a message: as JSON, and short."""
    if isinstance(value, dict):
        return f"an object with the keys {list(value)[:4]}"[:100]
    if isinstance(value, list) and len(value) > 4:
        return f"a list of {len(value)} values"
    whole = json.dumps(value)
    return whole if len(whole) <= 60 else whole[:60] + "..."


def _with_question_ids(entries: Iterator[_Entry]) -> Iterator[tuple[int, _Entry]]:
    """Each entry with its question id. An id may occur only once in a file."""
    first: dict[int, str] = {}
    for entry in entries:
        number = entry.number("question_id")
        if number in first:
            raise InputError(
                f"{entry.where}: question_id {number} occurs again, after {first[number]}; remove one of them"
            )
        first[number] = entry.where.rpartition(", ")[2]
        yield number, entry


def _entries_of_key(path: Path | str, key: str) -> Iterator[_Entry]:
    """The entries of a list, which is the value of a key of the document in a file."""
    document = _read_document(path)
    if not isinstance(document, dict) or not isinstance(document.get(key), list):
        raise InputError(f'{path}: expected an object {{"{key}": [...]}}, found {_abbreviate(document)}')
    return _entries(path, document[key])


def _entries(path: Path | str, values: list[Any]) -> Iterator[_Entry]:
    for place, value in enumerate(values, start=1):
        where = f"{path}, entry {place}"
        if not isinstance(value, dict):
            raise InputError(f"{where}: expected an object, found {_abbreviate(value)}")
        yield _Entry(where, value)


def _read_document(path: Path | str) -> Any:
    """The JSON document in a file."""
    data = _read_unpacked(path).removeprefix(BYTE_ORDER_MARK)
    try:
        return json.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path}, line {line}: not UTF-8 (byte 0x{data[error.start]:02x}); convert the file to UTF-8"
        ) from None
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path}, line {error.lineno}, column {error.colno}: not JSON: {error.msg}"
        ) from None
    except RecursionError:
        raise InputError(f"{path}: the JSON is nested too deeply; expected the official VQA format") from None
    except ValueError:  # from int()
        raise InputError(f"{path}: a number has too many digits; expected the official VQA format") from None


def _read_unpacked(path: Path | str) -> bytes:
    """The bytes of a file, unpacked if they are gzip data. The name of the file does not matter."""
    data = read_input(path, "a JSON file")
    if not data.startswith(_GZIP):
        return data
    try:
        return gzip.decompress(data)
    except EOFError:
        raise InputError(f"{path}: the gzip data ends early; copy the file again") from None
    except (OSError, zlib.error) as error:
        raise InputError(f"{path}: damaged gzip data ({error}); copy the file again") from None


# Writing


def write_results(path: Path | str, answers: Mapping[int, str], *, overwrite: bool = False) -> None:
    """Write predicted answers in the official results format, one per line. The write is atomic."""
    path = Path(path)
    if path.exists() and not overwrite:
        raise InputError(f"{path} already exists; add --overwrite to replace it")
    lines = (json.dumps({"question_id": number, "answer": answer}) for number, answer in answers.items())
    write_text(path, "[" + ",\n ".join(lines) + "]\n")


# Using


def match_annotations(
    questions: Sequence[Question], annotations: Sequence[Annotation]
) -> list[tuple[Question, Annotation]]:
    """Each question with its annotation, in the order of the questions. Both must be about the same image."""
    asked, answered = _by_id(questions, "question"), _by_id(annotations, "annotation")
    for having, lacking, missing in ((asked, answered, "annotation"), (answered, asked, "question")):
        alone = [number for number in having if number not in lacking]
        if alone:
            raise InputError(
                f"question_id {alone[0]} has no {missing} ({len(alone)} of {len(having)} have none); "
                "pass the questions and annotations of the same split"
            )
    for question in questions:
        image_id = answered[question.question_id].image_id
        if image_id != question.image_id:
            raise InputError(
                f"question_id {question.question_id}: the question is about image {question.image_id}, "
                f"its annotation about image {image_id}; pass two files of the same version"
            )
    return [(question, answered[question.question_id]) for question in questions]


def _by_id(entries: Sequence[Entry], kind: str) -> dict[int, Entry]:
    found: dict[int, Entry] = {}
    for entry in entries:
        if found.setdefault(entry.question_id, entry) is not entry:
            raise InputError(f"question_id {entry.question_id} has more than one {kind}; remove one of them")
    return found


def answer_vocabulary(annotations: Sequence[Annotation], size: int) -> tuple[list[str], Coverage]:
    """The `size` most frequent answers (ties sorted by text), and how many of all answers they cover."""
    if size < 1 or not annotations:
        raise InputError(
            f"cannot build an answer vocabulary of size {size} from {len(annotations)} annotated questions; "
            "both must be at least 1"
        )
    votes = Counter(answer for annotation in annotations for answer in annotation.answers)
    answers = sorted(votes, key=lambda answer: (-votes[answer], answer))[:size]
    inside = set(answers)
    covered = sum(not inside.isdisjoint(annotation.answers) for annotation in annotations)
    share = sum(votes[answer] for answer in answers) / votes.total()
    return answers, Coverage(votes=share, questions=covered / len(annotations))


def words(question: str) -> list[str]:
    """The lower-case words of a question: letters and digits with inner apostrophes. The rest is dropped."""
    text = unicodedata.normalize("NFC", question).replace("\u2019", "'")
    return _WORD.findall(text.lower())


def require_words(question: str) -> None:
    """Raise unless a question has a word. Files of questions are checked in the same way."""
    if not words(question):
        raise InputError("question: there is no word in it")


def half_of(image_id: int, seed: int) -> int:
    """The half, 0 or 1, that an image belongs to. It is a hash, equal on every machine."""
    return hashlib.sha256(f"{seed} {image_id}".encode()).digest()[0] & 1
