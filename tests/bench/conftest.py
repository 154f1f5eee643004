"""Toys for the tests of this folder."""

from pathlib import Path

import pytest

from latentalign import config as recipes
from latentalign.data import demo
from latentalign.tasks.nmt.recipe import NMTConfig
from latentalign.tasks.nmt.task import TRANSLATION
from latentalign.training.run import Run

SIZES = [
    "model.embedding=8",
    "model.encoder_size=8",
    "model.decoder_size=12",
    "model.attention_size=8",
    "model.head_size=12",
    "inference.size=8",
    "training.batch_sentences=16",
    "training.threads=1",
    "training.max_steps=3",
    "objective.name=marginal",
]


@pytest.fixture(scope="session")
def toy_run(tmp_path_factory) -> Path:
    """A marginal model after three steps: it has no inference network."""
    data, out = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("runs") / "toy"
    demo.write(data, train=100, valid=10, test=12)
    files = [
        f"data.{split}.{key}={data / f'{split}.{end}'}"
        for split in ("train", "valid", "test")
        for key, end in (("source", "de"), ("target", "en"), ("gold", "gold"))
    ]
    TRANSLATION.train(
        recipes.load("nmt/demo", NMTConfig, [*files, *SIZES]), Run(out), resume=False, overwrite=False
    )
    return out
