"""A training from recipe to run directory, the same for every task: prepare, warm up, train, sum up."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import nn

from latentalign import config as recipes
from latentalign import storage
from latentalign.config import Section
from latentalign.core.objectives import Objective
from latentalign.errors import CheckpointError, InputError
from latentalign.nn.recurrent import compile_cells
from latentalign.training import checkpoint
from latentalign.training.distributed import World, joined
from latentalign.training.loop import Sums, Task, Trainer, TrainingConfig
from latentalign.training.objective import ObjectiveConfig
from latentalign.training.run import Run

RANK_SEED = 1_000_003


class Recipe(Section):
    """What the recipes of all tasks have."""

    objective: ObjectiveConfig = ObjectiveConfig()
    training: TrainingConfig = TrainingConfig()


class Vocabulary(Protocol):
    """What turns text into ids and must fit a model."""

    def fingerprint(self) -> str: ...


C = TypeVar("C", bound=Recipe)
V = TypeVar("V", bound=Vocabulary)


class Craft(ABC, Generic[C, V]):
    """What a task knows: how its parts are made."""

    name: str
    recipe: type[C]

    @abstractmethod
    def needed(self, config: C) -> Path:
        """The file of the data that is written last: without it the data is not there."""

    @abstractmethod
    def prepare(self, config: C, run: Run) -> None:
        """Vocabulary and cache, made where they are not there yet."""

    @abstractmethod
    def vocabulary(self, run: Run) -> V:
        """The run's own."""

    @abstractmethod
    def model(self, config: C, vocabulary: V, run: Run) -> nn.Module:
        """The model that a recipe describes, with the parts its objective needs."""

    @abstractmethod
    def task(self, config: C, vocabulary: V, run: Run, *, model: nn.Module, world: World) -> Task:
        """What the training loop needs."""

    @abstractmethod
    def card(self, config: C, task: Task, model: nn.Module) -> dict[str, Any]:
        """What was trained on what."""

    def train(self, config: C, run: Run, *, resume: bool, overwrite: bool) -> dict[str, Any]:
        """Train a recipe into a run directory; what the best model measured on the validation set."""
        with joined(config.training.device) as world, run.alone(resume) if world.leader else nullcontext():
            world.wait()
            going_on = resume and checkpoint.exists(run.checkpoint)
            world.wait()
            if world.leader:  # what is written is written before the others look
                self.begin(config, run, resume=resume, overwrite=overwrite)
            world.wait()
            return self.train_together(config, run, world, going_on=going_on)

    def begin(self, config: C, run: Run, *, resume: bool, overwrite: bool) -> None:
        """The run directory with its recipe, vocabulary and cache."""
        run.begin(resume=resume, overwrite=overwrite)
        if resume and run.config.is_file():
            require_same(config, recipes.load(run.config, self.recipe))
        run.write_config(recipes.dump(config))
        self.prepare(config, run)

    def train_together(self, config: C, run: Run, world: World, *, going_on: bool) -> dict[str, Any]:
        """This process's part of a training whose run directory is prepared."""
        torch.set_num_threads(config.training.threads)
        vocabulary = self.vocabulary(run)
        checkpoint.seed(config.training.seed)
        model = self.model(config, vocabulary, run).to(usable_device(config.training.device))
        if config.training.precision == "float64":
            model = model.double()
        if config.training.compile:
            compile_cells(model)
        if not going_on:
            self.warm_up(model, config, run, vocabulary=vocabulary, world=world)
        task = self.task(config, vocabulary, run, model=model, world=world)
        metadata = {
            "task": self.name,
            "tokenizer": vocabulary.fingerprint(),
            "objective": config.objective.name,
        }
        if any(isinstance(p, nn.UninitializedParameter) for p in task.module.parameters()):
            with torch.no_grad():  # lazy layers of a learned baseline take their shape from a first batch
                task.module(task.batch(task.epoch(0)[0]))
        if world.rank:  # other noise than the leader's, which is that of a single process
            checkpoint.seed(config.training.seed + world.rank * RANK_SEED)
        trainer = Trainer(task, run, remaining(config.training, run), metadata=metadata, world=world)
        if going_on:
            trainer.load()
        if world.leader:
            card = {
                "task": self.name,
                "objective": config.objective.model_dump(),
                "seed": config.training.seed,
                "processes": world.size,
            }
            run.write_card({**card, **self.card(config, task, model)})
        return summary(trainer, config)

    def warm_up(self, model: nn.Module, config: C, run: Run, *, vocabulary: V, world: World) -> None:
        """Start from another run's model, or from one trained on an easier objective first."""
        source = Path(config.training.warm_start) if config.training.warm_start else None
        first = first_recipe(config)
        if first is not None:
            source = run.warm_start
            going_on = checkpoint.exists(Run(source).checkpoint)
            world.wait()
            if world.leader:
                source.mkdir(parents=True, exist_ok=True)
                storage.write_bytes(Run(source).tokenizer, run.tokenizer.read_bytes())
                self.begin(first, Run(source), resume=True, overwrite=False)
            world.wait()
            self.train_together(first, Run(source), world, going_on=going_on)
        world.wait()  # the leader has written its best model
        if source is not None:
            adopt(model, source, vocabulary.fingerprint())


class LossModule(nn.Module):
    """Model and objective as one module: batch -> summed surrogate and figures."""

    def __init__(self, model: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.model, self.objective = model, objective
        self.register_load_state_dict_pre_hook(rename_baseline)  # type: ignore[no-untyped-call]

    def forward(self, batch: tuple[Any, ...]) -> Sums:
        pairs, *more = batch
        estimate = self.objective(self.model.latent(pairs, *more))  # type: ignore[operator]
        terms = {name: value.sum() for name, value in estimate.terms.items()}
        return Sums(estimate.surrogate.sum(), estimate.value.sum(), terms, pairs.tokens, len(pairs.index))


def rename_baseline(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Checkpoints of version 0.1 keep the parameters of a baseline under `parts.0`."""
    old, new = f"{prefix}parts.0.", f"{prefix}objective.expectation.baseline."
    for name in [n for n in state if n.startswith(old)]:
        state[new + name.removeprefix(old)] = state.pop(name)


def easier_objective(config: Recipe) -> str | None:
    """What to train on before this objective: what the recipe says if it is of this family, or the Jensen bound."""
    wanted = config.training.warm_start_objective
    if wanted and ObjectiveConfig(name=wanted).build().distribution == config.objective.build().distribution:
        return wanted
    return "relaxed-hard" if config.objective.name == "relaxed" else None


def first_recipe(config: C) -> C | None:
    """What a recipe trains before its own objective; None where it begins with that or with another run's model.

    The planned decay of the learning rate is that of the training proper.
    """
    training, easier = config.training, easier_objective(config)
    if training.warm_start or not training.warm_start_epochs or not easier:
        return None
    changed = {"warm_start_epochs": 0, "epochs": training.warm_start_epochs, "decay_always": None}
    return config.model_copy(
        update={
            "objective": ObjectiveConfig(name=easier),
            "training": training.model_copy(update=changed),
        }
    )


def remaining(training: TrainingConfig, run: Run) -> TrainingConfig:
    """The training's settings, less the minutes that a warm start has used up."""
    if training.max_minutes is None:
        return training
    left = max(1e-6, training.max_minutes - run.warm_start_seconds / 60)
    return training.model_copy(update={"max_minutes": left})


def summary(trainer: Trainer, config: Recipe) -> dict[str, Any]:
    """Train to the end; what came of it."""
    schedule = trainer.train()
    first = first_recipe(config)
    warm = f"{first.training.epochs} epochs of {first.objective.name}" if first else None
    return {
        "ppl": schedule.best_ppl,
        "bound": schedule.best_bound,
        "steps": trainer.position.step,
        "epochs": trainer.position.epoch,
        "seconds": round(trainer.position.seconds + trainer.run.warm_start_seconds, 1),
        "tokens_per_second": round(trainer.position.tokens / max(1e-9, trainer.position.seconds), 1),
        "peak_memory_mb": round(trainer.position.peak_memory_mb, 1),
        "warm_start": config.training.warm_start or warm,
        "samples": samples_of(config.objective.build()),
    }


def samples_of(objective: Objective) -> int | None:
    """How many alignments of a query an objective draws; None where it draws none."""
    for part in (objective, getattr(objective, "expectation", None)):
        if isinstance(number := getattr(part, "n", None), int):
            return number * int(getattr(part, "steps", 1))
    return None


def usable_device(text: str) -> torch.device:
    """A device by name, if it exists here."""
    try:
        device = torch.device(text)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {text!r} cannot be used: {str(error).splitlines()[0]}") from None
    return device


def adopt(model: nn.Module, source: Path, fingerprint: str) -> None:
    """Copy what another run's model has in common with this one."""
    tensors, metadata = Run(source).load_model()
    if metadata.get("tokenizer") != fingerprint:
        raise InputError(f"{source}: its model has another tokenizer; warm starts need the same")
    own = model.state_dict()
    wrong = [n for n, t in tensors.items() if n in own and own[n].shape != t.shape]
    if wrong:
        raise InputError(f"{source}: {wrong[0]} has another shape; warm starts need the same model sizes")
    model.load_state_dict({n: t for n, t in tensors.items() if n in own}, strict=False)


def require_same(asked: Recipe, trained: Recipe) -> None:
    """Raise when a run is to go on as something else than it began; its length and how it is searched may change."""
    free = (
        "epochs",
        "max_steps",
        "max_minutes",
        "patience",
        "threads",
        "checkpoint_steps",
        "log_steps",
        "compile",
    )
    if asked.training.learning_rate < trained.training.learning_rate:  # what a diverged training needs
        free = (*free, "learning_rate")
    left, right = (
        recipes.flatten(c.model_copy(update={"training": strip(c.training, free)})) for c in (asked, trained)
    )
    for key in dict.fromkeys([*right, *left]):
        ours, theirs = (json.dumps(side.get(key)) for side in (left, right))
        if ours != theirs and not key.startswith("search."):
            raise InputError(
                f"--resume: this run was begun with {key} = {theirs}, the recipe now says {ours}"
            )


def strip(training: TrainingConfig, free: Sequence[str]) -> TrainingConfig:
    defaults = TrainingConfig()
    return training.model_copy(update={name: getattr(defaults, name) for name in free})


def load_parts(craft: Craft[C, V], folder: Path | str, *, device: str, double: bool) -> tuple[Run, C, V, Any]:
    """Run, recipe, vocabulary and best model of a run directory; every fault of its files is a CheckpointError."""
    run = Run(Path(folder))
    run.require()
    try:
        config = recipes.load(run.config, craft.recipe)
    except InputError as error:
        raise CheckpointError(f"{run.config}: {error}") from None
    vocabulary = craft.vocabulary(run)
    tensors, metadata = run.load_model()
    if metadata.get("tokenizer") != vocabulary.fingerprint():
        raise CheckpointError(f"{run.tokenizer}: does not belong to {run.model}: the vocabularies differ")
    torch.set_num_threads(config.training.threads)
    model = craft.model(config, vocabulary, run)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise CheckpointError(f"{run.model}: does not fit {run.config}: {error}") from None
    model = (model.double() if double else model.float()).to(usable_device(device)).eval()
    return run, config, vocabulary, model
