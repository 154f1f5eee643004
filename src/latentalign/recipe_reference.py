"""Documentation of every key of a recipe, read from the recipe's pydantic model.

A key's meaning is the docstring under its field. The documentation site and the command line print these rows.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

REQUIRED = "required"
UNSET = "unset"

_TYPE_NAMES = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    Path: "path",
    dict: "table",
    Any: "any",
}


@dataclass(frozen=True)
class RecipeKey:
    """One key of a recipe: its dotted name, type, default value and meaning."""

    key: str
    type: str
    default: str
    meaning: str

    @property
    def table(self) -> str:
        """Name of the table that contains the key; empty at the top of the file."""
        return self.key.rpartition(".")[0]

    @property
    def name(self) -> str:
        """Name of the key within its table."""
        return self.key.rpartition(".")[2]


@dataclass(frozen=True)
class RecipeTable:
    """One table of a recipe: its dotted name, its meaning and its keys."""

    name: str
    meaning: str
    required: bool
    keys: tuple[RecipeKey, ...]


def recipe_keys(model: type[BaseModel]) -> list[RecipeKey]:
    """Every key that a recipe of this model accepts, in the order of the model."""
    return [key for table in recipe_tables(model) for key in table.keys]


def recipe_tables(model: type[BaseModel]) -> list[RecipeTable]:
    """Every table that a recipe of this model accepts, in the order of the model; the top level comes first."""
    return list(_tables(model, name="", default=None, required=True))


def _tables(
    model: type[BaseModel], *, name: str, default: BaseModel | None, required: bool
) -> Iterator[RecipeTable]:
    """The table of a model, then the tables inside it."""
    prefix = f"{name}." if name else ""
    keys, inner = [], []
    for field_name, field in model.model_fields.items():
        section = _section(field.annotation)
        if section is None:
            keys.append(_recipe_key(model, field_name, field, prefix=prefix, table_default=default))
        else:
            value = _default(field_name, field, default)
            value = value if isinstance(value, BaseModel) else None
            inner.append((section, f"{prefix}{field_name}", value, field.is_required()))
    if keys or name:
        yield RecipeTable(name, _one_line(model.__doc__), required, tuple(keys))
    for section, section_name, value, needed in inner:
        yield from _tables(section, name=section_name, default=value, required=needed)


def _recipe_key(
    model: type[BaseModel], name: str, field: FieldInfo, *, prefix: str, table_default: BaseModel | None
) -> RecipeKey:
    """The row of one field."""
    default = REQUIRED if field.is_required() else _toml_text(_default(name, field, table_default))
    limits = [limit for limit in map(_limit_text, field.metadata) if limit]
    return RecipeKey(
        key=f"{prefix}{name}",
        type=" ".join([_type_text(field.annotation), " and ".join(limits)]).strip(),
        default=default,
        meaning=_meaning(model, name),
    )


def _default(name: str, field: FieldInfo, table_default: BaseModel | None) -> Any:
    """A field's value in a recipe that does not mention it."""
    if table_default is not None:
        return getattr(table_default, name)
    return None if field.is_required() else field.get_default(call_default_factory=True)


def _meaning(model: type[BaseModel], name: str) -> str:
    """A field's docstring; a subclass that only changes the default inherits it."""
    for owner in model.__mro__:
        if issubclass(owner, BaseModel) and name in owner.model_fields:
            description = owner.model_fields[name].description
            if description:
                return _one_line(description)
    return ""


def _section(annotation: Any) -> type[BaseModel] | None:
    """The model that a field holds as a table; None for a plain value."""
    for part in (annotation, *get_args(annotation)):
        if isinstance(part, type) and issubclass(part, BaseModel):
            return part
    return None


def _type_text(annotation: Any) -> str:
    """A type in words: `integer`, `path`, `"a" or "b"`, `list of string`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_text(arguments[0])
    if origin is Literal:
        return " or ".join(map(_toml_text, arguments))
    if origin in (Union, types.UnionType):
        return " or ".join(_type_text(part) for part in arguments if part is not type(None))
    if origin in (list, tuple):
        return f"list of {_type_text(arguments[0])}"
    return _TYPE_NAMES.get(origin or annotation, getattr(annotation, "__name__", str(annotation)))


def _limit_text(limit: Any) -> str:
    """A bound of a number, such as `>= 1`; empty for other metadata."""
    match limit:
        case Ge(ge=bound):
            return f">= {bound}"
        case Gt(gt=bound):
            return f"> {bound}"
        case Le(le=bound):
            return f"<= {bound}"
        case Lt(lt=bound):
            return f"< {bound}"
    return ""


def _toml_text(value: Any) -> str:
    """A value as it is written in a recipe."""
    if value is None:
        return UNSET
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | Path):
        return f'"{value}"'
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml_text, value)) + "]"
    return str(value)


def _one_line(text: str | None) -> str:
    """A docstring without its line breaks."""
    return " ".join((text or "").split())
