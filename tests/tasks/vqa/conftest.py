"""A few scenes and a tiny model that the tests of this folder share."""

from __future__ import annotations

from pathlib import Path

import pytest

from latentalign import config as recipes
from latentalign.data import scenes
from latentalign.tasks.vqa.experiment import scenes_settings
from latentalign.tasks.vqa.recipe import TrainedAnswerer, VQAConfig
from latentalign.tasks.vqa.task import ANSWERING
from latentalign.training.run import Run

SIZES = [
    "model.embedding=8",
    "model.question_size=12",
    "model.attention_size=10",
    "model.head_size=16",
    "inference.answer_embedding=6",
    "inference.size=10",
    "training.batch_sentences=16",
    "training.threads=1",
    "training.epochs=2",
    "training.warm_start_epochs=0",  # limits of steps hold for each phase
]


@pytest.fixture(scope="session")
def pictures(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("scenes") / "data"
    scenes.write(folder, scenes.Sizes(train=20, valid=6, test=8, questions=3))
    return folder


@pytest.fixture(scope="session")
def sizes() -> list[str]:
    return SIZES


@pytest.fixture(scope="session")
def tiny(pictures):
    def make(objective: str, *more: str) -> VQAConfig:
        settings = [*scenes_settings(pictures), *SIZES, f"objective.name={objective}", *more]
        return recipes.load("vqa/scenes", VQAConfig, settings)

    return make


@pytest.fixture(scope="session")
def trained_run(tiny, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "variational"
    ANSWERING.train(tiny("variational-sample"), Run(out), resume=False, overwrite=False)
    return out


@pytest.fixture
def trained(trained_run) -> TrainedAnswerer:
    return ANSWERING.load(trained_run, double=True)
