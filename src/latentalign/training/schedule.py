"""When the learning rate falls, and when training ends."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass
class Schedule:
    """Halving on a plateau of the bound, as in the paper: it moves after validations, never in between.

    After every validation from the `start`-th on whose bound's perplexity is above the best so far, the rate
    is multiplied by `decay`. Training ends after `patience` validations in a row without a better `ppl`.
    """

    learning_rate: float
    decay: float = 0.5
    start: int = 2
    patience: int = 5
    validations: int = 0
    best_bound: float = math.inf
    best_ppl: float = math.inf
    stale: int = 0

    def validated(self, bound: float, ppl: float) -> bool:
        """Take in a validation; True when its model is the best so far."""
        self.validations += 1
        if self.validations >= self.start and bound > self.best_bound:
            self.learning_rate *= self.decay
        self.best_bound = min(self.best_bound, bound)
        better = ppl < self.best_ppl
        self.best_ppl = min(self.best_ppl, ppl)
        self.stale = 0 if better else self.stale + 1
        return better

    @property
    def ended(self) -> bool:
        """No better model for too long."""
        return self.stale >= self.patience
