"""Questions, human answers and predicted answers in the official JSON layouts of VQA, plain or gzip."""

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

from latentalign.errors import InputError, StorageError
from latentalign.storage import write_bytes
from latentalign.textfiles import BYTE_ORDER_MARK

LARGEST_ID = 2**63 - 1  # what the tables of image features can hold
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
    """What people answered to a question, its kinds, and the gold boxes x1, y1, x2, y2 that the answer rests on."""

    question_id: int
    image_id: int
    question_type: str
    answer_type: str
    answers: tuple[str, ...]
    regions: tuple[Box, ...]


@dataclass(frozen=True)
class Coverage:
    """The share of human answers inside a vocabulary, and of questions with at least one of theirs inside."""

    votes: float
    questions: float


Entry = TypeVar("Entry", Question, Annotation)


# Reading


def read_questions(path: Path | str) -> list[Question]:
    """The questions of a file, in its order."""
    return [
        Question(number, entry.number("image_id"), entry.text("question"))
        for number, entry in _numbered(_listed(path, "questions"))
    ]


def read_annotations(path: Path | str) -> list[Annotation]:
    """The human answers of a file, in its order."""
    return [
        Annotation(
            number,
            entry.number("image_id"),
            question_type=sys.intern(entry.text("question_type")),
            answer_type=sys.intern(entry.text("answer_type")),
            answers=entry.answers(),
            regions=entry.regions(),
        )
        for number, entry in _numbered(_listed(path, "annotations"))
    ]


def read_results(path: Path | str) -> dict[int, str]:
    """The predicted answer of each question of a file in the official results layout, by question id."""
    document = _document(path)
    if not isinstance(document, list):
        raise InputError(
            f'{path}: expected a list of {{"question_id": ..., "answer": ...}}, found {_shown(document)}'
        )
    return {number: entry.text("answer") for number, entry in _numbered(_entries(path, document))}


@dataclass(frozen=True)
class _Entry:
    """One object of a file, and checks of what stands in it."""

    where: str  # file and entry, as messages give them
    values: dict[str, Any]

    def error(self, key: str, expected: str, found: Any) -> InputError:
        return InputError(f"{self.where}: key {key!r}: expected {expected}, found {_shown(found)}")

    def value(self, key: str) -> Any:
        if key not in self.values:
            raise InputError(f"{self.where}: no key {key!r}; each entry needs one")
        return self.values[key]

    def number(self, key: str) -> int:
        value = self.value(key)
        if type(value) is not int or not 0 <= value <= LARGEST_ID:
            raise self.error(key, f"an integer from 0 to {LARGEST_ID}", value)
        return value

    def text(self, key: str) -> str:
        value = self.value(key)
        if not _is_text(value):
            raise self.error(key, "a text", value)
        return value

    def answers(self) -> tuple[str, ...]:
        """The answers of all people; equal texts are kept in memory once."""
        found = self.value("answers")
        if not isinstance(found, list) or not found:
            raise self.error("answers", "a list of at least one answer", found)
        for place, answer in enumerate(found, start=1):
            if not isinstance(answer, dict) or not _is_text(answer.get("answer")):
                raise self.error("answers", f'{{"answer": text}} as number {place}', answer)
        return tuple(sys.intern(answer["answer"]) for answer in found)

    def regions(self) -> tuple[Box, ...]:
        """The gold boxes, none where the key is absent."""
        found = self.values.get("regions", [])
        if not isinstance(found, list):
            raise self.error("regions", "a list of boxes", found)
        for place, box in enumerate(found, start=1):
            if not _is_box(box):
                expected = f"[x1, y1, x2, y2] with 0 <= x1 < x2 <= 1 and 0 <= y1 < y2 <= 1 as box {place}"
                raise self.error("regions", expected, box)
        return tuple((float(x1), float(y1), float(x2), float(y2)) for x1, y1, x2, y2 in found)


def _is_text(value: Any) -> bool:
    """Whether a value is a text that can be written again: half a surrogate pair cannot."""
    return isinstance(value, str) and (value.isascii() or not re.search("[\ud800-\udfff]", value))


def _is_box(value: Any) -> bool:
    if not isinstance(value, list) or [type(side) in (int, float) for side in value] != [True] * 4:
        return False
    x1, y1, x2, y2 = value
    return 0 <= x1 < x2 <= 1 and 0 <= y1 < y2 <= 1  # false for NaN, too


def _shown(value: Any) -> str:
    """A value as a message gives it: short, and as JSON writes it if it is a single one."""
    if isinstance(value, dict):
        return f"an object with the keys {list(value)[:4]}"[:100]
    if isinstance(value, list) and len(value) > 4:
        return f"a list of {len(value)} values"
    whole = json.dumps(value)
    return whole if len(whole) <= 60 else whole[:60] + "..."


def _numbered(entries: Iterator[_Entry]) -> Iterator[tuple[int, _Entry]]:
    """Each entry with its question id; an id must not stand in the file twice."""
    first: dict[int, str] = {}
    for entry in entries:
        number = entry.number("question_id")
        if number in first:
            raise InputError(
                f"{entry.where}: question_id {number} again, after {first[number]}; remove one of them"
            )
        first[number] = entry.where.rpartition(", ")[2]
        yield number, entry


def _listed(path: Path | str, key: str) -> Iterator[_Entry]:
    """The entries of the list that stands under a key of a file."""
    document = _document(path)
    if not isinstance(document, dict) or not isinstance(document.get(key), list):
        raise InputError(f'{path}: expected an object {{"{key}": [...]}}, found {_shown(document)}')
    return _entries(path, document[key])


def _entries(path: Path | str, values: list[Any]) -> Iterator[_Entry]:
    for place, value in enumerate(values, start=1):
        where = f"{path}, entry {place}"
        if not isinstance(value, dict):
            raise InputError(f"{where}: expected an object, found {_shown(value)}")
        yield _Entry(where, value)


def _document(path: Path | str) -> Any:
    """The JSON document of a file."""
    data = _content(path).removeprefix(BYTE_ORDER_MARK)
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
        raise InputError(f"{path}: JSON nested too deeply; expected the official VQA layout") from None
    except ValueError:  # from int()
        raise InputError(f"{path}: a number with too many digits; expected the official VQA layout") from None


def _content(path: Path | str) -> bytes:
    """The bytes of a file, unpacked if they are gzip's, whatever its name."""
    try:
        data = Path(path).read_bytes()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, ValueError):
        # A ValueError: a name that no file can have, say with a NUL in it.
        raise InputError(f"{path}: no such file; check the path") from None
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror or error}") from error
    if not data.startswith(_GZIP):
        return data
    try:
        return gzip.decompress(data)
    except EOFError:
        raise InputError(f"{path}: the gzip data ends early; get the file again") from None
    except (OSError, zlib.error) as error:
        raise InputError(f"{path}: damaged gzip data ({error}); get the file again") from None


# Writing


def write_results(path: Path | str, answers: Mapping[int, str], *, overwrite: bool = False) -> None:
    """Writes predicted answers in the official results layout, a line each; the file appears when complete."""
    path = Path(path)
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists already; add --overwrite to replace it")
    lines = (json.dumps({"question_id": number, "answer": answer}) for number, answer in answers.items())
    write_bytes(path, ("[" + ",\n ".join(lines) + "]\n").encode())


# Using


def matched(
    questions: Sequence[Question], annotations: Sequence[Annotation]
) -> list[tuple[Question, Annotation]]:
    """Each question with its annotation, in the order of the questions; both must be about the same image."""
    asked, answered = _by_id(questions, "question"), _by_id(annotations, "annotation")
    for having, lacking, missing in ((asked, answered, "annotation"), (answered, asked, "question")):
        alone = [number for number in having if number not in lacking]
        if alone:
            raise InputError(
                f"question_id {alone[0]} has no {missing} (in all {len(alone)} of {len(having)} have none); "
                "give the questions and annotations of the same split"
            )
    for question in questions:
        image_id = answered[question.question_id].image_id
        if image_id != question.image_id:
            raise InputError(
                f"question_id {question.question_id}: the question is about image {question.image_id}, "
                f"its annotation about image {image_id}; give the two files of the same version"
            )
    return [(question, answered[question.question_id]) for question in questions]


def _by_id(entries: Sequence[Entry], kind: str) -> dict[int, Entry]:
    found: dict[int, Entry] = {}
    for entry in entries:
        if found.setdefault(entry.question_id, entry) is not entry:
            raise InputError(f"question_id {entry.question_id} has more than one {kind}; remove one of them")
    return found


def answer_vocabulary(annotations: Sequence[Annotation], size: int) -> tuple[list[str], Coverage]:
    """The answers that most people gave, at most `size`, ties by text, and how much of all answers they cover."""
    if size < 1 or not annotations:
        raise InputError(
            f"an answer vocabulary of size {size} from {len(annotations)} annotated questions; "
            "both must be at least 1"
        )
    votes = Counter(answer for annotation in annotations for answer in annotation.answers)
    answers = sorted(votes, key=lambda answer: (-votes[answer], answer))[:size]
    inside = set(answers)
    covered = sum(not inside.isdisjoint(annotation.answers) for annotation in annotations)
    share = sum(votes[answer] for answer in answers) / votes.total()
    return answers, Coverage(votes=share, questions=covered / len(annotations))


def words(question: str) -> list[str]:
    """The lower-case words of a question: runs of letters and digits, with apostrophes inside; the rest is dropped."""
    text = unicodedata.normalize("NFC", question).replace("\u2019", "'")
    return _WORD.findall(text.lower())


def part_of(image_id: int, seed: int) -> int:
    """0 or 1, the half that an image belongs to: a hash, the same on every machine."""
    return hashlib.sha256(f"{seed} {image_id}".encode()).digest()[0] & 1
