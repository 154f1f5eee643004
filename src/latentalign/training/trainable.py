"""A training run from recipe to run directory, the same for every task: prepare, warm up, train, summarise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from latentalign import config as recipes
from latentalign import storage
from latentalign.errors import InputError
from latentalign.nn.recurrent import compile_cells
from latentalign.progress import inform, warn
from latentalign.training import checkpoint
from latentalign.training.data import TrainingData, V
from latentalign.training.distributed import World, join_processes
from latentalign.training.loggers import (
    Guarded,
    LoggerFactory,
    RunLogger,
    TensorBoard,
    find_logger,
    make_logger,
    require_tensorboard,
)
from latentalign.training.loop import Trainer
from latentalign.training.loss import LossModule
from latentalign.training.memory import keep_freed_memory
from latentalign.training.phases import MAIN, WARM_START, Phase, warn_before, warn_between
from latentalign.training.recipe import TaskRecipe, TrainingConfig
from latentalign.training.resume import require_same_recipe
from latentalign.training.run import Run
from latentalign.training.summary import count_parameters, describe_plan, train_and_summarise
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

    def check_recipe(self, config: C) -> None:
        """Raise if the parts of a recipe do not fit together, for example its objective and its model."""

    def check_files(self, config: C) -> None:
        """Raise if a file that training needs is missing or unusable, as far as a quick look can tell."""

    def check(self, config: C) -> None:
        """Raise if a recipe cannot be trained here. Nothing is written."""
        training = config.training
        usable_device(training.device)
        if training.tensorboard:
            require_tensorboard()
        if training.logger is not None:
            find_logger(training.logger)
        if training.warm_start is not None:
            Run(Path(training.warm_start)).read_recipe()
        warm_start_recipe(config)
        self.check_recipe(config)

    def train(
        self, config: C, run: Run, *, resume: bool, overwrite: bool, logger: LoggerFactory | None = None
    ) -> dict[str, Any]:
        """Train a recipe into a run directory; the figures of the best model on the validation set.

        A refused attempt leaves nothing behind. `logger` receives the metrics, as that of `training.logger` does.
        """
        self.check(config)
        run.check_free(resume=resume, overwrite=overwrite)
        self.check_files(config)
        with join_processes(config.training.device) as world, ExitStack() as stack:
            if world.leader:
                stack.enter_context(run.lock(wait=resume))
                stack.enter_context(run.undo_if_refused())
            world.wait()
            continues = resume and checkpoint.exists(run.checkpoint)
            world.wait()
            if world.leader:
                self.open_run(config, run, resume=resume, overwrite=overwrite)
            data = world.leader_first(lambda: self.prepare(config, run, world))
            loggers = start_loggers(config, run, logger) if world.leader else []
            try:
                result = self.train_prepared(
                    config, run, data, world=world, continues=continues, loggers=loggers
                )
            except BaseException:
                for own in loggers:
                    own.end(None)
                raise
            for own in loggers:
                own.end(result)
            return result

    def open_run(self, config: C, run: Run, *, resume: bool, overwrite: bool) -> None:
        """Make the run directory and write its recipe."""
        run.open(resume=resume, overwrite=overwrite)
        if resume and run.config.is_file():
            require_same_recipe(config, recipes.load(run.config, self.recipe))
        run.write_config(recipes.dump(config))

    def train_prepared(
        self,
        config: C,
        run: Run,
        data: TrainingData[V, Any],
        *,
        world: World,
        continues: bool,
        loggers: Sequence[RunLogger] = (),
        later: TrainingConfig | None = None,
    ) -> dict[str, Any]:
        """This process's part of a training run, or of its warm start, whose directory and data are prepared.

        `later` are the settings of the phase that follows a warm start.
        """
        torch.set_num_threads(config.training.threads)
        keep_freed_memory()
        checkpoint.seed(config.training.seed)
        model = self.build_model(config, data.vocabulary).to(usable_device(config.training.device))
        if config.training.precision == "float64":
            model = model.double()
        if config.training.compile:
            compile_cells(model)
        if not continues:
            self.warm_up(model, config, run, data=data, world=world, loggers=loggers)
        phase = Phase(WARM_START if later else MAIN, config.objective.name, later)
        with ExitStack() as stack:
            if config.training.tensorboard and world.leader:
                board = Guarded(TensorBoard({}, run.folder))
                stack.callback(board.end, None)
                loggers = [*loggers, board]
            trainer = self.make_trainer(
                config, run, data, model=model, world=world, phase=phase, loggers=loggers
            )
            if continues:
                trainer.load()
            if not world.leader:
                return train_and_summarise(trainer, config)
            card = self.describe_run(config, data, model, processes=world.size)
            run.forget_replaced()
            run.write_card(card)
            inform(f"{run.folder}: {describe_plan(config, card, trainer)}")
            result = train_and_summarise(trainer, config)
            run.write_card({**card, "phases": result["phases"]})
            return result

    def make_trainer(
        self,
        config: C,
        run: Run,
        data: TrainingData[V, Any],
        *,
        model: M,
        world: World,
        phase: Phase,
        loggers: Sequence[RunLogger],
    ) -> Trainer:
        """What trains a model, at its first step."""
        module = LossModule(model, config.objective.build(), label_smoothing=config.training.label_smoothing)
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
        return Trainer(
            data, module, run, config=settings, metadata=metadata, world=world, phase=phase, loggers=loggers
        )

    def warm_up(
        self,
        model: M,
        config: C,
        run: Run,
        *,
        data: TrainingData[V, Any],
        world: World,
        loggers: Sequence[RunLogger] = (),
    ) -> None:
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
                if run.tokenizer.is_file():  # a task may have none
                    storage.write_bytes(Run(source).tokenizer, run.tokenizer.read_bytes())
                self.open_run(first, Run(source), resume=True, overwrite=False)
            world.wait()
            steps = -(-len(data.batch_keys(0)) // config.training.accumulate)
            if world.leader and (problem := warn_before(config, first, steps)):
                warn(problem)
            result = self.train_prepared(
                first,
                Run(source),
                data,
                world=world,
                continues=continues,
                loggers=loggers,
                later=config.training,
            )
            if world.leader and (problem := warn_between(config, result["phases"][-1], steps)):
                warn(problem)
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


def start_loggers(config: TaskRecipe, run: Run, given: LoggerFactory | None) -> list[Guarded]:
    """The logger of the recipe and the one that was passed, started with the recipe and the run directory."""
    name = config.training.logger
    factories = [*([find_logger(name)] if name is not None else []), *([given] if given is not None else [])]
    return [Guarded(make_logger(f, config.model_dump(mode="json"), run.folder)) for f in factories]


def usable_device(text: str) -> torch.device:
    """A device by name, if it exists here."""
    try:
        device = torch.device(text)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {text!r} cannot be used: {str(error).splitlines()[0]}") from None
    return device
