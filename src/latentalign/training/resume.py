"""Which settings of a run may change when it is resumed."""

from __future__ import annotations

import json

from latentalign import config as recipes
from latentalign.errors import InputError
from latentalign.training.recipe import TaskRecipe, TrainingConfig

CHANGEABLE = (
    "epochs", "max_steps", "max_minutes", "patience", "threads", "checkpoint_steps", "log_steps", "compile",
    "tensorboard", "logger",
)  # fmt: skip
"""Keys of `[training]` that may change: they decide how long a run takes, not what it computes."""
ALSO_CHANGEABLE = ("search.", "data.processes")
"""The same of other tables: beginnings of keys."""


def require_same_recipe(wanted: TaskRecipe, trained: TaskRecipe) -> None:
    """Raise if a run would continue as something else; its length and the search of outputs may change."""
    free: tuple[str, ...] = CHANGEABLE
    if wanted.training.learning_rate < trained.training.learning_rate:  # the remedy for a diverged run
        free = (*free, "learning_rate")
    left, right = (
        recipes.flatten(r.model_copy(update={"training": reset_keys(r.training, free)}))
        for r in (wanted, trained)
    )
    for key in dict.fromkeys([*right, *left]):
        ours, theirs = (json.dumps(side.get(key)) for side in (left, right))
        if ours != theirs and not key.startswith(ALSO_CHANGEABLE):
            raise InputError(
                f"--resume: this run was started with {key} = {theirs}, the recipe now says {ours}"
            )


def reset_keys(training: TrainingConfig, keys: tuple[str, ...]) -> TrainingConfig:
    """The same settings with some keys at their defaults."""
    defaults = TrainingConfig()
    return training.model_copy(update={name: getattr(defaults, name) for name in keys})
