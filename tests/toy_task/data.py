"""Lines of digits as batches."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from latentalign.config import DataPath, Section
from latentalign.storage import fingerprint
from latentalign.tasks.padding import pad_rows
from latentalign.textfiles import read_lines
from latentalign.training.data import TrainingData, WeightedBatch
from latentalign.training.recipe import TaskRecipe

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
LONGEST = 8


class DataConfig(Section):
    """Files with one example per line, digits separated by spaces."""

    train: DataPath
    valid: DataPath
    test: DataPath


class ModelConfig(Section):
    """Sizes of the model."""

    size: int = 8


class DigitsRecipe(TaskRecipe):
    """A whole recipe."""

    task: str = "digits"
    data: DataConfig
    model: ModelConfig = ModelConfig()


class DigitsVocabulary:
    """The ten digits; there is nothing to learn."""

    def fingerprint(self) -> str:
        return "ten digits"


@dataclass(frozen=True, eq=False)
class Batch:
    digits: Tensor
    mask: Tensor

    @property
    def queries(self) -> int:
        return int(self.mask.sum())

    @property
    def examples(self) -> int:
        return len(self.digits)

    def to(self, device: torch.device | str) -> Batch:
        return Batch(self.digits.to(device), self.mask.to(device))


def read_digits(path: Path) -> list[np.ndarray]:
    return [np.array([int(digit) for digit in line.split()], np.int64) for line in read_lines(path)]


def collate(rows: Sequence[np.ndarray]) -> Batch:
    return Batch(*pad_rows(rows, 0))


def write_digits(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(0)
    for name, count in (("train", 40), ("valid", 8), ("test", 8)):
        lines = [
            " ".join(str(chance.randrange(10)) for _ in range(chance.randint(2, 4))) for _ in range(count)
        ]
        (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))


def digits_settings(folder: Path) -> list[str]:
    return [f"data.{name}={folder / f'{name}.txt'}" for name in ("train", "valid", "test")]


class DigitsData(TrainingData[DigitsVocabulary, slice]):
    """All lines in order, ten at a time."""

    def __init__(self, config: DigitsRecipe) -> None:
        self.config, self.vocabulary = config, DigitsVocabulary()
        self.train, self.valid = (read_digits(path) for path in (config.data.train, config.data.valid))

    def batch_keys(self, epoch: int) -> Sequence[slice]:
        return [slice(i, i + 10) for i in range(0, len(self.train), 10)]

    def load_batch(self, key: slice) -> Batch:
        return collate(self.train[key])

    def describe_batch(self, key: slice) -> str:
        return f"{self.config.data.train} lines {key.start + 1} to {key.stop}"

    def validation_batches(self) -> Iterator[WeightedBatch[Batch]]:
        yield WeightedBatch(collate(self.valid))

    @property
    def validation_queries(self) -> int:
        return sum(map(len, self.valid))

    def card(self) -> dict[str, Any]:
        return {"data": {"train": fingerprint(self.config.data.train)}}
