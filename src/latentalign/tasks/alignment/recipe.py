"""The recipe of word alignment."""

from __future__ import annotations

from typing import Literal

from latentalign.aligner.config import AlignerConfig
from latentalign.config import Section
from latentalign.tasks.splits import TextSplit
from latentalign.training.objective import ObjectiveConfig
from latentalign.training.recipe import TaskRecipe, TrainingConfig


class DataConfig(Section):
    """The text to learn from, and optionally text with gold links."""

    train: TextSplit
    test: TextSplit | None = None


class AlignmentConfig(TaskRecipe):
    """A whole recipe."""

    task: Literal["alignment"] = "alignment"
    """The task to train."""
    data: DataConfig
    aligner: AlignerConfig = AlignerConfig()
    objective: ObjectiveConfig = ObjectiveConfig(name="marginal")
    training: TrainingConfig = TrainingConfig(threads=1)
    """Only `threads` applies: the aligner learns by expectation maximisation. A second thread gains little."""
