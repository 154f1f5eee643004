"""The embedded visual data: pictures of colored shapes, questions about them, and where the answers are seen.

Everything is drawn at random and known by construction, so that each question has gold regions; the features of
a region are nevertheless computed from its pixels and its box alone. `python -m latentalign.data.scenes` shows
a few questions.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import safetensors.numpy
from jaxtyping import Float32, UInt8
from PIL import Image

from latentalign.data.scenes_world.crowd import answers
from latentalign.data.scenes_world.pictures import paint
from latentalign.data.scenes_world.questions import Question, ask
from latentalign.data.scenes_world.regions import propose, region_features
from latentalign.data.scenes_world.things import Thing, draw_scene
from latentalign.errors import InputError

__all__ = ["SPLITS", "Picture", "Sizes", "generate", "region_features", "write"]

SPLITS = ("train", "valid", "test")
MOST_PICTURES, MOST_QUESTIONS = 99_999, 20  # of a split; of a picture


@dataclass(frozen=True)
class Sizes:
    """How many pictures each split has, and how many questions are asked about each picture."""

    train: int = 2400
    valid: int = 300
    test: int = 500
    questions: int = 5

    def __post_init__(self) -> None:
        limits = dict.fromkeys(SPLITS, MOST_PICTURES) | {"questions": MOST_QUESTIONS}
        for name, most in limits.items():
            if not 1 <= getattr(self, name) <= most:
                raise InputError(f"{name} is {getattr(self, name)}; choose a number from 1 to {most}")


@dataclass(frozen=True, eq=False)  # arrays have no single truth value
class Picture:
    """A picture with its image id, the things it shows, its regions and its questions with ten answers each."""

    image_id: int
    things: tuple[Thing, ...]
    pixels: UInt8[np.ndarray, "H W 3"]
    boxes: Float32[np.ndarray, "n 4"]
    questions: tuple[Question, ...]
    answers: tuple[tuple[str, ...], ...]


def generate(sizes: Sizes, *, seed: int = 0) -> Iterator[tuple[str, Picture]]:
    """All pictures with the names of their splits, test first; no two are equal.

    A split does not change with the sizes of those after it.
    """
    seen: set[bytes] = set()
    for split in reversed(SPLITS):
        rng = Random(f"scenes {split} {seed}")
        first_id = 100_000 * (1 + SPLITS.index(split))
        for image_id in range(first_id, first_id + getattr(sizes, split)):
            yield split, _draw(image_id, sizes.questions, rng, seen)


def _draw(image_id: int, count: int, rng: Random, seen: set[bytes]) -> Picture:
    """A picture that is not among those seen, with as many questions as asked for."""
    while True:
        things = draw_scene(rng)
        pixels = paint(things, rng)
        questions = ask(things, count, rng)
        key = hashlib.sha256(pixels.tobytes()).digest()
        if len(questions) == count and key not in seen:
            seen.add(key)
            boxes = propose([thing.box() for thing in things], rng)
            said = tuple(tuple(answers(question.answer, rng)) for question in questions)
            return Picture(image_id, things, pixels, boxes, tuple(questions), said)


def write(folder: Path, sizes: Sizes = Sizes(), *, seed: int = 0, overwrite: bool = False) -> None:  # noqa: B008
    """Writes images/, and questions, annotations and features of every split; a folder with files is refused.

    Told to overwrite, it replaces what it wrote there before and leaves other files alone.
    """
    if folder.is_dir() and any(folder.iterdir()) and not overwrite:
        raise InputError(f"{folder} has files already; choose another folder, or add --overwrite")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; choose a folder")
    images = folder / "images"
    images.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        for former in images.glob(f"{split}_[0-9]*.png"):
            former.unlink()
    collected = {split: _Split() for split in SPLITS}
    for split, picture in generate(sizes, seed=seed):
        _replace(images / f"{split}_{picture.image_id:06d}.png", _png(picture.pixels))
        collected[split].add(picture)
    for split, content in collected.items():
        _replace(folder / f"questions.{split}.json", _json({"questions": content.questions}))
        _replace(folder / f"annotations.{split}.json", _json({"annotations": content.annotations}))
        _replace(folder / f"features.{split}.safetensors", content.tensors())


class _Split:
    """What the files of one split hold, except its pictures."""

    def __init__(self) -> None:
        self.questions: list[dict[str, Any]] = []
        self.annotations: list[dict[str, Any]] = []
        self.features: list[np.ndarray] = []
        self.boxes: list[np.ndarray] = []
        self.image_ids: list[int] = []

    def add(self, picture: Picture) -> None:
        """Takes up the questions, answers and regions of a picture."""
        for number, (question, said) in enumerate(zip(picture.questions, picture.answers, strict=True)):
            ids = {"question_id": 100 * picture.image_id + number, "image_id": picture.image_id}
            self.questions.append({**ids, "question": question.text})
            self.annotations.append({**ids, **_annotation(question, said)})
        self.features.append(region_features(picture.pixels, picture.boxes))
        self.boxes.append(picture.boxes)
        self.image_ids.append(picture.image_id)

    def tensors(self) -> bytes:
        """The features file."""
        features = np.concatenate(self.features)
        arrays = {
            "features": features,
            "boxes": np.concatenate(self.boxes),
            "offsets": np.cumsum([0, *map(len, self.boxes)], dtype=np.int64),
            "image_ids": np.array(self.image_ids, dtype=np.int64),
        }
        size = str(features.shape[1])
        metadata = {"format": "latentalign-features", "version": "1", "layout": "scenes", "size": size}
        return _tensor_bytes(arrays, metadata)


def _annotation(question: Question, said: tuple[str, ...]) -> dict[str, Any]:
    """The official fields of an annotation but the ids, and the gold regions."""
    return {
        "question_type": question.kind,
        "answer_type": question.answer_type,
        "multiple_choice_answer": question.answer,
        "answers": [
            {"answer_id": number, "answer": answer, "answer_confidence": "yes"}
            for number, answer in enumerate(said, start=1)
        ],
        "regions": [[round(side, 5) for side in thing.box()] for thing in question.about],
    }


def _tensor_bytes(arrays: dict[str, np.ndarray], metadata: dict[str, str]) -> bytes:
    """A safetensors file whose metadata is in a fixed order, which that of the library is not."""
    data = safetensors.numpy.save(arrays, metadata)
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start]) | {"__metadata__": metadata}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[start:]


def _png(pixels: UInt8[np.ndarray, "H W 3"]) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format="png", compress_level=1)
    return stream.getvalue()


def _json(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, separators=(",", ":")) + "\n").encode()


def _replace(path: Path, data: bytes) -> None:
    """Writes a file under another name first, so that a half-written one is never taken for it."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def main() -> None:
    """Shows the questions of five pictures with their right answers."""
    for split, picture in generate(Sizes(train=1, valid=1, test=3), seed=0):
        print(f"{split} {picture.image_id}: {len(picture.things)} things, {len(picture.boxes)} regions")
        for question in picture.questions:
            print(f"  {question.kind:>10}  {question.text}  {question.answer}")


if __name__ == "__main__":
    main()
