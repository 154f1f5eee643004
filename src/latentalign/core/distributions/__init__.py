"""Distributions over alignments: one file each."""

from latentalign.core.distributions.base import (
    DISTRIBUTIONS,
    AlignmentDistribution,
    check_scores,
    require_count,
)
from latentalign.core.distributions.categorical import Categorical
from latentalign.core.distributions.chain import Chain
from latentalign.core.distributions.dirichlet import Dirichlet
from latentalign.core.distributions.foreign import as_distribution
from latentalign.core.distributions.logistic_normal import LogisticNormal
from latentalign.core.distributions.looks import LookMixture, LookPairs
from latentalign.core.distributions.sparse import Entmax, SparseCategorical, Sparsemax
from latentalign.core.distributions.transitions import Dense, Jump, Monotone

__all__ = [
    "DISTRIBUTIONS",
    "AlignmentDistribution",
    "Categorical",
    "Chain",
    "Dense",
    "Dirichlet",
    "Entmax",
    "Jump",
    "LogisticNormal",
    "LookMixture",
    "LookPairs",
    "Monotone",
    "SparseCategorical",
    "Sparsemax",
    "as_distribution",
    "check_scores",
    "require_count",
]
