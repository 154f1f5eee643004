"""Distributions over alignments: one file each."""

from latentalign.core.distributions.base import (
    DISTRIBUTIONS,
    AlignmentDistribution,
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
    "members",
    "require_count",
]
