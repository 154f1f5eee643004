"""Distributions of PyTorch where one of ours is needed."""

from __future__ import annotations

from typing import Any

import torch
from torch import distributions

from latentalign.core.distributions.base import AlignmentDistribution
from latentalign.core.distributions.categorical import Categorical
from latentalign.core.distributions.dirichlet import Dirichlet
from latentalign.core.numerics import NEG_INF


def as_distribution(given: Any, name: str) -> AlignmentDistribution:
    """A distribution of ours as it is, one of PyTorch's converted; raises for anything else."""
    if isinstance(given, AlignmentDistribution):
        return given
    if isinstance(given, distributions.Categorical):
        if "probs" not in vars(given):
            return Categorical.from_scores(given.logits)
        never = given.probs == 0  # PyTorch's logits would give these members a little mass
        return Categorical.from_scores(given.probs.masked_fill(never, 1.0).log().masked_fill(never, NEG_INF))
    if isinstance(given, distributions.Dirichlet):
        alpha = given.concentration
        return Dirichlet(alpha, mask=torch.ones_like(alpha, dtype=torch.bool))
    kind = f"{type(given).__module__}.{type(given).__qualname__}"
    raise TypeError(
        f"{name} must be a latentalign.AlignmentDistribution, got {kind}; build one with "
        f"latentalign.Categorical.from_scores(scores, exists=...) (torch.distributions.Categorical and Dirichlet "
        f"are converted)"
    )
