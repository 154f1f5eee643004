"""A run whose model becomes the start of another objective, without training anything yet."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from torch import Tensor

from latentalign import config as recipes
from latentalign import storage
from latentalign.errors import CheckpointError, InputError
from latentalign.training import checkpoint
from latentalign.training.recipe import TaskRecipe
from latentalign.training.run import Run
from latentalign.training.summary import count_parameters
from latentalign.training.trainable import Trainable

CHANGEABLE = ("inference", "objective", "search", "training")
"""Tables of the recipe that may change. The others decide what the weights mean."""
NEW_PARTS = ("inference.",)
"""Parameters that the new objective may need and the old model lacks."""


def convert_run(
    task: Trainable[Any, Any, Any],
    source: Run,
    out: Run,
    *,
    objective: str,
    overrides: Sequence[str] = (),
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write a run whose recipe has another objective and whose model has the weights of `source`.

    The converted model predicts what the old one does if both look at the mean of the prior. `train --resume` trains
    it further, and needs the old run where it is.
    """
    old, config = read_recipes(task, source, objective, overrides)
    task.check(config)
    out.check_free(resume=False, overwrite=overwrite)
    vocabulary = task.load_vocabulary(source)
    tensors, metadata = source.load_model()
    checkpoint.seed(config.training.seed)
    model = task.build_model(config, vocabulary)
    added = copy_weights(model, tensors, source)
    with ExitStack() as stack:
        stack.enter_context(out.lock(wait=False))
        stack.enter_context(out.undo_if_refused())
        out.open(resume=False, overwrite=overwrite)
        if source.tokenizer.is_file():
            storage.write_bytes(out.tokenizer, source.tokenizer.read_bytes())
        out.save_model(dict(model.state_dict()), {**metadata, "objective": config.objective.name})
        card = {
            "task": task.name,
            "objective": config.objective.model_dump(),
            "seed": config.training.seed,
            "parameters": count_parameters(model),
            "converted_from": str(source.folder.resolve()),
        }
        out.write_card(card)
        out.write_config(recipes.dump(config))
        out.forget_replaced()
    return {
        "run": str(out.folder),
        "from": old.objective.name,
        "objective": config.objective.name,
        "new_parameters": sum(t.numel() for n, t in model.state_dict().items() if n in added),
    }


def read_recipes(
    task: Trainable[Any, Any, Any], source: Run, objective: str, overrides: Sequence[str]
) -> tuple[TaskRecipe, TaskRecipe]:
    """The recipe of a run, and the one of its conversion."""
    recipe = source.read_recipe()
    try:
        old: TaskRecipe = recipe.build(task.recipe)
    except InputError as error:
        raise CheckpointError(f"{source.config}: {error}") from None
    for override in overrides:
        table = override.partition("=")[0].partition(".")[0].strip()
        if table not in CHANGEABLE:
            raise InputError(
                f"--set {override}: converting keeps the model and its data; {', '.join(CHANGEABLE)} may change"
            )
    start = {"training.warm_start": source.folder.resolve(), "training.warm_start_epochs": 0}
    changes = [f"objective.name={objective}", *overrides, *(f"{key}={value}" for key, value in start.items())]
    flags = {"objective.name": "--objective"}
    new: TaskRecipe = recipe.build(task.recipe, changes, flags=flags)
    before, after = (each.objective.prototype.distribution for each in (old, new))
    if before != after:
        raise InputError(
            f"--objective {objective}: its prior is {after}, but {source.folder} was trained with a {before} one"
        )
    return old, new


def copy_weights(model: Any, tensors: dict[str, Tensor], source: Run) -> set[str]:
    """Give a new model the weights of an old one; the names of the parameters that only the new one has."""
    own = model.state_dict()
    kept = {name: tensor for name, tensor in tensors.items() if name in own or not name.startswith(NEW_PARTS)}
    missing = set(own) - set(kept)
    unknown = sorted(name for name in missing if not name.startswith(NEW_PARTS))
    try:
        if unknown:
            raise RuntimeError(f"{unknown[0]} is missing")
        model.load_state_dict(kept, strict=not missing)
    except RuntimeError as error:
        raise CheckpointError(f"{source.model}: does not fit {source.config}: {error}") from None
    return missing
