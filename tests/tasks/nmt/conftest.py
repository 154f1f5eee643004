"""Tiny corpora and tiny models that the tests of this folder share."""

from __future__ import annotations

from pathlib import Path

import pytest

from latentalign.data import demo
from latentalign.tasks.nmt.recipe import TrainedTranslator
from latentalign.tasks.nmt.task import TRANSLATION
from latentalign.training.run import Run
from support.nmt import tiny


@pytest.fixture(scope="session")
def demo_files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    demo.write(folder, train=400, valid=40, test=40)
    return folder


@pytest.fixture(scope="session")
def trained_run(demo_files, tmp_path_factory) -> Path:
    """A variational model after a few dozen steps."""
    out = tmp_path_factory.mktemp("runs") / "variational"
    config = tiny(demo_files, "variational-sample", "training.max_steps=60", "training.learning_rate=1e-2")
    TRANSLATION.train(config, Run(out), resume=False, overwrite=False)
    return out


@pytest.fixture
def trained(trained_run) -> TrainedTranslator:
    return TRANSLATION.load(trained_run, double=True)
