"""The data of a question answering run as the training loop needs it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch

from latentalign.errors import InputError
from latentalign.storage import fingerprint
from latentalign.tasks.vqa.data import AnsweredBatch, Batch, Corpus, Example, answered_batches, read_split
from latentalign.tasks.vqa.recipe import VQAConfig, open_corpus
from latentalign.tasks.vqa.tokenizer import Vocabulary
from latentalign.training.data import TrainingData
from latentalign.training.distributed import World

EVALUATION_ROWS = 512


class AnsweringData(TrainingData[Vocabulary, np.ndarray]):
    """Training and validation questions; a batch is a list of (position, answer)."""

    def __init__(
        self,
        config: VQAConfig,
        vocabulary: Vocabulary,
        *,
        examples: Sequence[Example] | None = None,
        world: World | None = None,
    ) -> None:
        """`examples` are the training questions, if they were read before."""
        self.config, self.vocabulary = config, vocabulary
        data = config.data
        if examples is None:
            examples = read_split(data.train, seed=data.split_seed)
        self.train = Corpus(examples, vocabulary, data.train, max_regions=data.max_regions)
        self.valid = open_corpus(config, vocabulary, data.valid)
        for corpus, split in ((self.train, data.train), (self.valid, data.valid)):
            if not len(corpus.answerable):
                raise InputError(f"{split.annotations}: no question has an answer that the model can give")
        self.device = torch.device(config.training.device)
        self.rank, self.processes = (0, 1) if world is None else (world.rank, world.size)

    def batch_keys(self, epoch: int) -> Sequence[np.ndarray]:
        """Rows of (position, answer) for each batch; each epoch draws answers again, in proportion to votes."""
        seed = self.config.training.seed
        answers, usable = self.train.draw_answers(seed, epoch), self.train.answerable
        order = np.random.default_rng([seed, epoch, 1]).permutation(usable)
        size = (self.config.training.batch_sentences or 512) * self.processes
        batches = [order[i : i + size][self.rank :: self.processes] for i in range(0, len(order), size)]
        return [np.stack([b, answers[b]], 1) for b in batches]

    def load_batch(self, key: np.ndarray) -> Batch:
        batch = self.train.batch(key[:, 0], key[:, 1]) if len(key) else self.train.empty_batch()
        return batch.to(self.device)

    def describe_batch(self, key: np.ndarray) -> str:
        ids = ", ".join(str(self.train.examples[i].question.question_id) for i in key[:, 0])
        return f"{self.config.data.train.questions} questions {ids}"

    def validation_batches(self) -> Iterator[AnsweredBatch]:
        for part in answered_batches(self.valid, EVALUATION_ROWS):
            yield dataclasses.replace(part, batch=part.batch.to(self.device))

    @property
    def validation_queries(self) -> int:
        return len(self.valid.answerable)  # the shares of a question's answers sum to 1

    def card(self) -> dict[str, Any]:
        return {
            "data": self.fingerprints,
            "features": self.train.features.layout,
            "questions": {"train": len(self.train), "valid": len(self.valid)},
            "answerable": {"train": len(self.train.answerable), "valid": len(self.valid.answerable)},
            "coverage": self.vocabulary.coverage([e.annotation for e in self.train.examples]),
            "vocabulary": {"words": len(self.vocabulary.words), "answers": len(self.vocabulary.answers)},
        }

    @cached_property
    def fingerprints(self) -> dict[str, dict[str, str]]:
        """SHA-256 of questions and annotations of each split."""
        data = self.config.data
        splits = {"train": data.train, "valid": data.valid, "test": data.test}
        return {
            name: {"questions": fingerprint(s.questions), "annotations": fingerprint(s.annotations)}
            for name, s in splits.items()
            if s is not None
        }
