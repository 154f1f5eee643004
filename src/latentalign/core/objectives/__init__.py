"""Objectives: what is maximised, and the registry that names each of them."""

from latentalign.core.objectives.base import (
    OBJECTIVES,
    Objective,
    ObjectiveEntry,
    objective,
    objectives_table,
)
from latentalign.core.objectives.bounds import Hard, Marginal, Soft, Variational, marginal, soft
from latentalign.core.objectives.multisample import RWS, VIMCO
from latentalign.core.objectives.svi import SVI

__all__ = [
    "OBJECTIVES",
    "RWS",
    "SVI",
    "VIMCO",
    "Hard",
    "Marginal",
    "Objective",
    "ObjectiveEntry",
    "Soft",
    "Variational",
    "marginal",
    "objective",
    "objectives_table",
    "soft",
]
