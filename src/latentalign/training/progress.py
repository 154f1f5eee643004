"""What a training run shows while it goes on: one bar, or one plain line per `log_steps`, and its validations."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from types import TracebackType

from latentalign.progress import Bars
from latentalign.training.position import Position
from latentalign.training.recipe import TrainingConfig
from latentalign.training.time_left import TimeLeft

LONGEST_SILENCE = 60.0
"""Seconds after which slow steps are reported before `log_steps` are done."""


class TrainingProgress:
    """The progress of one phase of a training run, with queries per second, the loss and the time left."""

    def __init__(
        self,
        name: str,
        config: TrainingConfig,
        position: Position,
        *,
        later: TrainingConfig | None = None,
        shown: bool = True,
    ) -> None:
        self.name, self.config, self.later = name, config, later
        self.clock = TimeLeft(config, position, later)
        self.bars = Bars(shown=shown)
        self.bar = self.bars.add(name, interval=math.inf)  # plain lines follow `log_steps`
        self.speed = self.loss = 0.0

    def __enter__(self) -> TrainingProgress:
        self.bars.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bars.__exit__(kind, error, trace)

    def advance(self, queries: int, seconds: float, value: float) -> None:
        """Take an update into account: its queries, time and mean bound."""
        rate = queries / max(1e-9, seconds)
        self.speed = rate if not self.speed else 0.95 * self.speed + 0.05 * rate
        self.loss = -value if not self.loss else 0.95 * self.loss - 0.05 * value

    def show(self, position: Position, epoch_batches: int, *, log: bool) -> None:
        """Show how far training is; with `log`, or after a minute, as a line where there is no bar."""
        text = f"loss {self.loss:.3f}, {self.speed:,.0f} queries/s"
        left = self.clock.estimate(position, epoch_batches)
        epoch = f"epoch {min(position.epoch + 1, self.config.epochs)}/{self.config.epochs}"
        self.bar.update(
            name=f"{self.name} {epoch}", done=position.batch, total=epoch_batches, text=text, left=left
        )
        if log or time.monotonic() - self.bar.printed >= LONGEST_SILENCE:
            self.bar.name, self.bar.text = self.name, f"step {position.step:,}, {epoch}, {text}"
            self.bar.print_plain()

    def show_validation(
        self, epochs: float, step: int, figures: Mapping[str, float], *, better: bool, rate: float
    ) -> None:
        """Print one line that stays."""
        text = ", ".join(f"{name} {value:.3f}" for name, value in figures.items())
        mark = ", best so far" if better else ""
        where = f"validation after step {step:,}, epoch {epochs:.3g}"
        self.bars.print(f"{self.name}: {where}: {text}, learning rate {rate:.2g}{mark}")
