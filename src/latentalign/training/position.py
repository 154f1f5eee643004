"""Where a training run stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class Position:
    """Where a training run stands; with the tensors of a checkpoint, everything that is needed to continue."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    queries: int = 0
    seconds: float = 0.0
    peak_memory_mb: float = 0.0
    """Of updates alone: the memory of a validation says nothing about the objective."""
    validated: int = -1
    """The last step after which there was a validation that the schedule has taken into account."""

    @classmethod
    def from_checkpoint(cls, state: dict[str, Any]) -> Position:
        """The position in a checkpoint; the first version wrote `tokens` instead of `queries`."""
        renamed = {"queries" if name == "tokens" else name: value for name, value in state.items()}
        return cls(**renamed)
