"""Lines of `metrics.jsonl` and curves of TensorBoard.

The keys `tokens`, `tokens_per_second` and `ppl` are those of the first version, because scripts read them. For a task
without tokens, they count its queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from latentalign.extras import require_package
from latentalign.training.data import Validation, perplexity
from latentalign.training.loss import Sums, add_sums
from latentalign.training.position import Position
from latentalign.training.run import Run


class MetricsLog:
    """Writes what happens during a training run; only the leading process has one that writes."""

    def __init__(self, run: Run, *, enabled: bool, tensorboard: bool) -> None:
        self.run, self.enabled = run, enabled
        self.board = open_tensorboard(run.folder / "tensorboard") if tensorboard and enabled else None

    def training(
        self, position: Position, recent: Sequence[tuple[Sums, float]], learning_rate: float
    ) -> None:
        """Log means over the latest steps."""
        total = add_sums([sums for sums, _ in recent])
        count = max(1, total.queries)
        means = {name: float(x) / count for name, x in total.terms.items()}
        bound = perplexity(float(total.value), count)
        speed = round(count / max(1e-9, sum(seconds for _, seconds in recent)), 1)
        figures = {"bound": bound, "tokens_per_second": speed, **means}
        self._write({"kind": "training", **describe_position(position, learning_rate), **figures})

    def validation(self, position: Position, found: Validation, learning_rate: float, *, best: bool) -> None:
        """Log a validation, with the learning rate that follows it."""
        where = describe_position(position, learning_rate)
        outcome = {"best": best, "next_learning_rate": learning_rate}
        self._write({"kind": "validation", **where, **found.figures, **outcome})

    def _write(self, record: dict[str, Any]) -> None:
        if not self.enabled:
            return
        self.run.log(record)
        if self.board is not None:
            for name, value in record.items():
                if isinstance(value, float):
                    self.board.add_scalar(f"{record['kind']}/{name}", value, record["step"])
            self.board.flush()


def describe_position(position: Position, learning_rate: float) -> dict[str, Any]:
    """The keys that every line of `metrics.jsonl` has."""
    return {
        "step": position.step,
        "epoch": position.epoch,
        "seconds": round(position.seconds, 3),
        "tokens": position.queries,
        "learning_rate": learning_rate,
    }


def open_tensorboard(folder: Path) -> Any:
    """A writer of TensorBoard event files."""
    require_package("tensorboard", "training.tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder))
