"""Workloads to measure: what is trained and translated. Presets are random models on random sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from latentalign.bench.rows import SOFT, Row
from latentalign.bench.sentences import FixedLength, Lengths, zipf_corpus
from latentalign.search import BeamSearch
from latentalign.tasks.nmt.data import Batch, Batches, Corpus, collate
from latentalign.tasks.nmt.inference_network import InferenceConfig
from latentalign.tasks.nmt.model import ModelConfig, TranslationModel
from latentalign.training.loss import LossModule
from latentalign.training.recipe import TrainingConfig

POOL = 100
"""Number of batches whose sentences are sorted by length together, as in training."""
RATE = 1e-9
"""A learning rate so small that the model stays as it is, at the full cost of an update."""
MULTI30K = Lengths()


class Workload(Protocol):
    """A model with sentences to train on and to translate; picklable, and the same in every process."""

    def problem(self, row: Row) -> tuple[Any, LossModule]:
        """The data, and the model with its objective."""

    def training(self) -> TrainingConfig:
        """Settings of the training loop."""

    def translation(self) -> tuple[TranslationModel, list[list[int]]]:
        """A model and source sentences."""

    def search(self, beam: int) -> BeamSearch:
        """The search that translates."""

    def random(self) -> Preset:
        """A random model of the same sizes, with random sentences."""

    def about(self) -> dict[str, Any]:
        """Facts that a reader of the results needs."""


@dataclass(frozen=True)
class Preset:
    """A random model on random sentences; it needs no files."""

    model: ModelConfig
    inference: InferenceConfig
    vocabulary: int = 7900
    """Size of each side's vocabulary."""
    batch: int = 192
    lengths: Lengths | FixedLength = MULTI30K
    seed: int = 0

    def corpus(self) -> Corpus:
        """As many sentences as training sorts by length together."""
        return zipf_corpus(self.lengths, POOL * self.batch, self.vocabulary, seed=self.seed)

    def build(self, row: Row) -> TranslationModel:
        """A model with the parts that the row needs."""
        objective = row.objective.prototype
        inference = self.inference if objective.needs_inferred else None
        return TranslationModel(
            self.model,
            source_size=self.vocabulary,
            target_size=self.vocabulary,
            distribution=objective.distribution,
            prior=row.prior,
            inference=inference,
        )

    def problem(self, row: Row) -> tuple[RandomData, LossModule]:
        module = LossModule(self.build(row), row.objective.build())
        return RandomData(self.corpus(), self.batch), module

    def training(self) -> TrainingConfig:
        return TrainingConfig(learning_rate=RATE, batch_sentences=self.batch)

    def translation(self) -> tuple[TranslationModel, list[list[int]]]:
        corpus = self.corpus()
        return self.build(SOFT), [corpus.source(i).tolist() for i in range(len(corpus))]

    def search(self, beam: int) -> BeamSearch:
        """A search whose outputs are as long as their source with </s>, as a random model hardly ever ends one."""
        return BeamSearch(beam=beam, max_length_ratio=1.0, max_length_extra=1)

    def random(self) -> Preset:
        return self

    def about(self) -> dict[str, Any]:
        sizes = self.model.model_dump(exclude={"max_logits", "init"})
        lengths = asdict(self.lengths)
        return {"vocabulary": self.vocabulary, "batch": self.batch, "lengths": lengths, "model": sizes}


class RandomData:
    """Random sentences as batches; the training loop asks for no more of them during single updates."""

    def __init__(self, corpus: Corpus, batch: int) -> None:
        self.train, self.size = corpus, batch

    def batch_keys(self, epoch: int) -> Sequence[np.ndarray]:
        return Batches(self.train, batch_sentences=self.size, pool=POOL).epoch_batches(epoch)

    def load_batch(self, key: np.ndarray) -> Batch:
        return collate(self.train, key)

    def describe_batch(self, key: np.ndarray) -> str:
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
