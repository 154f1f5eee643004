"""What the training loop needs to know about the data of one run."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn

from latentalign.core.numerics import in_float64
from latentalign.core.objectives import Objective
from latentalign.core.predictives import parse_predict
from latentalign.training.loss import Batch


class Vocabulary(Protocol):
    """What turns text into ids and must fit a model."""

    def fingerprint(self) -> str:
        """SHA-256 of everything that decides how text becomes ids."""


V = TypeVar("V", bound=Vocabulary)
K = TypeVar("K")
B = TypeVar("B", bound=Batch)


@dataclass(frozen=True, eq=False)
class WeightedBatch(Generic[B]):
    """A batch for evaluation, and how much each of its queries counts; without weights, each counts as one."""

    batch: B
    weight: Tensor | None = None

    def total(self, values: Tensor) -> float:
        """The weighted sum of a value per query, in double precision where the device has it."""
        values = in_float64(values)
        return float(values.sum() if self.weight is None else (values * self.weight.to(values)).sum())


@dataclass(frozen=True)
class Validation:
    """What a model is worth on the validation set; lower is better."""

    bound: float
    """The objective's own bound, which decides when the learning rate falls."""
    score: float
    """The figure by which the best model is chosen."""
    figures: dict[str, float]
    """Everything that is written to `metrics.jsonl`, under the task's own names."""


class TrainingData(ABC, Generic[V, K]):
    """Vocabulary, batches and validation set of one run; `K` identifies a batch of an epoch."""

    vocabulary: V

    @abstractmethod
    def batch_keys(self, epoch: int) -> Sequence[K]:
        """Keys of an epoch's batches; the same for the same epoch."""

    @abstractmethod
    def load_batch(self, key: K) -> Batch:
        """The batch of a key, on the device of the run."""

    @abstractmethod
    def describe_batch(self, key: K) -> str:
        """File and lines of a batch, for error messages."""

    @abstractmethod
    def validation_batches(self) -> Iterator[WeightedBatch[Any]]:
        """The validation set, on the device of the run."""

    @property
    @abstractmethod
    def validation_queries(self) -> int:
        """Total weight of the queries of the validation set."""

    @abstractmethod
    def card(self) -> dict[str, Any]:
        """Fingerprints, counts and sizes for `card.json`."""

    def validate(self, model: nn.Module, objective: Objective) -> Validation:
        """The perplexities of the bound and of the objective's own predictive, and the entropy of the prior."""
        predictive, latent_of = parse_predict(objective.predict), model.latent
        bound = score = entropy = 0.0
        for part in self.validation_batches():
            latent = latent_of(part.batch)  # type: ignore[operator]
            bound += part.total(objective(latent).value)
            score += part.total(predictive.log_prob(latent))
            entropy += part.total(mean_entropy(latent.prior.shown))
        count = self.validation_queries
        found = {"bound": perplexity(bound, count), "ppl": perplexity(score, count)}
        return Validation(found["bound"], found["ppl"], {**found, "entropy": entropy / max(1, count)})


def perplexity(log_prob: float, count: int) -> float:
    """exp(-log p per query); infinity where that overflows."""
    try:
        return math.exp(-log_prob / count)
    except OverflowError:
        return math.inf


def mean_entropy(mean: Tensor) -> Tensor:
    """The entropy of a distribution's mean in nats: the paper's "implied discrete entropy"."""
    return -torch.xlogy(mean, mean).sum(-1)
