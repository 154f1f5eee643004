"""Lines of `metrics.jsonl`, which loggers receive too.

The keys `tokens`, `tokens_per_second` and `ppl` are those of the first version, because scripts read them. For a task
without tokens, they count its queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from latentalign.training.data import Validation, perplexity
from latentalign.training.loggers import RunLogger
from latentalign.training.loss import Figures, add_figures
from latentalign.training.phases import Phase
from latentalign.training.position import Position
from latentalign.training.run import Run


class MetricsLog:
    """Writes what happens during a training run; only the leading process has one that writes."""

    def __init__(self, run: Run, phase: Phase, *, enabled: bool, loggers: Sequence[RunLogger] = ()) -> None:
        self.run, self.phase, self.enabled, self.loggers = run, phase, enabled, loggers

    def training(
        self,
        position: Position,
        recent: Sequence[tuple[Figures, float]],
        learning_rate: float,
        *,
        epochs: float,
    ) -> None:
        """Log means over the latest steps."""
        total = add_figures([figures for figures, _ in recent])
        count = max(1, total.queries)
        means = {name: x / count for name, x in total.terms.items()}
        bound = perplexity(total.value, count)
        speed = round(count / max(1e-9, sum(seconds for _, seconds in recent)), 1)
        figures = {"bound": bound, "tokens_per_second": speed, **means}
        self._write({"kind": "training", **self._place(position, learning_rate, epochs), **figures})

    def validation(
        self, position: Position, found: Validation, learning_rate: float, *, epochs: float, best: bool
    ) -> None:
        """Log a validation, with the learning rate that follows it."""
        where = self._place(position, learning_rate, epochs)
        outcome = {"best": best, "next_learning_rate": learning_rate}
        self._write({"kind": "validation", **where, **found.figures, **outcome})

    def _write(self, record: dict[str, Any]) -> None:
        if self.enabled:
            self.run.log(record)
            for logger in self.loggers:
                logger.log(record)

    def _place(self, position: Position, learning_rate: float, epochs: float) -> dict[str, Any]:
        """The keys that every line of `metrics.jsonl` has."""
        return {
            "phase": self.phase.name,
            "step": position.step,
            "epoch": position.epoch,
            "epochs": round(epochs, 4),
            "seconds": round(position.seconds, 3),
            "tokens": position.queries,
            "learning_rate": learning_rate,
        }
