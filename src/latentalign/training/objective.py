"""The recipe's `[objective]`: a name of the table and that objective's own options."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from pydantic import ConfigDict, field_validator, model_validator

from latentalign.config import Section
from latentalign.core.distributions import DISTRIBUTIONS
from latentalign.core.objectives import OBJECTIVES, Objective
from latentalign.core.registry import suggest
from latentalign.training.run import is_number


class ObjectiveConfig(Section):
    """The training objective: its name and its options."""

    model_config = ConfigDict(extra="allow", frozen=True)
    selector = "name"

    name: str = "variational-sample"
    """Name of the objective."""

    @field_validator("name")
    @classmethod
    def _is_registered(cls, name: str) -> str:
        OBJECTIVES[name]  # an unknown name raises an error that suggests the nearest one
        return name

    @model_validator(mode="after")
    def _check_options(self) -> ObjectiveConfig:
        """Refuse options that do not exist; the message suggests the nearest ones."""
        entry = OBJECTIVES[self.name]
        for option, value in self.options.items():
            if option not in entry.options:
                raise ValueError(f"{self.name} has no option {option!r}{suggest(option, entry.options)}")
            if isinstance(entry.default(option), float) and not is_number(value):
                raise ValueError(f"{self.name}: {option} must be a number, got {value!r}")
        try:
            DISTRIBUTIONS[self.prototype.distribution]
        except TypeError as error:
            raise ValueError(f"{self.name}: {error}") from None
        return self

    @property
    def options(self) -> dict[str, Any]:
        """All keys except the name."""
        return dict(self.model_extra or {})

    @cached_property
    def prototype(self) -> Objective:
        """The objective that validation built. It tells what the objective needs; training builds its own."""
        return self.build()

    def build(self) -> Objective:
        """A new objective."""
        return OBJECTIVES[self.name].build(**(self.model_extra or {}))
