"""Tiny data of both tasks, and trainers that stand before their first step."""

from __future__ import annotations

import pytest
import torch

from latentalign import config as recipes
from latentalign.data import demo, scenes
from latentalign.tasks.nmt.task import TRANSLATION
from latentalign.tasks.vqa.experiment import scenes_settings
from latentalign.tasks.vqa.recipe import VQAConfig
from latentalign.tasks.vqa.task import ANSWERING
from latentalign.training.distributed import World
from latentalign.training.phases import Phase
from latentalign.training.run import Run
from support.nmt import tiny
from support.static_shapes import compute_as_on_a_gpu

VQA_SIZES = [
    "model.embedding=8",
    "model.question_size=12",
    "model.attention_size=10",
    "model.head_size=16",
    "inference.answer_embedding=6",
    "inference.size=10",
    "training.batch_sentences=8",
    "training.threads=1",
]
NMT_SIZES = ["training.batch_sentences=4", "model.max_logits=20000"]
"""Few sentences, and logits in several pieces."""


@pytest.fixture
def on_a_gpu(monkeypatch):
    """Take the path of a GPU."""
    compute_as_on_a_gpu(monkeypatch)


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    """Generated sentence pairs, and their encoded form."""
    folder = tmp_path_factory.mktemp("demo")
    demo.write(folder, train=60, valid=4, test=4)
    run = Run(tmp_path_factory.mktemp("texts"))
    return folder, TRANSLATION.prepare(tiny(folder, "soft", *NMT_SIZES), run, World())


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """Generated questions about pictures, and their encoded form."""
    folder = tmp_path_factory.mktemp("scenes") / "data"
    scenes.write(folder, scenes.Sizes(train=8, valid=2, test=2, questions=2))
    run = Run(tmp_path_factory.mktemp("pictures"))
    return folder, ANSWERING.prepare(answering(folder, "soft"), run, World())


def answering(folder, objective, *more) -> VQAConfig:
    settings = [*scenes_settings(folder), *VQA_SIZES, f"objective.name={objective}", *more]
    return recipes.load("vqa/scenes", VQAConfig, settings)


def trainer_of(task, config, data, folder):
    """A trainer before its first step."""
    torch.manual_seed(0)
    model = task.build_model(config, data.vocabulary)
    model = model.double() if config.training.precision == "float64" else model
    run = Run(folder)
    folder.mkdir(parents=True, exist_ok=True)
    parts = {"model": model, "world": World(), "phase": Phase(), "loggers": []}
    return task.make_trainer(config, run, data, **parts)


@pytest.fixture
def translation(texts, tmp_path):
    """Makes a trainer of a translation model."""

    def make(objective, *more, backbone="lstm"):
        folder, data = texts
        config = tiny(folder, objective, *NMT_SIZES, *more, backbone=backbone)
        return trainer_of(TRANSLATION, config, data, tmp_path / "run")

    return make


@pytest.fixture
def answers(pictures, tmp_path):
    """Makes a trainer of a question answering model."""

    def make(objective, *more):
        folder, data = pictures
        return trainer_of(ANSWERING, answering(folder, objective, *more), data, tmp_path / "run")

    return make
