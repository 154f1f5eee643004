"""The data of a translation run as the training loop needs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from latentalign.tasks.nmt.data import Batch, Batches, Corpus, collate
from latentalign.tasks.nmt.evidence import TrainingEvidence
from latentalign.tasks.nmt.external import ExternalLinks
from latentalign.tasks.nmt.recipe import NMTConfig
from latentalign.tasks.nmt.text_scores import bleu_signature
from latentalign.tasks.nmt.tokenizer import EOS, Tokenizer
from latentalign.training.data import TrainingData, WeightedBatch
from latentalign.training.distributed import World

EVALUATION_TOKENS = 4096
DEFAULT_BATCH_TOKENS = 4096


class TranslationData(TrainingData[Tokenizer, np.ndarray]):
    """Encoded training and validation pairs, and the links of q if they come from files (`links`, by split)."""

    def __init__(
        self,
        config: NMTConfig,
        tokenizer: Tokenizer,
        corpora: tuple[Corpus, Corpus],
        *,
        links: Mapping[str, Path] | None = None,
        world: World | None = None,
    ) -> None:
        self.config, self.vocabulary = config, tokenizer
        self.train, self.valid = corpora
        training = config.training
        tokens, sentences = training.batch_tokens, training.batch_sentences
        self.batches = Batches(
            self.train,
            batch_tokens=DEFAULT_BATCH_TOKENS if tokens is None and sentences is None else tokens,
            batch_sentences=sentences,
            seed=training.seed,
            rank=0 if world is None else world.rank,
            world=1 if world is None else world.size,
        )
        self.device = torch.device(training.device)
        splits = {"train": (self.train, config.data.train), "valid": (self.valid, config.data.valid)}
        self.external = {
            key: ExternalLinks(splits[key][0], tokenizer, splits[key][1], path=path, config=config)
            for key, path in (links or {}).items()
        }
        self.evidence: TrainingEvidence | None = None
        if config.evidence.used:
            self.evidence = TrainingEvidence(
                config.evidence, self.train, tokenizer, split=config.data.train, null=config.prior.null
            )

    def batch_keys(self, epoch: int) -> Sequence[np.ndarray]:
        return self.batches.epoch_batches(epoch)

    def load_batch(self, key: np.ndarray) -> Batch:
        return self._finish("train", collate(self.train, key) if len(key) else empty_batch())

    def describe_batch(self, key: np.ndarray) -> str:
        lines = ", ".join(str(self.train.line(int(i))) for i in key)
        return f"{next(iter(self.config.data.train.files.values()))} lines {lines}"

    def validation_batches(self) -> Iterator[WeightedBatch[Batch]]:
        for batch in evaluation_batches(self.valid):
            yield WeightedBatch(self._finish("valid", batch))

    @property
    def validation_queries(self) -> int:
        return int(self.valid.lengths("target").sum()) + len(self.valid)  # each with </s>

    def card(self) -> dict[str, Any]:
        known = {"train": dict(self.train.fingerprints), "valid": dict(self.valid.fingerprints)}
        evidence = {} if self.evidence is None else {"evidence": self.evidence.card()}
        return {
            **evidence,
            "data": known | self.test_fingerprints,
            "pairs": {"train": len(self.train), "valid": len(self.valid)},
            "dropped": dict(self.train.dropped),
            "vocabulary": {"source": self.vocabulary.source_size, "target": self.vocabulary.target_size},
            "bleu": bleu_signature(self.config),
        }

    @cached_property
    def test_fingerprints(self) -> dict[str, dict[str, str]]:
        """SHA-256 of the text of the test split, if there is one."""
        test = self.config.data.test
        if test is None:
            return {}
        return {"test": test.fingerprints()}

    def _finish(self, split: str, batch: Batch) -> Batch:
        """Attach the external q and the evidence about z, where they exist, and move to the device."""
        if split == "train" and self.evidence is not None:
            batch = self.evidence.attach(batch)
        if split in self.external:
            batch = self.external[split].attach(batch)
        return batch.to(self.device)


def evaluation_batches(corpus: Corpus) -> Iterator[Batch]:
    """All pairs of a corpus in order of length."""
    for indices in Batches(corpus, batch_tokens=EVALUATION_TOKENS, shuffle=False).epoch_batches(0):
        yield collate(corpus, indices)


def empty_batch() -> Batch:
    """A process's share of a batch that has none for it: no query, but every parameter takes part."""
    one, here = torch.full((1, 1), EOS), torch.ones(1, 1, dtype=torch.bool)
    return Batch(one, here, one, ~here, torch.zeros(0, dtype=torch.int64))
