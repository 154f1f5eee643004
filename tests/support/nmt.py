"""The demo recipe at toy size."""

from __future__ import annotations

from pathlib import Path

from latentalign import config as recipes
from latentalign.tasks.nmt.recipe import NMTConfig

SIZES = [
    "model.embedding=16",
    "model.encoder_size=16",
    "model.decoder_size=24",
    "model.attention_size=16",
    "model.head_size=24",
    "inference.size=16",
    "training.batch_sentences=16",
    "training.threads=1",
    "training.warm_start_epochs=0",
]


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
