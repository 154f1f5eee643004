"""Tiny corpora and tiny models that the tests of this folder share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from latentalign import config as recipes
from latentalign.data import demo
from latentalign.nmt.task import NMTConfig, Trained, train
from latentalign.training.run import Run

sys.path.insert(0, str(Path(__file__).parent))

SIZES = [
    "model.embedding=16",
    "model.encoder_size=16",
    "model.decoder_size=24",
    "model.attention_size=16",
    "model.head_size=24",
    "inference.size=16",
    "training.batch_sentences=16",
    "training.threads=1",
]


@pytest.fixture(scope="session")
def demo_files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    demo.write(folder, train=400, valid=40, test=40)
    return folder


def data_overrides(folder: Path) -> list[str]:
    return [
        f"data.{split}.{key}={folder / f'{split}.{end}'}"
        for split in ("train", "valid", "test")
        for key, end in (("source", "de"), ("target", "en"), ("gold", "gold"))
    ]


def tiny(folder: Path, objective: str, *more: str) -> NMTConfig:
    """The demo recipe at toy size."""
    return recipes.load(
        "nmt/demo", NMTConfig, [*data_overrides(folder), *SIZES, f"objective.name={objective}", *more]
    )


@pytest.fixture(scope="session")
def trained_run(demo_files, tmp_path_factory) -> Path:
    """A variational model after a few dozen steps."""
    out = tmp_path_factory.mktemp("runs") / "variational"
    config = tiny(demo_files, "variational-sample", "training.max_steps=60", "training.learning_rate=1e-2")
    train(config, Run(out), resume=False, overwrite=False)
    return out


@pytest.fixture
def trained(trained_run) -> Trained:
    return Trained.load(trained_run, double=True)
