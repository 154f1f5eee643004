"""When the learning rate falls, and when training ends."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass
class Schedule:
    """Halving on a plateau of the bound, as in the paper: it moves after validations, never in between.

    After every validation from the `start`-th on whose bound's perplexity is above the best so far, the rate
    is multiplied by `decay`. Training ends after `patience` validations in a row without a better `ppl`. With a
    `min_gain`, a perplexity that falls by less than that share of the best counts as no better in both. From the
    `anneal`-th validation on the rate falls after every one: a training of planned length ends with small steps.
    """

    learning_rate: float
    decay: float = 0.5
    start: int = 2
    patience: int = 5
    min_gain: float = 0.0
    anneal: int | None = None
    validations: int = 0
    best_bound: float = math.inf
    best_ppl: float = math.inf
    stale: int = 0

    def validated(self, bound: float, ppl: float) -> bool:
        """Take in a validation; True when its model is the best so far."""
        self.validations += 1
        stuck = self.validations >= self.start and bound > self.best_bound * (1 - self.min_gain)
        if stuck or (self.anneal is not None and self.validations >= self.anneal):
            self.learning_rate *= self.decay
        self.best_bound = min(self.best_bound, bound)
        better = ppl < self.best_ppl
        enough = better and not ppl > self.best_ppl * (1 - self.min_gain)
        self.best_ppl = min(self.best_ppl, ppl)
        self.stale = 0 if enough else self.stale + 1
        return better

    def resume(self, state: dict[str, float]) -> None:
        """Stand where another training stood; what was configured stays as it is here, a lower rate too."""
        self.learning_rate = min(self.learning_rate, state["learning_rate"])
        for name in ("validations", "best_bound", "best_ppl", "stale"):
            setattr(self, name, state[name])

    @property
    def ended(self) -> bool:
        """No better model for too long."""
        return self.stale >= self.patience
