"""The data of a translation run as the training loop needs it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from latentalign.errors import InputError
from latentalign.links.formats import read_predicted
from latentalign.links.sets import LinkProbabilities
from latentalign.tasks.nmt.data import Batch, Batches, Corpus, collate
from latentalign.tasks.nmt.inference_network import external_scores
from latentalign.tasks.nmt.recipe import NMTConfig
from latentalign.tasks.nmt.splits import SplitConfig
from latentalign.tasks.nmt.text_scores import bleu_signature
from latentalign.tasks.nmt.tokenizer import EOS, Tokenizer
from latentalign.training.data import TrainingData, WeightedBatch
from latentalign.training.distributed import World

EVALUATION_TOKENS = 4096
DEFAULT_BATCH_TOKENS = 4096


class ExternalLinks:
    """q from another aligner: the word links of a corpus, ready to become scores of a batch."""

    def __init__(
        self, corpus: Corpus, tokenizer: Tokenizer, split: SplitConfig, *, key: str, config: NMTConfig
    ) -> None:
        if split.links is None:
            raise InputError(f'inference.kind = "external" needs data.{key}.links, a Pharaoh file')
        links = read_predicted(split.links).weights
        lines = list(split.read())
        if len(links) != len(lines):
            raise InputError(f"{split.links} has {len(links)} lines, {split} has {len(lines)}")
        kept = [corpus.line(i) - 1 for i in range(len(corpus))]
        self.links: list[LinkProbabilities] = [links[i] for i in kept]
        self.source = [e.words for e in tokenizer.encode_source_batch([lines[i][0] for i in kept])]
        self.target = [e.words for e in tokenizer.encode_target_batch([lines[i][1] for i in kept])]
        self.smoothing, self.null = config.inference.smoothing, config.prior.null

    def scores(self, batch: Batch) -> Tensor:
        """log q of every alignment of a batch: (B, S, T). If the prior has NULL, it is the last member."""
        shape = (*batch.target.shape, batch.source.shape[1] + self.null)
        rows = batch.index.tolist()
        if not rows:
            return torch.zeros(shape)
        return external_scores(
            [self.links[i] for i in rows],
            [self.source[i] for i in rows],
            [self.target[i] for i in rows],
            smoothing=self.smoothing,
            shape=shape,
            null=self.null,
        )

    def attach(self, batch: Batch) -> Batch:
        """The same batch with the scores of q."""
        return dataclasses.replace(batch, external=self.scores(batch))


class TranslationData(TrainingData[Tokenizer, np.ndarray]):
    """Encoded training and validation pairs, and the links of an external q."""

    def __init__(
        self,
        config: NMTConfig,
        tokenizer: Tokenizer,
        corpora: tuple[Corpus, Corpus],
        *,
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
        self.external = read_external(config, tokenizer, {"train": self.train, "valid": self.valid})

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
        return {
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
        """Attach the external q, where there is one, and move to the device."""
        if split in self.external:
            batch = self.external[split].attach(batch)
        return batch.to(self.device)


def read_external(
    config: NMTConfig, tokenizer: Tokenizer, corpora: dict[str, Corpus]
) -> dict[str, ExternalLinks]:
    """The links of each split, if the objective needs a q and the recipe takes it from files."""
    if config.inference.kind != "external" or not config.objective.build().needs_inferred:
        return {}
    splits = {"train": config.data.train, "valid": config.data.valid}
    return {
        key: ExternalLinks(corpus, tokenizer, splits[key], key=key, config=config)
        for key, corpus in corpora.items()
    }


def evaluation_batches(corpus: Corpus) -> Iterator[Batch]:
    """All pairs of a corpus in order of length."""
    for indices in Batches(corpus, batch_tokens=EVALUATION_TOKENS, shuffle=False).epoch_batches(0):
        yield collate(corpus, indices)


def empty_batch() -> Batch:
    """A process's share of a batch that has none for it: no query, but every parameter takes part."""
    one, here = torch.full((1, 1), EOS), torch.ones(1, 1, dtype=torch.bool)
    return Batch(one, here, one, ~here, torch.zeros(0, dtype=torch.int64))
