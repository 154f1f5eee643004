"""Visual question answering as a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from latentalign.core.distributions import DISTRIBUTIONS
from latentalign.data.region_features import Features
from latentalign.errors import InputError
from latentalign.progress import inform
from latentalign.tasks.base import EvaluationOptions, Task
from latentalign.tasks.diagnosis import ExampleSet
from latentalign.tasks.vqa.data import Batch, Example, read_split
from latentalign.tasks.vqa.figure_notes import FIGURES
from latentalign.tasks.vqa.model import AnswerModel
from latentalign.tasks.vqa.recipe import TrainedAnswerer, VQAConfig, open_split
from latentalign.tasks.vqa.tokenizer import Vocabulary
from latentalign.tasks.vqa.training_data import AnsweringData
from latentalign.tasks.vqa.vectors import read_vectors
from latentalign.training.distributed import World
from latentalign.training.run import Run

if TYPE_CHECKING:
    from fastapi import FastAPI

    from latentalign.reproduction.experiment import Experiment


class AnsweringTask(Task[VQAConfig, Vocabulary, AnswerModel]):
    """Questions about pictures in, answers out; the latent choice is the region that answers."""

    name = "vqa"
    title = "question answering"
    recipe = VQAConfig
    figure_notes = FIGURES
    serve_options = frozenset({"features", "images", "extractor"})
    optional_files = frozenset({"images"})

    def required_file(self, config: VQAConfig) -> Path:
        return (config.data.test or config.data.valid).features

    def check_recipe(self, config: VQAConfig) -> None:
        if not DISTRIBUTIONS[config.objective.prototype.distribution].supports("enumerate"):
            raise InputError(
                f"{config.objective.name} cannot train question answering: a mixture of regions is not a region. "
                "Choose an objective with a categorical alignment"
            )

    def prepare(self, config: VQAConfig, run: Run, world: World) -> AnsweringData:
        if run.tokenizer.is_file():
            return AnsweringData(config, Vocabulary.load(run.tokenizer), world=world)
        examples = read_split(config.data.train, seed=config.data.split_seed)
        vocabulary = learn_vocabulary(config, examples)
        vocabulary.save(run.tokenizer)
        inform(vocabulary.coverage([e.annotation for e in examples]))
        return AnsweringData(config, vocabulary, examples=examples, world=world)

    def load_vocabulary(self, run: Run) -> Vocabulary:
        return Vocabulary.load(run.tokenizer)

    def build_model(self, config: VQAConfig, vocabulary: Vocabulary) -> AnswerModel:
        self.check_recipe(config)
        objective = config.objective.build()
        return AnswerModel(
            config.model,
            words=len(vocabulary.words),
            answers=len(vocabulary.answers),
            region_dim=vocabulary.region_dim,
            distribution=objective.distribution,
            prior=config.prior,
            inference=config.inference if objective.needs_inferred else None,
        )

    def initialise_model(self, model: AnswerModel, config: VQAConfig, vocabulary: Vocabulary) -> None:
        """Start from word vectors, if the recipe names a file of them."""
        if config.model.vectors is not None:
            vectors, found = read_vectors(config.model.vectors, vocabulary.words, config.model.embedding)
            with torch.no_grad():
                model.embedding.weight[found] = vectors[found].to(model.embedding.weight)

    def evaluate(
        self, trained: TrainedAnswerer, split: str, options: EvaluationOptions
    ) -> tuple[dict[str, Any], dict[str, Any] | None]:
        from latentalign.tasks.vqa.details import details
        from latentalign.tasks.vqa.evaluate import evaluate

        result = evaluate(trained, split, predict=options.predict)
        if options.details is None:
            return result, None
        return result, details(trained, split, questions=options.details)

    def evaluation_files(self, config: VQAConfig, split: str) -> dict[str, Path]:
        """The files of the split, and the training questions, from which the baselines take their answers."""
        train = config.data.train
        learned = {"data.train.questions": train.questions, "data.train.annotations": train.annotations}
        return {**learned, **super().evaluation_files(config, split)}

    def examples(self, trained: TrainedAnswerer, split: str, count: int) -> list[dict[str, Any]]:
        from latentalign.tasks.vqa.details import example_regions

        return example_regions(trained, split, count)

    def example_set(self, trained: TrainedAnswerer, split: str) -> ExampleSet:
        """Questions that the model can answer, each with one answer drawn in proportion to the votes."""
        corpus = open_split(trained, split)
        answers, usable = corpus.draw_answers(trained.config.training.seed, 0), corpus.answerable

        def load(start: int, stop: int) -> Batch:
            return corpus.batch(usable[start:stop], answers[usable[start:stop]])

        return ExampleSet(len(usable), load, group=64)

    def experiment(self) -> Experiment:
        from latentalign.tasks.vqa.experiment import EXPERIMENT

        return EXPERIMENT

    def serve(self, trained: TrainedAnswerer, title: str, options: Mapping[str, Any]) -> FastAPI:
        from latentalign.tasks.vqa.serve import build_app

        return build_app(trained, title, **options)

    def answer(
        self, trained: TrainedAnswerer, questions: Path, features: Path, predict: str | None
    ) -> dict[int, str]:
        """The likeliest answer to each question of a file, by its id."""
        from latentalign.tasks.vqa.answer import answer_questions

        return answer_questions(trained, questions, features, predict=predict)

    def ask(
        self, trained: TrainedAnswerer, pictures: Sequence[Path], question: str, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Answers to a question about each of some picture files, and where the model looked."""
        from latentalign.tasks.vqa.ask import ask_pictures

        return ask_pictures(trained, pictures, question, **options)


def learn_vocabulary(config: VQAConfig, examples: list[Example]) -> Vocabulary:
    """The vocabulary of the training questions."""
    with Features(config.data.train.features) as features:
        region_dim = features.size
    questions = (e.question for e in examples)
    annotations = [e.annotation for e in examples]
    return Vocabulary.learn(config.tokenizer, questions, annotations, region_dim=region_dim)


ANSWERING = AnsweringTask()
