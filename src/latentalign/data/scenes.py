"""The embedded visual data: pictures of colored shapes, questions about them, and the regions that show the answers.

Everything is generated at random, so the gold regions of each question are known. The features of a region are
computed only from its pixels and its box. `python -m latentalign.data.scenes` prints a few questions.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from jaxtyping import Float32, UInt8
from PIL import Image

from latentalign.data.region_features import Regions, write_features
from latentalign.data.scenes_world.crowd import draw_answers
from latentalign.data.scenes_world.pictures import paint
from latentalign.data.scenes_world.questions import Question, ask
from latentalign.data.scenes_world.regions import propose, region_features
from latentalign.data.scenes_world.things import Thing, draw_scene
from latentalign.errors import InputError
from latentalign.storage import write_bytes, write_text

__all__ = ["SPLITS", "Picture", "Sizes", "generate", "region_features", "write"]

SPLITS = ("train", "valid", "test")
MOST_PICTURES, MOST_QUESTIONS = 99_999, 20
"""Largest number of pictures in a split, and of questions about a picture."""


@dataclass(frozen=True)
class Sizes:
    """How many pictures each split has, and how many questions are asked about each picture."""

    train: int = 9600
    valid: int = 300
    test: int = 500
    questions: int = 5

    def __post_init__(self) -> None:
        limits = dict.fromkeys(SPLITS, MOST_PICTURES) | {"questions": MOST_QUESTIONS}
        for name, most in limits.items():
            if not 1 <= getattr(self, name) <= most:
                raise InputError(f"{name} is {getattr(self, name)}; choose a number from 1 to {most}")


@dataclass(frozen=True, eq=False)  # comparing arrays gives no single truth value
class Picture:
    """A picture: its image id, the things in it, its regions, and its questions with ten answers each."""

    image_id: int
    things: tuple[Thing, ...]
    pixels: UInt8[np.ndarray, "H W 3"]
    boxes: Float32[np.ndarray, "n 4"]
    questions: tuple[Question, ...]
    answers: tuple[tuple[str, ...], ...]


def generate(sizes: Sizes, *, seed: int = 0) -> Iterator[tuple[str, Picture]]:
    """All pictures with the names of their splits, test first. No two pictures are equal.

    The pictures of a split do not depend on the sizes of later splits.
    """
    seen: set[bytes] = set()
    for split in reversed(SPLITS):
        rng = Random(f"scenes {split} {seed}")
        first_id = 100_000 * (1 + SPLITS.index(split))
        for image_id in range(first_id, first_id + getattr(sizes, split)):
            yield split, _draw(image_id, sizes.questions, rng, seen)


def _draw(image_id: int, count: int, rng: Random, seen: set[bytes]) -> Picture:
    """A new picture with `count` questions. `seen` contains the hashes of earlier pictures."""
    while True:
        things = draw_scene(rng)
        pixels = paint(things, rng)
        questions = ask(things, count, rng)
        key = hashlib.sha256(pixels.tobytes()).digest()
        if len(questions) == count and key not in seen:
            seen.add(key)
            boxes = propose([thing.box() for thing in things], rng)
            given = tuple(tuple(draw_answers(question.answer, rng)) for question in questions)
            return Picture(image_id, things, pixels, boxes, tuple(questions), given)


def write(folder: Path, sizes: Sizes = Sizes(), *, seed: int = 0, overwrite: bool = False) -> None:  # noqa: B008
    """Write images/ and the questions, annotations and features of every split.

    The folder must be empty. With `overwrite`, files that were written before are replaced; other files stay.
    """
    if folder.is_dir() and any(folder.iterdir()) and not overwrite:
        raise InputError(f"{folder} is not empty; choose another folder, or add --overwrite")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; choose a folder")
    images = folder / "images"
    images.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        for former in images.glob(f"{split}_[0-9]*.png"):
            former.unlink()
    collected = {split: _Split() for split in SPLITS}
    for split, picture in generate(sizes, seed=seed):
        write_bytes(images / f"{split}_{picture.image_id:06d}.png", _png(picture.pixels), durable=False)
        collected[split].add(picture)
    for split, content in collected.items():
        write_text(folder / f"questions.{split}.json", _json({"questions": content.questions}))
        write_text(folder / f"annotations.{split}.json", _json({"annotations": content.annotations}))
        path = folder / f"features.{split}.safetensors"
        write_features(path, content.regions, layout="scenes", max_regions=0, overwrite=True)


class _Split:
    """The questions, answers and regions of one split."""

    def __init__(self) -> None:
        self.questions: list[dict[str, Any]] = []
        self.annotations: list[dict[str, Any]] = []
        self.regions: list[Regions] = []

    def add(self, picture: Picture) -> None:
        """Add the questions, answers and regions of a picture."""
        for number, (question, answers) in enumerate(zip(picture.questions, picture.answers, strict=True)):
            ids = {"question_id": 100 * picture.image_id + number, "image_id": picture.image_id}
            self.questions.append({**ids, "question": question.text})
            self.annotations.append({**ids, **_annotation(question, answers)})
        features = region_features(picture.pixels, picture.boxes)
        self.regions.append((picture.image_id, features, picture.boxes))


def _annotation(question: Question, answers: tuple[str, ...]) -> dict[str, Any]:
    """The official fields of an annotation, except the ids, and the gold regions."""
    return {
        "question_type": question.kind,
        "answer_type": question.answer_type,
        "multiple_choice_answer": question.answer,
        "answers": [
            {"answer_id": number, "answer": answer, "answer_confidence": "yes"}
            for number, answer in enumerate(answers, start=1)
        ],
        "regions": [[round(side, 5) for side in thing.box()] for thing in question.about],
    }


def _png(pixels: UInt8[np.ndarray, "H W 3"]) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format="png", compress_level=1)
    return stream.getvalue()


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":")) + "\n"


def main() -> None:
    """Print the questions of five pictures with their correct answers."""
    for split, picture in generate(Sizes(train=1, valid=1, test=3), seed=0):
        print(f"{split} {picture.image_id}: {len(picture.things)} things, {len(picture.boxes)} regions")
        for question in picture.questions:
            print(f"  {question.kind:>10}  {question.text}  {question.answer}")


if __name__ == "__main__":
    main()
