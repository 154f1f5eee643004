"""Rows of the benchmark: objectives with options, written NAME or NAME:key=value:key=value."""

from __future__ import annotations

import json
from typing import Any

from pydantic import ValidationError

from latentalign.core.objectives import OBJECTIVES
from latentalign.errors import InputError
from latentalign.training.objective import ObjectiveConfig

CERTIFIED = ("marginal:tolerance=0.01", "marginal:tolerance=0.01:tail=sample")
"""Rows for trained models only: their cost depends on how sharp the prior is."""


def paper_rows() -> list[str]:
    """The objectives of the paper's tables."""
    return [entry.name for entry in OBJECTIVES.values() if entry.table is not None]


def parse_row(text: str) -> ObjectiveConfig:
    """The objective of one row."""
    name, *options = text.strip().split(":")
    chosen: dict[str, Any] = {"name": name}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals:
            raise InputError(f"--rows {text}: expected key=value after a colon, got {option!r}")
        try:
            chosen[key] = json.loads(value)
        except ValueError:
            chosen[key] = value
    try:
        return ObjectiveConfig.model_validate(chosen)
    except ValidationError as error:
        problems = "; ".join(e["msg"].removeprefix("Value error, ") for e in error.errors())
        raise InputError(f"--rows {text}: {problems}") from None


def parse_rows(text: str | None, *, trained: bool) -> list[ObjectiveConfig]:
    """The requested rows, each once, after soft, which the others are compared with."""
    names = [*paper_rows(), *(CERTIFIED if trained else ())] if text is None else text.split(",")
    rows = [parse_row("soft"), *map(parse_row, names)]
    return list({label(row.name, row.options): row for row in rows}.values())


def label(name: str, options: dict[str, Any]) -> str:
    """A row as text, the inverse of `parse_row`."""
    return ":".join(
        [name, *(f"{k}={v if isinstance(v, str) else json.dumps(v)}" for k, v in options.items())]
    )
