"""Questions, answers and regions as batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from latentalign.config import DataPath, Section
from latentalign.core.devices import send
from latentalign.data.region_features import Features
from latentalign.errors import InputError
from latentalign.tasks.padding import pad_rows
from latentalign.tasks.vqa.questions import (
    Annotation,
    Question,
    half_of,
    match_annotations,
    read_annotations,
    read_questions,
)
from latentalign.tasks.vqa.tokenizer import PAD, Vocabulary
from latentalign.training.data import WeightedBatch

PARTS = {"first": 0, "second": 1}


class SplitConfig(Section):
    """The files of one split: questions, human answers and region features of the pictures."""

    questions: DataPath
    """JSON file of questions in the VQA 2.0 layout, plain or gzip."""
    annotations: DataPath
    """JSON file of human answers in the VQA 2.0 layout, plain or gzip."""
    features: DataPath
    """Region features, written by `latentalign features`."""
    images: DataPath | None = None
    """Folder of the pictures, for figures."""
    part: Literal["all", "first", "second"] = "all"
    """Use all pictures, or one half of them. A seeded hash of a picture's id decides its half."""


class DataConfig(Section):
    """The splits, and how they are read."""

    train: SplitConfig
    valid: SplitConfig
    test: SplitConfig | None = None
    split_seed: int = 0
    """Seed of the hash that divides pictures into halves."""
    max_regions: int | None = Field(None, ge=1)
    """Largest number of regions per picture. If unset, use all regions of the features file."""


@dataclass(frozen=True)
class Example:
    """A question with its human answers."""

    question: Question
    annotation: Annotation


def read_split(split: SplitConfig, *, seed: int) -> list[Example]:
    """The questions of a split, paired with their annotations."""
    pairs = match_annotations(read_questions(split.questions), read_annotations(split.annotations))
    found = [Example(q, a) for q, a in pairs]
    if split.part != "all":
        found = [e for e in found if half_of(e.question.image_id, seed) == PARTS[split.part]]
    if not found:
        raise InputError(f"{split.questions}: no question in this split")
    return found


@dataclass(frozen=True, eq=False)
class Batch:
    """Questions, each with the regions of its picture and one answer."""

    regions: Float[Tensor, "B T D"]
    region_mask: Bool[Tensor, "B T"]
    boxes: Float[Tensor, "B T 4"]
    question: Int[Tensor, "B L"]
    question_mask: Bool[Tensor, "B L"]
    target: Int[Tensor, "B"]
    index: Int[Tensor, "n"]
    """Positions of the examples; none in a batch that only keeps a process busy."""

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on a device."""
        return Batch(*(send(getattr(self, f.name), device) for f in fields(self)))

    @property
    def queries(self) -> int:
        """Number of questions."""
        return len(self.index)

    @property
    def examples(self) -> int:
        """Number of questions."""
        return len(self.index)


class Corpus:
    """A split as arrays: ids of words, positions of pictures, votes for the answers that can be predicted."""

    def __init__(
        self,
        examples: Sequence[Example],
        vocabulary: Vocabulary,
        split: SplitConfig,
        *,
        max_regions: int | None,
    ) -> None:
        self.examples, self.vocabulary, self.max_regions = list(examples), vocabulary, max_regions
        self.features = Features(split.features)
        if self.features.size != vocabulary.region_dim:
            raise InputError(
                f"{split.features}: {self.features.size} numbers a region, the model is for {vocabulary.region_dim}"
            )
        self.words = [vocabulary.encode(e.question.question) for e in examples]
        self.pictures = np.array([self._picture(e, split) for e in examples], np.int64)
        self.votes = [
            Counter(i for a in e.annotation.answers if (i := vocabulary.answer(a)) is not None)
            for e in examples
        ]

    def _picture(self, example: Example, split: SplitConfig) -> int:
        try:
            return self.features.index(example.question.image_id)
        except InputError:
            raise InputError(
                f"{split.questions}: question {example.question.question_id} is about image "
                f"{example.question.image_id}, which has no features in {split.features}"
            ) from None

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def answerable(self) -> np.ndarray:
        """Positions of questions with at least one answer that can be predicted."""
        return np.array([i for i, votes in enumerate(self.votes) if votes], np.int64)

    def draw_answers(self, seed: int, epoch: int) -> np.ndarray:
        """For every question one answer, in proportion to its votes; -1 where none can be predicted."""
        random = np.random.default_rng([seed, epoch])
        chance = random.random(len(self))
        found = np.full(len(self), -1, np.int64)
        for i, votes in enumerate(self.votes):
            if votes:
                answers, counts = zip(*sorted(votes.items()), strict=True)
                shares = np.cumsum(counts) / sum(counts)
                found[i] = answers[int(np.searchsorted(shares, chance[i], side="right"))]
        return found

    def batch(self, index: np.ndarray, answers: np.ndarray) -> Batch:
        """Questions at some positions with given answers; rows without a position are not there at all."""
        return self._collate([self.words[i] for i in index], self.pictures[index], answers, index)

    def _collate(
        self, words: list[list[int]], pictures: np.ndarray, answers: np.ndarray, index: np.ndarray
    ) -> Batch:
        regions, mask, boxes = self.features.batch(pictures.tolist())
        keep = self.max_regions
        question, present = pad_rows([np.array(w, np.int64) for w in words], PAD, at_least=1)
        return Batch(
            as_tensor(regions[:, :keep]),
            as_tensor(mask[:, :keep]),
            as_tensor(boxes[:, :keep]),
            question,
            present,
            as_tensor(np.asarray(answers, np.int64)),
            as_tensor(np.asarray(index, np.int64)),
        )

    def empty_batch(self) -> Batch:
        """A process's share of a batch that has none for it: no region, but every parameter takes part."""
        one = self.batch(np.zeros(1, np.int64), np.zeros(1, np.int64))
        return Batch(
            one.regions, torch.zeros_like(one.region_mask), one.boxes, one.question, one.question_mask,
            one.target, one.index[:0],
        )  # fmt: skip


def single_batch(
    question: str, features: np.ndarray, boxes: np.ndarray, vocabulary: Vocabulary, *, max_regions: int | None
) -> Batch:
    """One question about the regions of one picture, which need not belong to any corpus."""
    if features.shape[1] != vocabulary.region_dim:
        raise InputError(
            f"{features.shape[1]} numbers a region, the model is for {vocabulary.region_dim}; "
            "use the extractor that the model was trained with"
        )
    words, present = pad_rows([np.array(vocabulary.encode(question), np.int64)], PAD, at_least=1)
    regions = as_tensor(features[None, :max_regions])
    mask, nothing = torch.ones(regions.shape[:2], dtype=torch.bool), torch.zeros(1, dtype=torch.int64)
    return Batch(
        regions, mask, as_tensor(boxes[None, :max_regions]), words, present, nothing, nothing.clone()
    )


def as_tensor(array: np.ndarray) -> Tensor:
    """An array as a tensor that shares its memory where it can."""
    return torch.from_numpy(np.ascontiguousarray(array))


@dataclass(frozen=True, eq=False)
class AnsweredBatch(WeightedBatch[Batch]):
    """A batch for evaluation: each answer that some human gave, weighted by its share of the votes."""

    is_top: Bool[Tensor, "B"] | None = None
    """Whether it is its question's most frequent answer."""


def most_frequent(votes: Counter[int]) -> int:
    """The answer with the most votes; the first of equals."""
    return min(votes, key=lambda answer: (-votes[answer], answer))


def answered_batches(corpus: Corpus, size: int) -> Iterator[AnsweredBatch]:
    """All (question, answer) pairs whose answer can be predicted; the weights of a question sum to 1."""
    rows: list[tuple[int, int, float, bool]] = []
    for i in corpus.answerable:
        votes = corpus.votes[i]
        top = most_frequent(votes)
        rows += [(int(i), a, n / votes.total(), a == top) for a, n in sorted(votes.items())]
    for start in range(0, len(rows), size):
        index, answers, weight, is_top = zip(*rows[start : start + size], strict=True)
        batch = corpus.batch(np.array(index), np.array(answers))
        yield AnsweredBatch(batch, torch.tensor(weight, dtype=torch.float64), torch.tensor(is_top))
