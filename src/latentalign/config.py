"""Recipes: TOML files read into strict models, and models written back as complete TOML.

Each task keeps its own models beside its code, as subclasses of `Section`. A field that may be None must
default to None: TOML has no null, so `dump` leaves such a key out.
"""

import datetime
import difflib
import json
import math
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, ValidationInfo
from pydantic_core import to_jsonable_python

from latentalign.errors import InputError
from latentalign.textfiles import read_lines


class Section(BaseModel):
    """One table of a recipe: unknown keys are refused and values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def _beside_recipe(path: Path, info: ValidationInfo) -> Path:
    """The path as seen from the folder of the recipe that is being read, if one is."""
    return info.context["folder"] / path if info.context else path


_BESIDE_RECIPE = AfterValidator(_beside_recipe)
DataPath = Annotated[Path, _BESIDE_RECIPE]
"""A file named in a recipe: relative to the recipe's folder, or as given when built in Python."""

T = TypeVar("T", bound=BaseModel)


def load(recipe: Path | str, model: type[T], overrides: Sequence[str] = ()) -> T:
    """The model that a recipe describes: a file, or the name of a shipped one such as `nmt/demo`.

    Each override is `table.key=value` with a TOML value, or text where the value is not TOML. Relative
    paths in a file are seen from its folder, those in shipped recipes and overrides from the current one.
    """
    table, (_, folder) = peek(recipe), _recipe_text(recipe)
    changed = []
    for override in overrides:
        key, value = _parsed(override)
        if _is_data_path(model, key):
            value = str(Path.cwd() / str(value))
        _assign(table, key, value)
        changed.append(key)
    try:
        # Strict, so that "3" is no number and 1 is no truth; by way of JSON, whose strict mode still takes
        # a list for a tuple and text for a path.
        return model.model_validate_json(
            _json(table, recipe, changed), strict=True, context={"folder": folder}
        )
    except ValidationError as error:
        raise InputError(_explained(error, recipe, model, table=table, changed=changed)) from None


def peek(recipe: Path | str) -> dict[str, Any]:
    """The tables of a recipe as they stand, unchecked."""
    text, _ = _recipe_text(recipe)
    try:
        return _toml(text)
    except ValueError as error:
        raise InputError(f"{recipe}: not valid TOML: {error}") from None


def shipped() -> list[str]:
    """Names of the recipes that come with the package."""
    root = resources.files("latentalign") / "recipes"
    folders = [entry for entry in root.iterdir() if entry.is_dir()] if root.is_dir() else []
    return sorted(
        f"{folder.name}/{entry.name.removesuffix('.toml')}"
        for folder in folders
        for entry in folder.iterdir()
        if entry.name.endswith(".toml")
    )


def dump(model: BaseModel) -> str:
    """Complete TOML text of a model, from which `load` builds an equal one."""
    return "\n".join(_table_lines(model.model_dump(exclude_none=True), ())).lstrip("\n") + "\n"


def flattened(model: BaseModel) -> dict[str, Any]:
    """Every key of a model, joined by dots, with its value as JSON knows it."""

    def keys(table: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
        for name, value in table.items():
            if isinstance(value, dict):
                yield from keys(value, f"{prefix}{name}.")
            else:
                yield prefix + name, value

    return dict(keys(json.loads(model.model_dump_json()), ""))


def default_of(model: BaseModel, key: str) -> Any:
    """What a key, joined by dots, is if nobody gives it, as JSON knows it; None where it must be given."""
    *sections, name = key.split(".")
    for section in sections:
        model = getattr(model, section)
    field = type(model).model_fields[name]
    return None if field.is_required() else to_jsonable_python(field.get_default(call_default_factory=True))


def _recipe_text(recipe: Path | str) -> tuple[str, Path]:
    """The text of a recipe and the folder from which its paths are seen."""
    names = shipped()
    # Of os.path, whose functions say no to names that no file can have, where those of Path raise.
    if str(recipe) in names and not os.path.isfile(recipe):
        entry = resources.files("latentalign") / "recipes" / f"{recipe}.toml"
        return entry.read_text(encoding="utf-8"), Path.cwd()
    if not os.path.exists(recipe):
        raise InputError(f"{recipe}: no such file, and no shipped recipe has that name ({', '.join(names)})")
    return "\n".join(read_lines(recipe)), Path(recipe).absolute().parent


def _toml(text: str) -> dict[str, Any]:
    """The table of a text; a ValueError if it is not TOML."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _json(table: dict[str, Any], recipe: Path | str, changed: list[tuple[str, ...]]) -> str:
    """A table as JSON; an InputError if it holds what no recipe needs: numbers without end, depths without end."""
    try:
        return json.dumps(table, default=str)
    except (RecursionError, ValueError):
        origin = f"{recipe} with --set" if changed else recipe
        raise InputError(f"{origin}: a number of thousands of digits, or tables nested too deeply") from None


# Overrides


def _parsed(override: str) -> tuple[tuple[str, ...], Any]:
    """Key and value of `table.key=value`."""
    name, equals, text = override.partition("=")
    key = tuple(part.strip() for part in name.split("."))
    if not equals or not all(key):
        raise InputError(f"--set {override}: expected table.key=value, for example training.epochs=3")
    try:
        table = _toml(f"value = {text}")
    except ValueError:
        return key, text
    is_text = len(table) > 1 or isinstance(table["value"], datetime.date | datetime.time)
    return key, text if is_text else table["value"]


def _assign(table: dict[str, Any], key: tuple[str, ...], value: Any) -> None:
    """Put a value into nested tables, making those that are absent."""
    for depth, part in enumerate(key[:-1], start=1):
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise InputError(f"--set {'.'.join(key)}: {'.'.join(key[:depth])} is a value, not a table")
    table[key[-1]] = value


def _is_data_path(model: type[BaseModel], key: tuple[str, ...]) -> bool:
    """Whether the key names a file, to be seen from the folder of whoever types the override."""
    for owner in _models(model, key[:-1]):
        field = owner.model_fields.get(key[-1])
        if field and (_BESIDE_RECIPE in field.metadata or DataPath in _parts(field.annotation)):
            return True
    return False


# Messages


def _explained(
    error: ValidationError,
    recipe: Path | str,
    model: type[BaseModel],
    *,
    table: dict[str, Any],
    changed: list[tuple[str, ...]],
) -> str:
    """All that is wrong with a recipe, a line each, misspelt keys first."""
    problems = sorted(
        error.errors(include_url=False), key=lambda problem: problem["type"] != "extra_forbidden"
    )
    lines = []
    for problem in problems:
        key = _key(problem, table)
        origin = "--set" if any(key[: len(other)] == other for other in changed) else str(recipe)
        lines.append(f"{origin}: {_complaint(problem, key, model)}")
    return "\n".join(dict.fromkeys(lines))


def _complaint(problem: Mapping[str, Any], key: tuple[str, ...], model: type[BaseModel]) -> str:
    """One thing that is wrong, and what would be right."""
    name = ".".join(key)
    if problem["type"] == "extra_forbidden":
        return f"unknown key {name}; {_suggestion(key, model)}"
    if problem["type"] == "missing":
        return f"missing key {name}"
    expected = problem["msg"].replace("Input should be", "expected").removeprefix("Value error, ")
    if isinstance(problem["input"], dict):  # a rule about a whole table: repeating the table helps nobody
        return f"{name}: {expected}" if name else expected
    return f"{name}: {expected}, got {problem['input']!r:.80}"


def _suggestion(key: tuple[str, ...], model: type[BaseModel]) -> str:
    """The nearest valid key: one spelt alike in the same table, else the same key of another table."""
    *tables, last = key
    siblings = [name for owner in _models(model, tables) for name in owner.model_fields]
    near = [(*tables, name) for name in difflib.get_close_matches(last, siblings, n=1)]
    near += [other for other in _keys(model) if other[-1] == last]
    if near:
        return f"did you mean {'.'.join(near[0])}?"
    return f"valid here: {', '.join(siblings)}"


def _key(problem: Mapping[str, Any], table: Any) -> tuple[str, ...]:
    """Where a problem is as the reader of the file knows it: without the names of union members."""
    key: list[str] = []
    for part in problem["loc"]:
        in_list = isinstance(table, list) and isinstance(part, int) and part < len(table)
        if in_list or (isinstance(table, dict) and part in table):
            key.append(str(part))
            table = table[part]
    return (*key, str(problem["loc"][-1])) if problem["type"] == "missing" else tuple(key)


def _parts(annotation: Any) -> Iterator[Any]:
    """An annotation and everything it is made of."""
    yield annotation
    for argument in get_args(annotation):
        yield from _parts(argument)


def _models(model: type[BaseModel], key: Sequence[str]) -> list[type[BaseModel]]:
    """The models that may stand at a key: several where the field is a union."""
    found = [model]
    for part in key:
        annotations = [owner.model_fields[part].annotation for owner in found if part in owner.model_fields]
        parts = [part for annotation in annotations for part in _parts(annotation)]
        found = [part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)]
    return found


def _keys(model: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every key that a recipe of this model may hold."""
    for name in dict.fromkeys(name for owner in _models(model, above) for name in owner.model_fields):
        yield (*above, name)
        yield from _keys(model, (*above, name))


# Writing


def _table_lines(table: Mapping[str, Any], key: tuple[str, ...]) -> Iterator[str]:
    """A table's own values first, then its tables, each under its header."""
    if key:
        yield f"\n[{'.'.join(map(_bare, key))}]"
    for name, value in table.items():
        if not isinstance(value, Mapping):
            yield f"{_bare(name)} = {_value(value)}"
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _table_lines(value, (*key, name))


def _bare(name: str) -> str:
    """A key, quoted only where TOML asks for it."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _value(name)


def _value(value: Any) -> str:
    """One TOML value on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, str | Path):
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_bare(name)} = {_value(item)}" for name, item in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(_value, value)) + "]"
    raise TypeError(f"no TOML for {type(value).__name__}")
