"""The time until a training run ends, whichever of its limits comes first."""

from __future__ import annotations

import time

from latentalign.training.position import Position
from latentalign.training.recipe import TrainingConfig


class TimeLeft:
    """Estimates the time to the real end of training, the phase after a warm start included.

    Updates of the next phase are assumed to be as fast as those of the current one. Patience is not taken into
    account: it can only end training earlier.
    """

    def __init__(self, config: TrainingConfig, position: Position, later: TrainingConfig | None) -> None:
        self.config, self.later = config, later
        self.began, self.before, self.first_step = time.monotonic(), position.seconds, position.step

    def estimate(self, position: Position, epoch_batches: int) -> float | None:
        """Seconds left, validations and checkpoints included; None before the first update of this process."""
        done, spent = position.step - self.first_step, position.seconds - self.before
        if done <= 0 or spent <= 0:
            return None
        pace = spent / done
        left = limited_seconds(self.config, position, epoch_batches, pace)
        if self.later is not None:
            both = left + limited_seconds(self.later, Position(), epoch_batches, pace)
            total = self.later.max_minutes
            left = both if total is None else min(both, 60 * total - position.seconds)
        overhead = max(0.0, time.monotonic() - self.began - spent) / spent
        return max(0.0, left) * (1 + overhead)


def limited_seconds(
    config: TrainingConfig, position: Position, epoch_batches: int, seconds_per_step: float
) -> float:
    """Seconds of updates until the epochs, `max_steps` or `max_minutes` end one phase."""
    left = steps_left(config, position, epoch_batches) * seconds_per_step
    if config.max_minutes is not None:
        left = min(left, 60 * config.max_minutes - position.seconds)
    return max(0.0, left)


def steps_left(config: TrainingConfig, position: Position, epoch_batches: int) -> float:
    """Updates until the epochs or `max_steps` end one phase."""
    per_epoch = -(-epoch_batches // config.accumulate)
    left = (config.epochs - position.epoch) * per_epoch - position.batch / config.accumulate
    if config.max_steps is not None:
        left = min(left, config.max_steps - position.step)
    return max(0.0, left)
