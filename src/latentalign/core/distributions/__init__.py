"""Distributions over alignments: one file each."""

from latentalign.core.distributions.base import (
    DISTRIBUTIONS,
    AlignmentDistribution,
    full_mask,
    members,
    require_count,
)
from latentalign.core.distributions.categorical import Categorical
from latentalign.core.distributions.dirichlet import Dirichlet
from latentalign.core.distributions.logistic_normal import LogisticNormal

__all__ = [
    "DISTRIBUTIONS",
    "AlignmentDistribution",
    "Categorical",
    "Dirichlet",
    "LogisticNormal",
    "full_mask",
    "members",
    "require_count",
]
