"""What all distributions over alignments share."""

from __future__ import annotations

import torch
from torch import Tensor

from latentalign.core.numerics import NEG_INF, at_least_float32, require_finite_scores


def members(scores: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Scores in float32 at least, and the mask of the members that exist and whose score is not -inf."""
    if scores.dim() == 0 or scores.shape[-1] == 0:
        raise ValueError(f"scores must be (*batch, T) with T >= 1 members, got {tuple(scores.shape)}")
    mask = full_mask(scores, mask)
    require_finite_scores("scores", scores, mask)
    return at_least_float32(scores), mask & (scores.detach() != NEG_INF)


def full_mask(scores: Tensor, mask: Tensor | None) -> Tensor:
    """The mask broadcast to the scores' shape; all True when none is given."""
    if mask is None:
        return torch.ones_like(scores, dtype=torch.bool)
    if mask.dtype != torch.bool:
        raise TypeError(f"mask must be boolean (True where a member exists), got {mask.dtype}")
    try:
        return mask.expand(scores.shape)
    except RuntimeError:
        raise ValueError(
            f"mask of shape {tuple(mask.shape)} does not broadcast to scores {tuple(scores.shape)}"
        ) from None


def require_count(name: str, n: int) -> None:
    """Raise unless there is at least one sample or member to take."""
    if n < 1:
        raise ValueError(f"{name} must be at least 1, got {n}")
