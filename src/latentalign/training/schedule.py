"""When the learning rate falls, and when training ends."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from latentalign.training.recipe import TrainingConfig


@dataclass
class Schedule:
    """Halve the learning rate on a plateau of the bound, as in the paper; it changes only after validations.

    From the `start`-th validation on, the rate is multiplied by `decay` after each validation whose bound is above the
    best so far. Training ends after `patience` validations in a row without a better score. With a `min_gain`, a
    figure that falls by less than that share of the best counts as no better in both. From the `anneal`-th
    validation on, the rate falls after each one, so that a run of planned length ends with small steps.
    Bounds and scores are perplexities or other positive figures of which lower is better.
    """

    learning_rate: float
    decay: float = 0.5
    start: int = 2
    patience: int = 5
    min_gain: float = 0.0
    anneal: int | None = None
    validations: int = 0
    best_bound: float = math.inf
    best_score: float = math.inf
    stale: int = 0

    @classmethod
    def from_config(cls, config: TrainingConfig) -> Schedule:
        """The schedule that a recipe describes."""
        return cls(
            config.learning_rate,
            config.decay,
            config.decay_start,
            config.patience,
            config.min_gain,
            config.decay_always,
        )

    def take(self, bound: float, score: float) -> bool:
        """Take a validation into account; True if its model is the best so far."""
        self.validations += 1
        stuck = self.validations >= self.start and bound > self.best_bound * (1 - self.min_gain)
        if stuck or (self.anneal is not None and self.validations >= self.anneal):
            self.learning_rate *= self.decay
        self.best_bound = min(self.best_bound, bound)
        better = score < self.best_score
        enough = better and not score > self.best_score * (1 - self.min_gain)
        self.best_score = min(self.best_score, score)
        self.stale = 0 if enough else self.stale + 1
        return better

    def resume(self, state: dict[str, float]) -> None:
        """Continue from the state in a checkpoint; the configuration stays, and so does a lower rate.

        The first version wrote `best_ppl` instead of `best_score`.
        """
        self.learning_rate = min(self.learning_rate, state["learning_rate"])
        self.validations, self.stale = int(state["validations"]), int(state["stale"])
        self.best_bound = state["best_bound"]
        self.best_score = state["best_score"] if "best_score" in state else state["best_ppl"]

    @property
    def ended(self) -> bool:
        """Whether there was no better model for too long."""
        return self.stale >= self.patience
