"""When the learning rate falls, and when training ends."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from latentalign.training.recipe import TrainingConfig

Decay = Literal["plateau", "inverse-sqrt", "linear", "cosine"]
LAST_SHARE = 0.01
"""The share of the learning rate that is left at the end of a linear or cosine decay."""


@dataclass
class Schedule:
    """Halve the learning rate on a plateau of the bound, as in the paper; it changes only after validations.

    From the `start`-th validation on, the rate is multiplied by `decay` after each validation whose bound is above the
    best so far. Training ends after `patience` validations in a row without a better score. With a `min_gain`, a
    figure that falls by less than that share of the best counts as no better in both. From the `anneal`-th
    validation on, the rate falls after each one, so that a run of planned length ends with small steps.
    Bounds and scores are perplexities or other positive figures of which lower is better.

    Other kinds of decay change the rate with every update, and validations leave it alone: `inverse-sqrt` divides it
    by the root of the updates (Vaswani et al. 2017), `linear` and `cosine` let it fall until `decay_steps`. With any
    kind, the rate grows linearly over the first `warmup` updates.
    """

    learning_rate: float
    decay: float = 0.5
    start: int = 2
    patience: int = 5
    min_gain: float = 0.0
    anneal: int | None = None
    kind: Decay = "plateau"
    warmup: int = 0
    decay_steps: int | None = None
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
            config.schedule,
            config.warmup_steps,
            config.decay_steps,
        )

    def rate(self, step: int) -> float:
        """The learning rate of an update, counted from 1."""
        if step < self.warmup:
            return self.learning_rate * step / self.warmup
        if self.kind == "plateau":
            return self.learning_rate
        start = max(1, self.warmup)
        if self.kind == "inverse-sqrt":
            return self.learning_rate * math.sqrt(start / step)
        assert self.decay_steps is not None
        done = min(1.0, (step - start) / max(1, self.decay_steps - start))
        left = 1 - done if self.kind == "linear" else (1 + math.cos(math.pi * done)) / 2
        return self.learning_rate * (LAST_SHARE + (1 - LAST_SHARE) * left)

    def take(self, bound: float, score: float) -> bool:
        """Take a validation into account; True if its model is the best so far."""
        self.validations += 1
        stuck = self.validations >= self.start and bound > self.best_bound * (1 - self.min_gain)
        planned = self.anneal is not None and self.validations >= self.anneal
        if self.kind == "plateau" and (stuck or planned):
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
