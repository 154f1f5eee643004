"""The recipe of question answering, and the type of its trained models."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from latentalign.tasks.base import Trained, choose_split
from latentalign.tasks.looks import LooksConfig
from latentalign.tasks.vqa.data import Corpus, DataConfig, SplitConfig, read_split
from latentalign.tasks.vqa.inference_network import InferenceConfig
from latentalign.tasks.vqa.model import AnswerModel, ModelConfig
from latentalign.tasks.vqa.tokenizer import TokenizerConfig, Vocabulary
from latentalign.training.objective import ObjectiveConfig
from latentalign.training.recipe import TaskRecipe, TrainingConfig


class AnsweringTraining(TrainingConfig):
    """Training as in the paper's Appendix B, unless a recipe says otherwise."""

    learning_rate: float = Field(5e-4, gt=0)
    epochs: int = Field(50, ge=1)
    batch_sentences: int | None = Field(512, ge=1)
    """Questions of a batch."""


class VQAConfig(TaskRecipe):
    """A whole recipe."""

    task: Literal["vqa"] = "vqa"
    """The task to train. A recipe without this key is recognised by its data."""
    data: DataConfig
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    prior: LooksConfig = LooksConfig()
    inference: InferenceConfig = InferenceConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    training: AnsweringTraining = AnsweringTraining()

    @model_validator(mode="after")
    def _check_looks(self) -> VQAConfig:
        """Refuse several looks where the objective cannot use them."""
        self.prior.check_objective(self.objective.name, self.objective.prototype)
        return self

    @model_validator(mode="after")
    def _size_inference_network(self) -> VQAConfig:
        """Let the inference network follow the prior, so that a complete recipe states its size."""
        object.__setattr__(self, "inference", self.inference.like_prior(self.model.attention_size))
        return self


TrainedAnswerer = Trained[VQAConfig, Vocabulary, AnswerModel]


def open_corpus(config: VQAConfig, vocabulary: Vocabulary, split: SplitConfig) -> Corpus:
    """A split, ready to be batched."""
    examples = read_split(split, seed=config.data.split_seed)
    return Corpus(examples, vocabulary, split, max_regions=config.data.max_regions)


def open_split(trained: TrainedAnswerer, name: str) -> Corpus:
    """A split of a run's data by name, ready to be batched."""
    data = trained.config.data
    splits = {"train": data.train, "valid": data.valid, "test": data.test}
    return open_corpus(trained.config, trained.vocabulary, choose_split(splits, name, trained.run.folder))
