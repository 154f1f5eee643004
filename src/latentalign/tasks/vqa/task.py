"""Visual question answering as a task: its configuration, what the training loop needs of it, and models read back."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from latentalign.core.distributions import DISTRIBUTIONS
from latentalign.core.objectives import Objective
from latentalign.core.predictives import parse_predict
from latentalign.data.region_features import Features
from latentalign.errors import InputError
from latentalign.storage import fingerprint
from latentalign.tasks.vqa.data import Batch, Corpus, DataConfig, SplitConfig, judged_batches, read_split
from latentalign.tasks.vqa.inference_network import InferenceConfig
from latentalign.tasks.vqa.model import AnswerModel, ModelConfig, count_parameters
from latentalign.tasks.vqa.tokenizer import TokenizerConfig, Vocabulary
from latentalign.tasks.vqa.vectors import read_vectors
from latentalign.training.distributed import World
from latentalign.training.loop import Task, TrainingConfig, perplexity
from latentalign.training.objective import ObjectiveConfig
from latentalign.training.run import Run
from latentalign.training.session import Craft, LossModule, Recipe, load_parts

EVALUATION_ROWS = 512


class AnsweringTraining(TrainingConfig):
    """Training as in the paper's Appendix B, unless a recipe says otherwise."""

    learning_rate: float = Field(5e-4, gt=0)
    epochs: int = Field(50, ge=1)
    batch_sentences: int | None = Field(512, ge=1)
    """Questions of a batch."""


class VQAConfig(Recipe):
    """A whole recipe."""

    data: DataConfig
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    inference: InferenceConfig = InferenceConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    training: AnsweringTraining = AnsweringTraining()


class AnsweringTask:
    """What the training loop needs of question answering."""

    def __init__(
        self, config: VQAConfig, vocabulary: Vocabulary, model: AnswerModel, *, world: World | None = None
    ) -> None:
        self.config, self.vocabulary = config, vocabulary
        self.objective = config.objective.build()
        self.module = LossModule(model, self.objective)
        self.train, self.valid = (
            open_corpus(config, vocabulary, s) for s in (config.data.train, config.data.valid)
        )
        for corpus, split in ((self.train, config.data.train), (self.valid, config.data.valid)):
            if not len(corpus.answerable):
                raise InputError(f"{split.annotations}: no question has an answer that the model can give")
        self.device = torch.device(config.training.device)
        self.place = (0, 1) if world is None else (world.rank, world.size)

    def epoch(self, number: int) -> Sequence[np.ndarray]:
        """Rows of (position, answer) for every batch: answers are drawn anew each epoch, in proportion to votes."""
        seed = self.config.training.seed
        answers, usable = self.train.drawn(seed, number), self.train.answerable
        order = np.random.default_rng([seed, number, 1]).permutation(usable)
        size = self.config.training.batch_sentences or 512
        rank, world = self.place
        size *= world
        batches = [order[i : i + size][rank::world] for i in range(0, len(order), size)]
        return [np.stack([b, answers[b]], 1) for b in batches]

    def batch(self, key: np.ndarray) -> tuple[Batch]:
        batch = self.train.batch(key[:, 0], key[:, 1]) if len(key) else self.train.nothing()
        return (batch.to(self.device),)

    def describe(self, key: np.ndarray) -> str:
        ids = ", ".join(str(self.train.examples[i].question.question_id) for i in key[:, 0])
        return f"{self.config.data.train.questions} questions {ids}"

    def validate(self) -> dict[str, float]:
        """The bound and the objective's own likelihood as perplexities of the answer, over all human answers."""
        own = parse_predict(self.objective.predict)
        bound = value = entropy = 0.0
        for judged in judged_batches(self.valid, EVALUATION_ROWS):
            latent = self.module.model.latent(judged.batch.to(self.device))
            weight = judged.weight.to(self.device)
            bound += float((self.objective(latent).value.double() * weight).sum())
            value += float((own.log_prob(latent).double() * weight).sum())
            mean = latent.prior.mean.double()
            entropy -= float((torch.xlogy(mean, mean).sum(-1) * weight).sum())
        count = len(self.valid.answerable)
        return {
            "bound": perplexity(bound, count),
            "ppl": perplexity(value, count),
            "entropy": entropy / max(1, count),
        }

    def model_tensors(self) -> dict[str, Tensor]:
        return dict(self.module.model.state_dict())


def open_corpus(config: VQAConfig, vocabulary: Vocabulary, split: SplitConfig) -> Corpus:
    """A split, ready to be batched."""
    examples = read_split(split, seed=config.data.split_seed)
    return Corpus(examples, vocabulary, split, max_regions=config.data.max_regions)


class Answering(Craft[VQAConfig, Vocabulary]):
    """Question answering as a task that can be trained."""

    name = "vqa"
    recipe = VQAConfig

    def needed(self, config: VQAConfig) -> Path:
        return (config.data.test or config.data.valid).features

    def prepare(self, config: VQAConfig, run: Run) -> None:
        if not run.tokenizer.is_file():
            examples = read_split(config.data.train, seed=config.data.split_seed)
            with Features(config.data.train.features) as features:
                region_dim = features.size
            learned = Vocabulary.learn(
                config.tokenizer,
                (e.question for e in examples),
                [e.annotation for e in examples],
                region_dim=region_dim,
            )
            learned.save(run.tokenizer)
            coverage = learned.coverage([e.annotation for e in examples])
            print(f"latentalign: {coverage}", file=sys.stderr)

    def vocabulary(self, run: Run) -> Vocabulary:
        return Vocabulary.load(run.tokenizer)

    def model(self, config: VQAConfig, vocabulary: Vocabulary, run: Run) -> AnswerModel:
        objective = config.objective.build()
        if not DISTRIBUTIONS[objective.distribution].supports("enumerate"):
            raise InputError(
                f"{config.objective.name} is not for question answering: a blend of regions is no region, and the "
                "paper reports no such row; choose an objective with a categorical alignment"
            )
        return AnswerModel(
            config.model,
            words=len(vocabulary.words),
            answers=len(vocabulary.answers),
            region_dim=vocabulary.region_dim,
            distribution=objective.distribution,
            inference=config.inference if objective.needs_inferred else None,
        )

    def warm_up(
        self, model: nn.Module, config: VQAConfig, run: Run, *, vocabulary: Vocabulary, world: World
    ) -> None:
        """Start from text vectors, where a file is given, or from another model."""
        if config.model.vectors is not None:
            assert isinstance(model, AnswerModel)
            vectors, found = read_vectors(config.model.vectors, vocabulary.words, config.model.embedding)
            with torch.no_grad():
                model.embedding.weight[found] = vectors[found].to(model.embedding.weight)
        super().warm_up(model, config, run, vocabulary=vocabulary, world=world)

    def task(
        self, config: VQAConfig, vocabulary: Vocabulary, run: Run, *, model: nn.Module, world: World
    ) -> AnsweringTask:
        assert isinstance(model, AnswerModel)
        return AnsweringTask(config, vocabulary, model, world=world)

    def card(self, config: VQAConfig, task: Task, model: nn.Module) -> dict[str, Any]:
        """Hashes of the text, what was kept of it, and sizes."""
        assert isinstance(task, AnsweringTask)
        splits = {"train": config.data.train, "valid": config.data.valid, "test": config.data.test}
        usable = {"train": len(task.train.answerable), "valid": len(task.valid.answerable)}
        return {
            "data": {
                name: {"questions": fingerprint(s.questions), "annotations": fingerprint(s.annotations)}
                for name, s in splits.items()
                if s is not None
            },
            "questions": {"train": len(task.train), "valid": len(task.valid)},
            "answerable": usable,
            "coverage": task.vocabulary.coverage([e.annotation for e in task.train.examples]),
            "vocabulary": {"words": len(task.vocabulary.words), "answers": len(task.vocabulary.answers)},
            "parameters": count_parameters(model),
        }


ANSWERING = Answering()
train = ANSWERING.train


@dataclass(frozen=True, eq=False)
class Trained:
    """A model read back from a run directory, with all that belongs to it."""

    run: Run
    config: VQAConfig
    vocabulary: Vocabulary
    model: AnswerModel
    objective: Objective

    @classmethod
    def load(cls, folder: Path | str, *, device: str = "cpu", double: bool = False) -> Trained:
        """The best model of a run; every fault of its files is a CheckpointError."""
        run, config, vocabulary, model = load_parts(ANSWERING, folder, device=device, double=double)
        return cls(run, config, vocabulary, model, config.objective.build())

    def corpus(self, split: str) -> Corpus:
        """A split of the run's data by name."""
        splits = {"train": self.config.data.train, "valid": self.config.data.valid}
        if self.config.data.test is not None:
            splits["test"] = self.config.data.test
        if split not in splits:
            raise InputError(f"{self.run.folder}: no split {split!r}; it has {', '.join(splits)}")
        return open_corpus(self.config, self.vocabulary, splits[split])

    @property
    def device(self) -> torch.device:
        return self.model.head.output.weight.device
