"""Rows of unequal length as one tensor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor


def pad_rows(
    rows: Sequence[np.ndarray], padding: int, *, at_least: int = 0
) -> tuple[Int[Tensor, "B T"], Bool[Tensor, "B T"]]:
    """Rows of ids as one tensor that is at least so wide, and a mask that is True where it is not padding."""
    lengths = np.array([len(row) for row in rows], np.int64)
    mask = np.arange(max(at_least, lengths.max(initial=0))) < lengths[:, None]
    ids = np.full(mask.shape, padding, np.int64)
    if rows:
        ids[mask] = np.concatenate(rows)
    return torch.from_numpy(ids), torch.from_numpy(mask)
