"""Reading region features beside a training step at the paper's sizes, and the memory it takes.

    python benchmarks/feature_reading.py FOLDER [gigabytes]

Writes a features file of random numbers into FOLDER (2 GB unless told), trains a few steps of soft attention on random
questions about its pictures, prints the share of a step that is reading and how resident memory grew, and deletes
what it wrote.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from latentalign import config as recipes
from latentalign.data.region_features import FeatureWriter
from latentalign.tasks.vqa.data import Corpus
from latentalign.tasks.vqa.recipe import VQAConfig
from latentalign.tasks.vqa.task import ANSWERING
from latentalign.training.distributed import World
from latentalign.training.run import Run

REGIONS, SIZE, QUESTIONS = 36, 2048, 4096


def write_questions(folder: Path, pictures: int) -> None:
    """Random questions about random pictures, ten answers each."""
    random = np.random.default_rng(0)
    words = [f"w{k}" for k in range(2000)]
    questions, annotations = [], []
    for i in range(QUESTIONS):
        image = int(random.integers(pictures))
        text = " ".join(random.choice(words, 7)) + "?"
        questions.append({"question_id": i, "image_id": image, "question": text})
        answers = [
            {"answer_id": k, "answer": f"a{random.integers(3000)}", "answer_confidence": "yes"}
            for k in range(10)
        ]
        annotations.append(
            {
                "question_id": i,
                "image_id": image,
                "question_type": "q",
                "answer_type": "other",
                "answers": answers,
            }
        )
    (folder / "questions.json").write_text(json.dumps({"questions": questions}))
    (folder / "annotations.json").write_text(json.dumps({"annotations": annotations}))


def write_features(path: Path, pictures: int) -> None:
    """As many pictures as make the file large."""
    random = np.random.default_rng(0)
    block = random.standard_normal((REGIONS, SIZE)).astype(np.float32)
    boxes = np.tile(np.float32([0, 0, 1, 1]), (REGIONS, 1))
    with FeatureWriter(path, layout="random") as writer:
        for image in range(pictures):
            writer.add(image, np.roll(block, image, axis=1), boxes)
    os.sync()  # a file that is still being written to disk reads slower than one that is there


def resident() -> float:
    """Megabytes of this process that are in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def main() -> None:
    gigabytes = float(sys.argv[2]) if len(sys.argv) > 2 else 2.0
    pictures = max(64, round(gigabytes * 2**30 / (REGIONS * SIZE * 4)))
    with tempfile.TemporaryDirectory(dir=sys.argv[1]) as name:
        folder = Path(name)
        write_features(folder / "random.safetensors", pictures)
        write_questions(folder, pictures)
        measure(folder, folder / "random.safetensors")


def measure(folder: Path, features: Path) -> None:
    files = {
        "questions": folder / "questions.json",
        "annotations": folder / "annotations.json",
        "features": features,
    }
    settings = [f"data.{s}.{k}={v}" for s in ("train", "valid", "test") for k, v in files.items()]
    config = recipes.load("vqa/vqa2", VQAConfig, [*settings, "data.valid.part=all", "objective.name=soft"])
    run = Run(folder / "run")
    run.folder.mkdir(exist_ok=True)
    data = ANSWERING.prepare(config, run, World())
    corpus: Corpus = data.train
    model = ANSWERING.build_model(config, data.vocabulary)
    objective = config.objective.build()
    answers = corpus.draw_answers(0, 0)
    usable = corpus.answerable
    reading, stepping, memory = [], [], []
    for start in range(0, 4 * 512, 512):
        index = usable[start : start + 512]
        before = time.perf_counter()
        batch = corpus.batch(index, answers[index])
        between = time.perf_counter()
        objective(model.latent(batch)).surrogate.sum().backward()
        reading.append(between - before)
        stepping.append(time.perf_counter() - before)
        memory.append(resident())
    reading, stepping = reading[1:], stepping[1:]  # the first does some things for the first time
    share = sum(reading) / sum(stepping)
    before = resident()
    for start in range(0, len(usable), 256):  # every picture that is asked about
        index = usable[start : start + 256]
        corpus.batch(index, answers[index])
    print(f"features file: {features.stat().st_size / 2**30:.2f} GB, {len(corpus.features)} pictures")
    print(
        f"reading: {1000 * np.median(reading):.0f} ms of a step of {np.median(stepping):.2f} s, {100 * share:.1f} %"
    )
    print(
        f"resident memory: {max(memory):.0f} MB in training; {resident() - before:+.0f} MB after reading everything"
    )


if __name__ == "__main__":
    main()
