"""A run directory of `latentalign train` as a workload to measure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from latentalign import config as recipes
from latentalign.bench.rows import SOFT, Row
from latentalign.bench.workload import RATE, Preset
from latentalign.search import BeamSearch
from latentalign.tasks.nmt.external import obtain_links
from latentalign.tasks.nmt.model import TranslationModel
from latentalign.tasks.nmt.recipe import NMTConfig
from latentalign.tasks.nmt.task import TRANSLATION, build_caches
from latentalign.tasks.nmt.tokenizer import Tokenizer
from latentalign.tasks.nmt.training_data import TranslationData
from latentalign.tasks.nmt.translate import TranslationSettings
from latentalign.textfiles import read_lines
from latentalign.training.loss import LossModule
from latentalign.training.recipe import TrainingConfig
from latentalign.training.run import Run


@dataclass(frozen=True)
class TrainedRun:
    """The model, settings and data of a run."""

    folder: Path
    batch: int | None = None
    """Sentences in a batch; None means as in the run's own training."""

    def check(self) -> None:
        """Raise if files of the run or its data cannot be used."""
        self.problem(SOFT)
        self.translation()

    def config(self) -> NMTConfig:
        """The run's recipe, in float32 on the CPU, with this measurement's learning rate and batches."""
        config = recipes.load(Run(self.folder).config, NMTConfig)
        changes: dict[str, Any] = {"learning_rate": RATE, "tensorboard": False}
        changes |= {"precision": "float32", "device": "cpu"}
        if self.batch is not None:
            changes |= {"batch_sentences": self.batch, "batch_tokens": None}
        return config.model_copy(update={"training": config.training.model_copy(update=changes)})

    def training(self) -> TrainingConfig:
        return self.config().training

    def build(self, row: Row) -> tuple[NMTConfig, Tokenizer, TranslationModel]:
        """The trained model with the parts that a row needs; those it lacks, such as q, are random."""
        trained = TRANSLATION.load(self.folder)
        config = self.config().model_copy(update={"objective": row.objective})
        if row.prior.kind != "independent":
            config = config.model_copy(update={"prior": row.prior})
        model = TRANSLATION.build_model(config, trained.vocabulary)
        model.load_state_dict(trained.model.state_dict(), strict=False)
        return config, trained.vocabulary, model

    def problem(self, row: Row) -> tuple[TranslationData, LossModule]:
        config, tokenizer, model = self.build(row)
        corpora = build_caches(config, tokenizer, Run(self.folder).cache)
        links = obtain_links(config, tokenizer, Run(self.folder).cache)
        data = TranslationData(config, tokenizer, corpora, links=links)
        return data, LossModule(model, row.objective.build())

    def translation(self) -> tuple[TranslationModel, list[list[int]]]:
        """The trained model with a categorical prior, and the test sentences, or else the validation sentences."""
        config, tokenizer, model = self.build(SOFT)
        split = config.data.test or config.data.valid
        encoded = tokenizer.encode_source_batch(list(read_lines(split.text("source"))))
        return model, [list(one.ids) for one in encoded if one.ids]

    def search(self, beam: int) -> BeamSearch:
        return TranslationSettings(beam=beam).search(self.config().search)

    def random(self) -> Preset:
        config = self.config()
        inference = config.inference.model_copy(update={"kind": "network"})
        size = Tokenizer.load(Run(self.folder).tokenizer).target_size
        preset = Preset(config.model, inference, size)
        return preset if self.batch is None else replace(preset, batch=self.batch)

    def about(self) -> dict[str, Any]:
        training = self.training()
        batch = training.batch_sentences or f"{training.batch_tokens or 4096} tokens"
        return {**self.random().about(), "run": str(self.folder), "batch": batch, "lengths": "the run's own"}
