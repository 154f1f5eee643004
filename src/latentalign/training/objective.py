"""The recipe's `[objective]`: a name of the table and that objective's own options."""

from __future__ import annotations

import difflib
from typing import Any

from pydantic import ConfigDict, model_validator

from latentalign.config import Section
from latentalign.core.objectives import OBJECTIVES, Objective


class ObjectiveConfig(Section):
    """The training objective: its name and its options."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str = "variational-sample"
    """Name of the objective."""

    @model_validator(mode="after")
    def _known(self) -> ObjectiveConfig:
        """Refuse names and options that do not exist, naming the nearest that do."""
        if self.name not in OBJECTIVES:
            raise ValueError(f"unknown objective {self.name!r}{nearest(self.name, list(OBJECTIVES))}")
        known = OBJECTIVES[self.name].options
        for option in self.options:
            if option not in known:
                raise ValueError(f"{self.name} has no option {option!r}{nearest(option, known)}")
        try:
            self.build()
        except TypeError as error:
            raise ValueError(f"{self.name}: {error}") from None
        return self

    @property
    def options(self) -> dict[str, Any]:
        """Everything but the name."""
        return dict(self.model_extra or {})

    def build(self) -> Objective:
        """The objective."""
        return OBJECTIVES[self.name](**self.options)


def nearest(word: str, known: list[str]) -> str:
    """A hint: the closest name, or all of them."""
    close = difflib.get_close_matches(word, known, 1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; choose one of {', '.join(known)}" if known else "; it has none"
