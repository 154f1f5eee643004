"""Starting from another model: that of another run, or one trained first on an easier objective."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from torch import nn

from latentalign.core.objectives import OBJECTIVES
from latentalign.core.registry import UnknownNameError
from latentalign.errors import InputError
from latentalign.training.objective import ObjectiveConfig
from latentalign.training.recipe import TaskRecipe, TrainingConfig
from latentalign.training.run import Run

C = TypeVar("C", bound=TaskRecipe)
WARM_START_SHARE = 0.5
"""The share of `max_minutes` that a warm start may use."""


def choose_easier_objective(config: TaskRecipe) -> str | None:
    """The recipe's warm-start objective if it has the same family; the Jensen bound for `relaxed`; else None."""
    wanted = config.training.warm_start_objective
    if wanted and known_objective(wanted).build().distribution == config.objective.build().distribution:
        return wanted
    return "relaxed-hard" if config.objective.name == "relaxed" else None


def known_objective(name: str) -> ObjectiveConfig:
    """The objective of a warm start with its default options."""
    try:
        OBJECTIVES[name]
    except UnknownNameError as error:
        raise InputError(f"training.warm_start_objective: {error}") from None
    return ObjectiveConfig(name=name)


def warm_start_recipe(config: C) -> C | None:
    """The recipe that is trained before the main one; None without a warm start or with another run's model.

    The planned decay of the learning rate belongs to the main training, and so does half of `max_minutes`.
    """
    training, easier = config.training, choose_easier_objective(config)
    if training.warm_start or not training.warm_start_epochs or not easier:
        return None
    minutes = None if training.max_minutes is None else WARM_START_SHARE * training.max_minutes
    changed = {
        "warm_start_epochs": 0,
        "epochs": training.warm_start_epochs,
        "decay_always": None,
        "schedule": "plateau",
        "decay_steps": None,
        "max_minutes": minutes,
    }
    return config.model_copy(
        update={
            "objective": ObjectiveConfig(name=easier),
            "training": training.model_copy(update=changed),
        }
    )


def subtract_warm_start(training: TrainingConfig, run: Run) -> TrainingConfig:
    """The training settings with `max_minutes` reduced by the time that the warm start took."""
    if training.max_minutes is None:
        return training
    left = max(1e-6, training.max_minutes - run.warm_start_seconds / 60)
    return training.model_copy(update={"max_minutes": left})


def copy_shared_weights(model: nn.Module, source: Path, fingerprint: str) -> None:
    """Copy the weights that another run's model has in common with this one."""
    tensors, metadata = Run(source).load_model()
    if metadata.get("tokenizer") != fingerprint:
        raise InputError(f"{source}: its model has another tokenizer; warm starts need the same")
    own = model.state_dict()
    wrong = [n for n, t in tensors.items() if n in own and own[n].shape != t.shape]
    if wrong:
        raise InputError(f"{source}: {wrong[0]} has another shape; warm starts need the same model sizes")
    model.load_state_dict({n: t for n, t in tensors.items() if n in own}, strict=False)
