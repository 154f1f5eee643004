"""What is trained and translated while it is measured: a random model on random sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from latentalign.bench.sentences import Lengths, Same, zipf_corpus
from latentalign.search import BeamSearch
from latentalign.tasks.nmt.data import Batch, Batches, Corpus, collate
from latentalign.tasks.nmt.inference_network import InferenceConfig
from latentalign.tasks.nmt.model import ModelConfig, TranslationModel
from latentalign.tasks.nmt.task import LossModule
from latentalign.training.loop import TrainingConfig
from latentalign.training.objective import ObjectiveConfig

POOL = 100
"""Batches that sentences are sorted in, as in training."""
RATE = 1e-9
"""The learning rate: an update costs what it always does, and the model stays as sharp as it was."""
SOFT = ObjectiveConfig(name="soft")
MULTI30K = Lengths()


class Workload(Protocol):
    """Something to train on and to translate; picklable, and the same in every process."""

    def task(self, objective: ObjectiveConfig) -> Any:
        """What the training loop needs."""

    def training(self) -> TrainingConfig:
        """How an update is made."""

    def translation(self) -> tuple[TranslationModel, list[list[int]]]:
        """A model and source sentences."""

    def search(self, beam: int) -> BeamSearch:
        """How sentences are translated."""

    def random(self) -> Preset:
        """Random sentences for a model of the same sizes."""

    def about(self) -> dict[str, Any]:
        """What a reader must know of it."""


@dataclass(frozen=True)
class Preset:
    """A random model on random sentences: nothing needs to be there."""

    model: ModelConfig
    inference: InferenceConfig
    vocabulary: int = 7900
    """Of either side."""
    batch: int = 192
    lengths: Lengths | Same = MULTI30K
    seed: int = 0

    def corpus(self) -> Corpus:
        """As many sentences as are sorted by length at once in training."""
        return zipf_corpus(self.lengths, POOL * self.batch, self.vocabulary, seed=self.seed)

    def build(self, objective: ObjectiveConfig) -> TranslationModel:
        """A model with the parts that the objective needs."""
        built = objective.build()
        inference = self.inference if built.needs_inferred else None
        sizes = {"source_size": self.vocabulary, "target_size": self.vocabulary}
        return TranslationModel(self.model, family=built.family, inference=inference, **sizes)

    def task(self, objective: ObjectiveConfig) -> RandomTask:
        return RandomTask(LossModule(self.build(objective), objective.build()), self.corpus(), self.batch)

    def training(self) -> TrainingConfig:
        return TrainingConfig(learning_rate=RATE, batch_sentences=self.batch)

    def translation(self) -> tuple[TranslationModel, list[list[int]]]:
        corpus = self.corpus()
        return self.build(SOFT), [corpus.source(i).tolist() for i in range(len(corpus))]

    def search(self, beam: int) -> BeamSearch:
        """Outputs as long as their source and its </s>: by itself a random model hardly ever ends."""
        return BeamSearch(beam=beam, max_length_ratio=1.0, max_length_extra=1)

    def random(self) -> Preset:
        return self

    def about(self) -> dict[str, Any]:
        sizes = self.model.model_dump(exclude={"max_logits", "init"})
        lengths = asdict(self.lengths)
        return {"vocabulary": self.vocabulary, "batch": self.batch, "lengths": lengths, "model": sizes}


class RandomTask:
    """Model, objective and random sentences, as the training loop asks for them."""

    def __init__(self, module: LossModule, corpus: Corpus, batch: int) -> None:
        self.module, self.train, self.size = module, corpus, batch

    def epoch(self, number: int) -> Sequence[np.ndarray]:
        return Batches(self.train, batch_sentences=self.size, pool=POOL).epoch_batches(number)

    def batch(self, key: np.ndarray) -> tuple[Batch, Tensor | None]:
        return collate(self.train, key), None

    def describe(self, key: np.ndarray) -> str:
        return f"random sentences {key.tolist()}"


PRESETS = {
    "multi30k": Preset(
        ModelConfig(
            embedding=256,
            encoder_layers=1,
            encoder_size=256,
            decoder_layers=1,
            decoder_size=256,
            attention_size=256,
            head_size=256,
            dropout=0.3,
        ),
        InferenceConfig(layers=1, size=256),
    )
}
