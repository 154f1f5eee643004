"""DAQUAR (Malinowski and Fritz, 2014), questions about indoor photographs, in the official JSON format of VQA.

The id of a question is its position in `all_qa_pairs.txt`: question n is in line 2n - 1, its answer in line 2n.
The id of an image is the number in its name. Some images have no question.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from latentalign.errors import InputError
from latentalign.storage import explain_write_errors
from latentalign.textfiles import read_lines

PAIRS = "all_qa_pairs.txt"
LISTS = {"train": "train_images_list.txt", "test": "test_images_list.txt"}
IMAGES = "images"
SPLITS = ("train", "valid", "test")
SEED = 0
_NAME = re.compile(r"image([0-9]{1,9})")


@dataclass(frozen=True)
class Part:
    """Sizes of a split: questions, questions whose answer names several things, and images with a question."""

    questions: int
    several: int
    images: int


@dataclass(frozen=True)
class _Pair:
    """A question and its answer."""

    question_id: int
    image_id: int
    question: str
    answer: str


def convert(source: Path, out: Path, *, overwrite: bool = False) -> dict[str, Part]:
    """Write questions.SPLIT.json and annotations.SPLIT.json for train, valid and test, which share no image.

    About a tenth of the training images, chosen by a hash, are for validation. Replaces files only with `overwrite`.
    The folder of photographs is linked, so that reports can show them.
    """
    names = [f"{kind}.{split}.json" for kind in ("questions", "annotations") for split in SPLITS]
    present = [out / name for name in names if (out / name).exists()]
    if present and not overwrite:
        raise InputError(f"{present[0]} already exists; choose another folder, or add --overwrite")
    splits = _read_splits(source)
    pairs: dict[str, list[_Pair]] = {split: [] for split in SPLITS}
    for pair in _read_pairs(source / PAIRS):
        if pair.image_id not in splits:
            raise InputError(
                f"{source / PAIRS}, line {2 * pair.question_id - 1}: image{pair.image_id} is in neither "
                f"{LISTS['train']} nor {LISTS['test']}"
            )
        pairs[splits[pair.image_id]].append(pair)
    documents = {}
    for split, members in pairs.items():
        documents[f"questions.{split}.json"] = {"questions": [_question(pair) for pair in members]}
        documents[f"annotations.{split}.json"] = {"annotations": [_annotation(pair) for pair in members]}
    _write(out, documents)
    _link_images(source / IMAGES, out / IMAGES)
    return {split: _sizes(members) for split, members in pairs.items()}


def _read_splits(source: Path) -> dict[int, str]:
    """The split of each listed image."""
    found: dict[int, str] = {}
    for split, name in LISTS.items():
        for number, line in enumerate(read_lines(source / name), start=1):
            where, match = f"{source / name}, line {number}", _NAME.fullmatch(line.strip())
            if match is None:
                raise InputError(f"{where}: expected a name such as image12, found {line[:40]!r}")
            image_id = int(match[1])
            if image_id in found:
                raise InputError(f"{where}: image{image_id} is listed twice; each image has one split")
            found[image_id] = "valid" if split == "train" and _is_validation(image_id) else split
    return found


def _is_validation(image_id: int) -> bool:
    """Whether a training image is for validation. One in ten is."""
    return int.from_bytes(hashlib.sha256(f"{SEED} {image_id}".encode()).digest()[:8], "big") % 10 == 0


def _read_pairs(path: Path) -> Iterator[_Pair]:
    """The pairs of a file in which questions and answers alternate."""
    lines = read_lines(path)
    for number, (question, answer) in enumerate(zip_longest(lines, lines), start=1):
        parsed = _parse_question(question)
        if parsed is None:
            raise InputError(
                f"{path}, line {2 * number - 1}: expected a question such as `what is red in the image12 ?`, "
                f"found {question[:80]!r}"
            )
        if answer is None:
            raise InputError(f"{path}, line {2 * number - 1}: a question has no answer in the next line")
        things = [" ".join(thing.split()) for thing in answer.split(",")]
        if not all(things):
            raise InputError(
                f"{path}, line {2 * number}: expected an answer, or several separated by commas, "
                f"found {answer[:80]!r}"
            )
        yield _Pair(number, parsed[1], question=parsed[0], answer=", ".join(things))


def _parse_question(line: str) -> tuple[str, int] | None:
    """The question of a line without the image at its end, and that image; None if one of them is missing."""
    words = line.strip().removesuffix("?").split()
    image = _NAME.fullmatch(words.pop()) if line.rstrip().endswith("?") and words else None
    for endings in (("the", "this"), ("in", "on", "of")):
        if words and words[-1] in endings:
            words.pop()
    if image is None or not words:
        return None
    # A few questions name the image again, which would reveal it.
    return " ".join("image" if _NAME.fullmatch(word) else word for word in words) + "?", int(image[1])


def _question(pair: _Pair) -> dict[str, Any]:
    return {"question_id": pair.question_id, "image_id": pair.image_id, "question": pair.question}


def _annotation(pair: _Pair) -> dict[str, Any]:
    """The annotation of a question. Its type is its first two words, and it has one human answer."""
    return {
        "question_id": pair.question_id,
        "image_id": pair.image_id,
        "question_type": " ".join(pair.question.removesuffix("?").lower().split()[:2]),
        "answer_type": "number" if re.fullmatch("[0-9]+", pair.answer) else "other",
        "multiple_choice_answer": pair.answer,
        "answers": [{"answer_id": 1, "answer": pair.answer, "answer_confidence": "yes"}],
    }


def _sizes(pairs: list[_Pair]) -> Part:
    """The sizes of a split."""
    several = sum("," in pair.answer for pair in pairs)
    return Part(len(pairs), several=several, images=len({pair.image_id for pair in pairs}))


def _write(out: Path, documents: dict[str, Any]) -> None:
    """Write JSON files. They get their names only when all are complete."""
    with explain_write_errors(out, 0):
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out, prefix=".building-") as building:
            for name, document in documents.items():
                (Path(building) / name).write_text(json.dumps(document) + "\n", "utf-8")
            for name in documents:
                os.replace(Path(building) / name, out / name)


def _link_images(photographs: Path, link: Path) -> None:
    """Link the folder of photographs, unless there is none or something else has its name already."""
    if photographs.is_dir() and not os.path.lexists(link):
        with suppress(OSError):  # a file system without links: reports say that pictures are missing
            link.symlink_to(photographs.resolve(), target_is_directory=True)
