"""A training run from recipe to run directory, the same for every task: prepare, warm up, train, summarise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from latentalign import config as recipes
from latentalign import storage
from latentalign.core.objectives import Objective
from latentalign.errors import InputError
from latentalign.nn.recurrent import compile_cells
from latentalign.training import checkpoint
from latentalign.training.data import TrainingData, V
from latentalign.training.distributed import World, join_processes
from latentalign.training.loop import Trainer
from latentalign.training.loss import LossModule
from latentalign.training.recipe import TaskRecipe
from latentalign.training.resume import require_same_recipe
from latentalign.training.run import Run
from latentalign.training.warm_start import copy_shared_weights, subtract_warm_start, warm_start_recipe

RANK_SEED = 1_000_003

C = TypeVar("C", bound=TaskRecipe)
M = TypeVar("M", bound=nn.Module)


class Trainable(ABC, Generic[C, V, M]):
    """The part of a task that training needs: how its data, vocabulary and model are made."""

    name: str
    """What recipes call the task."""
    recipe: type[C]
    """The model of its recipes."""

    @abstractmethod
    def prepare(self, config: C, run: Run, world: World) -> TrainingData[V, Any]:
        """Learn the vocabulary and encode the data unless that was done before; the data, ready to be batched."""

    @abstractmethod
    def load_vocabulary(self, run: Run) -> V:
        """The vocabulary of a run."""

    @abstractmethod
    def build_model(self, config: C, vocabulary: V) -> M:
        """The model that a recipe describes, with the parts that its objective needs."""

    def initialise_model(self, model: M, config: C, vocabulary: V) -> None:
        """Change the random weights of a new model, for example to known word vectors."""

    def train(self, config: C, run: Run, *, resume: bool, overwrite: bool) -> dict[str, Any]:
        """Train a recipe into a run directory; the figures of the best model on the validation set."""
        with (
            join_processes(config.training.device) as world,
            run.lock(wait=resume) if world.leader else nullcontext(),
        ):
            world.wait()
            continues = resume and checkpoint.exists(run.checkpoint)
            world.wait()
            if world.leader:
                self.open_run(config, run, resume=resume, overwrite=overwrite)
            data = world.leader_first(lambda: self.prepare(config, run, world))
            return self.train_prepared(config, run, data, world=world, continues=continues)

    def open_run(self, config: C, run: Run, *, resume: bool, overwrite: bool) -> None:
        """Make the run directory and write its recipe."""
        run.open(resume=resume, overwrite=overwrite)
        if resume and run.config.is_file():
            require_same_recipe(config, recipes.load(run.config, self.recipe))
        run.write_config(recipes.dump(config))

    def train_prepared(
        self, config: C, run: Run, data: TrainingData[V, Any], *, world: World, continues: bool
    ) -> dict[str, Any]:
        """This process's part of a training run whose directory and data are prepared."""
        torch.set_num_threads(config.training.threads)
        checkpoint.seed(config.training.seed)
        model = self.build_model(config, data.vocabulary).to(usable_device(config.training.device))
        if config.training.precision == "float64":
            model = model.double()
        if config.training.compile:
            compile_cells(model)
        if not continues:
            self.warm_up(model, config, run, data=data, world=world)
        module = LossModule(model, config.objective.build())
        if module.has_lazy_layers:  # they take their shape from a first batch
            with torch.no_grad():
                module(data.load_batch(data.batch_keys(0)[0]))
        if world.rank:  # other noise than the leader's, which is that of a single process
            checkpoint.seed(config.training.seed + world.rank * RANK_SEED)
        metadata = {
            "task": self.name,
            "tokenizer": data.vocabulary.fingerprint(),
            "objective": config.objective.name,
        }
        settings = subtract_warm_start(config.training, run)
        trainer = Trainer(data, module, run, config=settings, metadata=metadata, world=world)
        if continues:
            trainer.load()
        if world.leader:
            run.write_card(self.describe_run(config, data, model, processes=world.size))
        return train_and_summarise(trainer, config)

    def warm_up(self, model: M, config: C, run: Run, *, data: TrainingData[V, Any], world: World) -> None:
        """Start from another run's model, or from one trained on an easier objective first, on the same data."""
        self.initialise_model(model, config, data.vocabulary)
        source = Path(config.training.warm_start) if config.training.warm_start else None
        first = warm_start_recipe(config)
        if first is not None:
            source = run.warm_start
            continues = checkpoint.exists(Run(source).checkpoint)
            world.wait()
            if world.leader:
                source.mkdir(parents=True, exist_ok=True)
                storage.write_bytes(Run(source).tokenizer, run.tokenizer.read_bytes())
                self.open_run(first, Run(source), resume=True, overwrite=False)
            world.wait()
            self.train_prepared(first, Run(source), data, world=world, continues=continues)
        world.wait()  # the leader has written its best model
        if source is not None:
            copy_shared_weights(model, source, data.vocabulary.fingerprint())

    def describe_run(
        self, config: C, data: TrainingData[V, Any], model: M, *, processes: int
    ) -> dict[str, Any]:
        """The content of `card.json`."""
        return {
            "task": self.name,
            "objective": config.objective.model_dump(),
            "seed": config.training.seed,
            "processes": processes,
            **data.card(),
            "parameters": count_parameters(model),
        }


def train_and_summarise(trainer: Trainer, config: TaskRecipe) -> dict[str, Any]:
    """Train to the end; the figures of the best model, and what the run cost."""
    schedule = trainer.train()
    first = warm_start_recipe(config)
    warm = f"{first.training.epochs} epochs of {first.objective.name}" if first else None
    position = trainer.position
    return {
        "ppl": schedule.best_score,
        "bound": schedule.best_bound,
        "steps": position.step,
        "epochs": position.epoch,
        "seconds": round(position.seconds + trainer.run.warm_start_seconds, 1),
        "tokens_per_second": round(position.queries / max(1e-9, position.seconds), 1),
        "peak_memory_mb": round(position.peak_memory_mb, 1),
        "warm_start": config.training.warm_start or warm,
        "samples": count_samples(config.objective.build()),
    }


def count_samples(objective: Objective) -> int | None:
    """How many alignments of a query an objective draws; None if it draws none."""
    for part in (objective, getattr(objective, "expectation", None)):
        if isinstance(number := getattr(part, "n", None), int):
            return number * int(getattr(part, "steps", 1))
    return None


def count_parameters(model: nn.Module) -> dict[str, int]:
    """Parameters of the generative model, and of the inference network, which is not used at test time."""
    inference = sum(p.numel() for n, p in model.named_parameters() if n.startswith("inference."))
    return {"model": sum(p.numel() for p in model.parameters()) - inference, "inference": inference}


def usable_device(text: str) -> torch.device:
    """A device by name, if it exists here."""
    try:
        device = torch.device(text)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {text!r} cannot be used: {str(error).splitlines()[0]}") from None
    return device
