"""Readers of questions about pictures and of region features."""

from __future__ import annotations

import base64
import gzip
import json
import tempfile
from functools import cache, partial
from pathlib import Path
from random import Random

import numpy as np

from fuzz.fuzzer import Reader, write_file
from latentalign.data.region_features import Features, write_features
from latentalign.tasks.vqa import layouts
from latentalign.tasks.vqa.accuracy import accuracies
from latentalign.tasks.vqa.questions import read_annotations, read_questions, read_results, write_results
from latentalign.tasks.vqa.vectors import read_vectors


def question_files() -> list[bytes]:
    asked = [{"question_id": n, "image_id": n // 2, "question": f"what ist das {n}?"} for n in range(4)]
    plain = json.dumps({"questions": asked}).encode()
    return [plain, gzip.compress(plain, mtime=0), b'{"questions": []}']


def annotation_files() -> list[bytes]:
    answers = [
        {"answer_id": k, "answer": "ja" if k % 3 else "nein", "answer_confidence": "yes"} for k in range(10)
    ]
    common = {"question_type": "what", "answer_type": "other", "answers": answers}
    given = [
        {"question_id": n, "image_id": n // 2, "regions": [[0.1, 0.2, 0.5, 0.75]][:n], **common}
        for n in range(3)
    ]
    return [json.dumps({"annotations": given}).encode()]


def result_files() -> list[bytes]:
    return [json.dumps([{"question_id": n, "answer": "zwei Hunde"} for n in range(3)]).encode(), b"[]"]


def check_questions(data: bytes, random: Random, folder: Path) -> None:
    """Ids are distinct numbers and every question is text."""
    found = read_questions(write_file(folder, "questions", data))
    assert len({q.question_id for q in found}) == len(found), "an id twice"
    assert all(isinstance(q.question, str) and isinstance(q.image_id, int) for q in found)


def check_annotations(data: bytes, random: Random, folder: Path) -> None:
    """Boxes lie within the picture, and accuracies are shares."""
    found = read_annotations(write_file(folder, "annotations", data))
    assert all(0 <= x <= 1 for a in found for box in a.regions for x in box), "a box beyond the picture"
    scores = accuracies({a.question_id: "ja" for a in found}, found) if found else None
    assert scores is None or 0 <= scores.paper <= 1


def check_results(data: bytes, random: Random, folder: Path) -> None:
    """What is read is read back as it was."""
    found = read_results(write_file(folder, "results", data))
    write_results(folder / "again", found, overwrite=True)
    assert read_results(folder / "again") == found, "written answers are read differently"


@cache
def _regions() -> list[tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(0)
    boxes = np.float32([[1, 2, 30, 40], [5, 5, 60, 50]])
    return [(random.standard_normal((2, 3)).astype(np.float32), boxes) for _ in range(3)]


def tsv_files(layout: str) -> list[bytes]:
    lines = []
    for number, (features, boxes) in enumerate(_regions()):
        encoded = [base64.b64encode(x.tobytes()).decode() for x in (boxes, features)]
        first = (
            [str(number), "64", "64"]
            if layout == "bottom-up"
            else [f"COCO_val_{number}", "64", "64", *"abcd"]
        )
        lines.append("\t".join([*first, "2", *encoded]))
    return ["\n".join(lines).encode(), (lines[0] + "\n").encode()]


def check_tsv(layout: str, data: bytes, random: Random, folder: Path) -> None:
    """Regions are finite and each has a box; what is read can be written and read in place."""
    found = list(layouts.read(write_file(folder, "features.tsv", data), layout))
    for _, features, boxes in found:
        assert np.isfinite(features).all(), "features that are no numbers"
        assert features.shape[0] == boxes.shape[0] == len(boxes), "regions without boxes"
    if found:
        write_features(folder / "again", found, layout=layout, overwrite=True)
        assert len(Features(folder / "again")) == len(found), "pictures are lost"


@cache
def _feature_files() -> list[bytes]:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "features"
        pictures = [(n, features, boxes / 64) for n, (features, boxes) in enumerate(_regions())]
        write_features(path, pictures, layout="test")
        return [path.read_bytes()]


def check_features(data: bytes, random: Random, folder: Path) -> None:
    """Every picture of a file that is opened can be read."""
    with Features(write_file(folder, "features.safetensors", data)) as found:
        if len(found):
            features, mask, _ = found.batch(list(range(len(found))))
            assert features.shape[:2] == mask.shape


def vector_files() -> list[bytes]:
    return [b"der 0.5 1 -2\nHund 1e-3 2 3\n", b"2 3\nHund 1 2 3"]


def check_vectors(data: bytes, random: Random, folder: Path) -> None:
    """Vectors of the asked size for the words that were found."""
    vectors, found = read_vectors(write_file(folder, "vectors", data), ["der", "Hund"], 3)
    assert vectors.shape == (2, 3)
    assert bool(found.any())


PICTURE_READERS = (
    Reader("questions.json", question_files, check_questions),
    Reader("annotations.json", annotation_files, check_annotations),
    Reader("results.json", result_files, check_results),
    *(
        Reader(f"features, {layout}", partial(tsv_files, layout), partial(check_tsv, layout))
        for layout in ("bottom-up", "lxmert")
    ),
    Reader("features.safetensors", _feature_files, check_features),
    Reader("text vectors", vector_files, check_vectors),
)
