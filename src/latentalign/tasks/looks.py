"""The recipe's keys for several looks at the source, which tasks share."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from latentalign.config import Section
from latentalign.core.objectives import Objective
from latentalign.nn.looks import Dependent, Looks, Views, build_looks, check_looks


class LooksConfig(Section):
    """How often an output looks at the source."""

    looks: Annotated[int, Field(ge=1)] | Dependent = 1
    """1: an output comes from one member of the source, as in the paper. 2 or more: from one member under one of so
    many looks, which have scores and views of their own. `dependent`: from two members, the second chosen after the
    first was seen."""
    views: Views = "own"
    """With 2 or more looks. `own`: the head sees a member through a linear map of the look. `shared`: looks differ
    only in where they look."""

    @model_validator(mode="after")
    def _check_looks(self) -> LooksConfig:
        try:
            check_looks(self.looks, self.views)
        except ValueError as error:
            raise ValueError(f"prior.{error}") from None
        return self

    @property
    def several(self) -> bool:
        """Whether there is more than one look."""
        return self.looks != 1

    @property
    def inferred_looks(self) -> int:
        """How many looks q tells apart."""
        return self.looks if self.views == "own" and isinstance(self.looks, int) else 1

    def build_looks(self, **sizes: Any) -> Looks | None:
        """The module of several looks; None for a single one."""
        return build_looks(self.looks, self.views, **sizes)

    def check_objective(self, name: str, objective: Objective) -> None:
        """Raise if an objective cannot train several looks."""
        if not self.several:
            return
        if objective.distribution != "categorical":
            raise ValueError(
                f"{name} has alignments that are mixtures of members, so several looks add nothing; set prior.looks = 1"
            )
        if self.looks == "dependent" and objective.needs_inferred:
            raise ValueError(
                f"{name} needs q, and there is no inference network for pairs of members; with prior.looks = "
                '"dependent", use marginal, soft, hard-enum or hard-sample'
            )
