"""What a task is. A task is one class: it trains, evaluates, explains and serves its models."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic

import torch
from pydantic import BaseModel

from latentalign.config import Recipe
from latentalign.core.objectives import Objective
from latentalign.data.known import advise_on_corpus
from latentalign.errors import CheckpointError, InputError
from latentalign.tasks.figure_notes import FigureNote
from latentalign.training.data import V
from latentalign.training.run import Run
from latentalign.training.trainable import C, M, Trainable, usable_device

if TYPE_CHECKING:
    from fastapi import FastAPI

    from latentalign.reproduction.experiment import Experiment
    from latentalign.tasks.diagnosis import ExampleSet


@dataclass(frozen=True, eq=False)
class Trained(Generic[C, V, M]):
    """A model read back from a run directory, with everything that belongs to it."""

    run: Run
    config: C
    vocabulary: V
    model: M
    objective: Objective

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return next(self.model.parameters()).device


@dataclass(frozen=True)
class EvaluationOptions:
    """How `latentalign evaluate` measures a run; None means as in the run's recipe."""

    predict: str | None = None
    """The predictive inference: exact, certified:TOL, kmax:K, soft or sample:N."""
    beam: int | None = None
    """The beam width, for tasks that search for outputs."""
    outputs: bool = True
    """Whether to predict and score outputs, where likelihoods can be measured without them."""
    details: int | None = None
    """Examples to write details of; without it, there are no details."""


class Task(Trainable[C, V, M]):
    """A task: everything that the commands need to know, so that no command asks which task it has."""

    title: ClassVar[str]
    """What people call the task, e.g. "translation"."""
    figure_notes: ClassVar[Mapping[str, FigureNote]] = {}
    """What each figure of `evaluate` means, with its unit."""
    serve_options: ClassVar[frozenset[str]] = frozenset()
    """The options of `latentalign serve` that only some tasks have and this one accepts."""

    optional_files: ClassVar[frozenset[str]] = frozenset()
    """Keys of the recipe whose files training does not need."""

    def check_files(self, config: C) -> None:
        for key, path in named_files(config):
            if key.rpartition(".")[2] not in self.optional_files and not path.exists():
                raise InputError(f"{key}: {path}: no such file{advise_on_corpus(path)}")

    @abstractmethod
    def required_file(self, config: C) -> Path:
        """The data file that is written last; without it, the data set is incomplete."""

    def load(
        self,
        folder: Path | str,
        *,
        device: str = "cpu",
        double: bool = False,
        recipe: Recipe | None = None,
    ) -> Trained[C, V, M]:
        """The best model of a run; every defect of its files is a CheckpointError.

        If you have read the run's recipe before, pass it, so that it is not read again.
        """
        run = Run(Path(folder))
        recipe = recipe or run.read_recipe()
        try:
            config = recipe.build(self.recipe)
        except InputError as error:
            raise CheckpointError(f"{run.config}: {error}") from None
        vocabulary = self.load_vocabulary(run)
        tensors, metadata = run.load_model()
        if metadata.get("tokenizer") != vocabulary.fingerprint():
            raise CheckpointError(f"{run.tokenizer}: does not belong to {run.model}: the vocabularies differ")
        torch.set_num_threads(config.training.threads)
        try:
            model = self.restore_model(config, vocabulary, tensors)
        except (KeyError, IndexError, RuntimeError) as error:
            raise CheckpointError(f"{run.model}: does not fit {run.config}: {error}") from None
        model = (model.double() if double else model.float()).to(usable_device(device)).eval()
        return Trained(run, config, vocabulary, model, config.objective.prototype)

    def restore_model(self, config: C, vocabulary: V, tensors: Mapping[str, torch.Tensor]) -> M:
        """The model that a recipe describes, with the tensors of a run."""
        model = self.build_model(config, vocabulary)
        model.load_state_dict(tensors)
        return model

    @abstractmethod
    def evaluate(
        self, trained: Trained[C, V, M], split: str, options: EvaluationOptions
    ) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Every figure of a split, None where one does not exist; and the details, if they are wanted."""

    def evaluation_files(self, config: C, split: str) -> dict[str, Path]:
        """The data files that an evaluation of a split depends on, by their keys in the recipe."""
        return {key: path for key, path in named_files(config) if f"{key}.".startswith(f"data.{split}.")}

    @abstractmethod
    def examples(self, trained: Trained[C, V, M], split: str, count: int) -> list[dict[str, Any]]:
        """Some examples of a split with their alignments, for the viewers of a page."""

    @abstractmethod
    def example_set(self, trained: Trained[C, V, M], split: str) -> ExampleSet:
        """The examples of a split, to be loaded by position."""

    def diagnose(
        self, trained: Trained[C, V, M], split: str, *, examples: int, batch: int, draws: int
    ) -> dict[str, Any]:
        """Bounds, gradients of the estimators and Proposition 1 on some examples of a split."""
        from latentalign.tasks.diagnosis import diagnose_model

        found = self.example_set(trained, split)
        return diagnose_model(trained, split, found, count=examples, batch=batch, draws=draws)

    @abstractmethod
    def experiment(self) -> Experiment:
        """The rows, tables, figures and claims of `latentalign reproduce` and `latentalign report`."""

    @abstractmethod
    def serve(self, trained: Trained[C, V, M], title: str, options: Mapping[str, Any]) -> FastAPI:
        """A web application around a model."""


def require_one_task(tasks: Sequence[Task[Any, Any, Any]]) -> Task[Any, Any, Any]:
    """The task that several runs have in common."""
    titles = sorted({task.title for task in tasks})
    if len(titles) > 1:
        raise InputError(
            f"runs of {' and '.join(titles)} do not fit on one page; write one page for each task"
        )
    return tasks[0]


def choose_split(splits: Mapping[str, Any], name: str, folder: Path) -> Any:
    """A split of a run's data by name."""
    existing = {key: split for key, split in splits.items() if split is not None}
    if name not in existing:
        raise InputError(f"{folder}: no split {name!r}; it has {', '.join(existing)}")
    return existing[name]


def named_files(section: BaseModel, above: str = "") -> Iterator[tuple[str, Path]]:
    """Every file that a recipe names, with its key."""
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            yield from named_files(value, f"{above}{name}.")
        elif isinstance(value, Path):
            yield f"{above}{name}", value
