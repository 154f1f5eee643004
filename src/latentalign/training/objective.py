"""The recipe's `[objective]`: a name of the table and that objective's own options."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, model_validator

from latentalign.config import Section
from latentalign.core.distributions import DISTRIBUTIONS
from latentalign.core.objectives import OBJECTIVES, Objective
from latentalign.core.registry import suggest


class ObjectiveConfig(Section):
    """The training objective: its name and its options."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str = "variational-sample"
    """Name of the objective."""

    @model_validator(mode="after")
    def _known(self) -> ObjectiveConfig:
        """Refuse names and options that do not exist, naming the nearest that do."""
        known = OBJECTIVES[self.name].options  # an unknown name raises an error that suggests the nearest one
        for option in self.options:
            if option not in known:
                raise ValueError(f"{self.name} has no option {option!r}{suggest(option, known)}")
        try:
            DISTRIBUTIONS[self.build().distribution]
        except TypeError as error:
            raise ValueError(f"{self.name}: {error}") from None
        return self

    @property
    def options(self) -> dict[str, Any]:
        """All keys except the name."""
        return dict(self.model_extra or {})

    def build(self) -> Objective:
        """The objective."""
        return OBJECTIVES[self.name](**self.options)
