"""The demo recipe at toy size."""

from __future__ import annotations

from pathlib import Path

from latentalign import config as recipes
from latentalign.tasks.nmt.recipe import NMTConfig

COMMON = [
    "inference.size=16",
    "training.batch_sentences=16",
    "training.threads=1",
    "training.warm_start_epochs=0",
]
SIZES = [
    "model.embedding=16",
    "model.encoder_size=16",
    "model.decoder_size=24",
    "model.attention_size=16",
    "model.head_size=24",
    *COMMON,
]
TRANSFORMER_SIZES = [
    "model.embedding=16",
    "model.heads=2",
    "model.feedforward=24",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.lagged_layers=1",
    "training.warmup_steps=4",
    *COMMON,
]
BACKBONES = {"lstm": ("nmt/demo", SIZES), "transformer": ("nmt/demo-transformer", TRANSFORMER_SIZES)}


def data_overrides(folder: Path) -> list[str]:
    return [
        f"data.{split}.{key}={folder / f'{split}.{end}'}"
        for split in ("train", "valid", "test")
        for key, end in (("source", "de"), ("target", "en"), ("gold", "gold"))
    ]


def tiny(folder: Path, objective: str, *more: str, backbone: str = "lstm") -> NMTConfig:
    """The demo recipe of a backbone at toy size."""
    recipe, sizes = BACKBONES[backbone]
    changes = [*data_overrides(folder), *sizes, f"objective.name={objective}", *more]
    return recipes.load(recipe, NMTConfig, changes)
