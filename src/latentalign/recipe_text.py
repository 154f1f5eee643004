"""A complete recipe for people to read: every key with its value, also those that are not set."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

import tomli_w
from pydantic import BaseModel

from latentalign.config import toml_values
from latentalign.core.objectives import OBJECTIVES
from latentalign.recipe_reference import RecipeTable, recipe_tables
from latentalign.training.objective import ObjectiveConfig

WIDTH = 100


def recipe_text(config: BaseModel, *, explain: bool = False) -> str:
    """TOML text that loads back to an equal recipe; with `explain`, the meaning of each key stands above it."""
    values = toml_values(config)
    blocks = []
    for table in recipe_tables(type(config)):
        section: Any = values
        for part in table.name.split(".") if table.name else []:
            section = section.get(part) if isinstance(section, dict) else None
        if section is None:
            blocks.append([f"# [{table.name}] is not set"])
        else:
            blocks.append([*_table_lines(table, section, explain), *_option_lines(config, table)])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _table_lines(table: RecipeTable, section: dict[str, Any], explain: bool) -> Iterator[str]:
    """The lines of one table: its documented keys, then the others that it accepts."""
    if explain:
        yield from _comment(table.meaning)
    if table.name:
        yield f"[{table.name}]"
    for key in table.keys:
        if explain:
            yield ""
            yield from _comment(f"{key.meaning} ({key.type})")
        yield _assignment(key.name, section[key.name]) if key.name in section else f"# {key.name} is not set"
    names = {key.name for key in table.keys}
    for name, value in section.items():
        if name not in names and not isinstance(value, dict):
            yield _assignment(name, value)


def _option_lines(config: BaseModel, table: RecipeTable) -> Iterator[str]:
    """The options of the objective that are not set, with their defaults, as comments."""
    objective = getattr(config, table.name, None) if table.name else None
    if not isinstance(objective, ObjectiveConfig):
        return
    parameters = inspect.signature(OBJECTIVES[objective.name].build).parameters.values()
    for option in parameters:
        if option.name not in objective.options and option.default is not option.empty:
            known = option.default is not None
            text = _assignment(option.name, option.default) if known else f"{option.name} is not set"
            yield f"# {text}" + ("  # default" if known else "")


def _assignment(name: str, value: Any) -> str:
    return tomli_w.dumps({name: value}).rstrip("\n")


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
