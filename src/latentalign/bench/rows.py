"""Rows of the benchmark: objectives with options, written NAME or NAME:key=value:key=value.

`prior=KIND` and `prior.KEY=value` choose the prior of the model.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from latentalign.core.objectives import OBJECTIVES
from latentalign.errors import InputError
from latentalign.tasks.nmt.prior import PriorConfig
from latentalign.training.objective import ObjectiveConfig

CERTIFIED = ("marginal:tolerance=0.01", "marginal:tolerance=0.01:tail=sample")
"""Rows for trained models only: their cost depends on how sharp the prior is."""


def paper_rows() -> list[str]:
    """The objectives of the paper's tables."""
    return [entry.name for entry in OBJECTIVES.values() if entry.table is not None]


@dataclass(frozen=True)
class Row:
    """An objective with its options, and the prior of the model that it trains."""

    objective: ObjectiveConfig
    prior: PriorConfig = field(default_factory=PriorConfig)

    @property
    def name(self) -> str:
        """The objective's name."""
        return self.objective.name

    @property
    def options(self) -> dict[str, Any]:
        """All options, those of the prior under `prior` and `prior.KEY`."""
        chosen = {f"prior.{key}": value for key, value in self.prior.model_dump(exclude_unset=True).items()}
        if "prior.kind" in chosen:
            chosen = {"prior": chosen.pop("prior.kind"), **chosen}
        return self.objective.options | chosen


SOFT = Row(ObjectiveConfig(name="soft"))


def parse_row(text: str) -> Row:
    """One row from its text."""
    name, *options = text.strip().split(":")
    chosen: dict[str, Any] = {"name": name}
    prior: dict[str, Any] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals:
            raise InputError(f"--rows {text}: expected key=value after a colon, got {option!r}")
        table, inner = (prior, key[6:] or "kind") if key in ("prior", f"prior.{key[6:]}") else (chosen, key)
        try:
            table[inner] = json.loads(value)
        except ValueError:
            table[inner] = value
    try:
        row = Row(ObjectiveConfig.model_validate(chosen), PriorConfig.model_validate(prior))
    except ValidationError as error:
        problems = "; ".join(e["msg"].removeprefix("Value error, ") for e in error.errors())
        raise InputError(f"--rows {text}: {problems}") from None
    if row.prior.chained and not row.objective.prototype.accepts_chains:
        raise InputError(f"--rows {text}: {row.name} is not defined for a prior that is a chain")
    if row.prior.sparse and row.objective.prototype.needs_inferred:
        raise InputError(f"--rows {text}: {row.name} needs KL[q, p], which is infinite for a sparse prior")
    return row


def parse_rows(text: str | None, *, trained: bool) -> list[Row]:
    """The requested rows, each once, after soft, which the others are compared with."""
    names = [*paper_rows(), *(CERTIFIED if trained else ())] if text is None else text.split(",")
    rows = [SOFT, *map(parse_row, names)]
    return list({label(row.name, row.options): row for row in rows}.values())


def label(name: str, options: dict[str, Any]) -> str:
    """A row as text, the inverse of `parse_row`."""
    return ":".join(
        [name, *(f"{k}={v if isinstance(v, str) else json.dumps(v)}" for k, v in options.items())]
    )
