"""The recipe of translation, and the type of its trained models."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from latentalign.config import Section
from latentalign.tasks.base import Trained, choose_split
from latentalign.tasks.nmt.inference_network import InferenceConfig
from latentalign.tasks.nmt.model import ModelConfig, TranslationModel
from latentalign.tasks.nmt.splits import DataConfig, SplitConfig
from latentalign.tasks.nmt.tokenizer import Tokenizer, TokenizerConfig
from latentalign.training.objective import ObjectiveConfig
from latentalign.training.recipe import TaskRecipe, TrainingConfig


class SearchConfig(Section):
    """Beam search in evaluation and translation."""

    beam: int = Field(10, ge=1)
    """Number of hypotheses kept at each step."""
    length_penalty: float = 1.0
    """Exponent of the length normalisation ((5 + length) / 6). Use 0 to disable it."""
    eos_norm: float = 0.0
    """Subtract this value times |x| / length from log p(end of sentence). The paper's published runs used 3."""
    max_length_ratio: float = 2.0
    """A translation ends at this many tokens per source token, plus `max_length_extra`."""
    max_length_extra: int = 10
    """Tokens that a translation may have beyond `max_length_ratio`."""


class NMTConfig(TaskRecipe):
    """A whole recipe."""

    task: Literal["nmt"] = "nmt"
    """The task to train. A recipe without this key is recognised by its data."""
    data: DataConfig
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    inference: InferenceConfig = InferenceConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    training: TrainingConfig = TrainingConfig(batch_tokens=4096)
    search: SearchConfig = SearchConfig()

    @model_validator(mode="after")
    def _size_inference_network(self) -> NMTConfig:
        """Let the inference network follow the encoder, so that a complete recipe states its sizes."""
        sized = self.inference.like_encoder(self.model.encoder_layers, self.model.encoder_size)
        object.__setattr__(self, "inference", sized)  # the model is frozen, but not handed out yet
        return self


TrainedTranslator = Trained[NMTConfig, Tokenizer, TranslationModel]


def find_split(trained: TrainedTranslator, name: str) -> SplitConfig:
    """A split of a run's data by name."""
    data = trained.config.data
    split: SplitConfig = choose_split(
        {"train": data.train, "valid": data.valid, "test": data.test}, name, trained.run.folder
    )
    return split
