"""Recipes: TOML files are read into strict models, and models are written back as complete TOML.

Each task keeps its own models beside its code, as subclasses of `Section`. A field that may be None must
default to None, because TOML has no null and `dump` leaves such a key out.
"""

import datetime
import difflib
import json
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import tomli_w
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, ValidationInfo
from pydantic_core import to_jsonable_python

from latentalign.errors import InputError
from latentalign.textfiles import read_lines


class Section(BaseModel):
    """One table of a recipe. Unknown keys are errors and values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def _resolve_path(path: Path, info: ValidationInfo) -> Path:
    """The path relative to the folder of the recipe, if a recipe is being read."""
    return info.context["folder"] / path if info.context else path


_RESOLVE_PATH = AfterValidator(_resolve_path)
DataPath = Annotated[Path, _RESOLVE_PATH]
"""A file that a recipe names: relative to the recipe's folder, or unchanged if the model is built in Python."""

T = TypeVar("T", bound=BaseModel)


@dataclass(frozen=True)
class Recipe:
    """A recipe as it was read: its tables, not validated yet, and the folder that its paths are relative to."""

    name: str
    table: dict[str, Any]
    folder: Path

    @classmethod
    def parse(cls, text: str, name: str, folder: Path) -> "Recipe":
        """A recipe from its text; an InputError if that is not TOML."""
        try:
            return cls(name, _parse_toml(text), folder)
        except ValueError as error:
            raise InputError(f"{name}: not valid TOML: {error}") from None

    def build(self, model: type[T], overrides: Sequence[str] = ()) -> T:
        """The model that the recipe describes, with overrides."""
        table, changed = self.table, []
        for override in overrides:
            key, value = _parse_override(override)
            if _is_data_path(model, key):
                value = str(Path.cwd() / str(value))
            table = _assign(table, key, value)
            changed.append(key)
        # Strict: "3" is not a number and 1 is not a truth value. The detour through JSON is needed because
        # strict mode accepts a list for a tuple and text for a path only there.
        try:
            text = json.dumps(table, default=str)
        except (RecursionError, ValueError):
            origin = f"{self.name} with --set" if changed else self.name
            problem = "a number has thousands of digits, or tables are nested too deeply"
            raise InputError(f"{origin}: {problem}") from None
        try:
            return model.model_validate_json(text, strict=True, context={"folder": self.folder})
        except ValidationError as error:
            message = _explain_errors(error, self.name, model, table=table, changed=changed)
            raise InputError(message) from None


def read_recipe(recipe: Path | str) -> Recipe:
    """Read a recipe: a file, or the name of a shipped one such as `nmt/demo`."""
    text, folder = _read_text(recipe)
    return Recipe.parse(text, str(recipe), folder)


def load(recipe: Path | str, model: type[T], overrides: Sequence[str] = ()) -> T:
    """The model that a recipe describes: a file, or the name of a shipped one such as `nmt/demo`.

    Each override is `table.key=value` with a TOML value, or text if the value is not TOML. Relative paths in a
    file are relative to its folder. Those in shipped recipes and overrides are relative to the current folder.
    """
    return read_recipe(recipe).build(model, overrides)


def shipped_recipes() -> list[str]:
    """Names of the recipes that come with the package."""
    root = _shipped_folder()
    folders = [entry for entry in root.iterdir() if entry.is_dir()] if root.is_dir() else []
    return sorted(
        f"{folder.name}/{entry.name.removesuffix('.toml')}"
        for folder in folders
        for entry in folder.iterdir()
        if entry.name.endswith(".toml")
    )


def dump(model: BaseModel) -> str:
    """Complete TOML text of a model, from which `load` builds an equal one."""
    return tomli_w.dumps(_without_absent(model.model_dump()))


def flatten(model: BaseModel) -> dict[str, Any]:
    """Every key of a model, joined by dots, with its value as JSON represents it."""

    def keys(table: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
        for name, value in table.items():
            if isinstance(value, dict):
                yield from keys(value, f"{prefix}{name}.")
            else:
                yield prefix + name, value

    return dict(keys(json.loads(model.model_dump_json()), ""))


def default_value(model: BaseModel, key: str) -> Any:
    """The default of a key, joined by dots, as JSON represents it; None if the key is required."""
    *sections, name = key.split(".")
    for section in sections:
        model = getattr(model, section)
    field = type(model).model_fields[name]
    return None if field.is_required() else to_jsonable_python(field.get_default(call_default_factory=True))


def _shipped_folder() -> Traversable:
    return resources.files("latentalign") / "recipes"


def _read_text(recipe: Path | str) -> tuple[str, Path]:
    """The text of a recipe and the folder that its paths are relative to."""
    # os.path returns False for names that no file can have; the methods of Path would raise.
    if not os.path.isfile(recipe):
        names = shipped_recipes()
        if str(recipe) in names:
            return (_shipped_folder() / f"{recipe}.toml").read_text(encoding="utf-8"), Path.cwd()
        if not os.path.exists(recipe):
            raise InputError(
                f"{recipe}: no such file, and no shipped recipe has that name ({', '.join(names)})"
            )
    return "\n".join(read_lines(recipe)), Path(recipe).absolute().parent


def _without_absent(value: Any) -> Any:
    """Plain TOML values: None is left out, and a path is text."""
    if isinstance(value, Mapping):
        return {key: _without_absent(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_without_absent(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _parse_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text; a ValueError if it is not TOML."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


# Overrides


def _parse_override(override: str) -> tuple[tuple[str, ...], Any]:
    """Key and value of an override `table.key=value`."""
    name, equals, text = override.partition("=")
    key = tuple(part.strip() for part in name.split("."))
    if not equals or not all(key):
        raise InputError(f"--set {override}: expected table.key=value, for example training.epochs=3")
    try:
        table = _parse_toml(f"value = {text}")
    except ValueError:
        return key, text
    is_text = len(table) > 1 or isinstance(table["value"], datetime.date | datetime.time)
    return key, text if is_text else table["value"]


def _assign(table: dict[str, Any], key: tuple[str, ...], value: Any) -> dict[str, Any]:
    """A copy of nested tables with one value replaced. Tables that are absent are created."""
    result = inner = dict(table)
    for depth, part in enumerate(key[:-1], start=1):
        below = inner.get(part, {})
        if not isinstance(below, dict):
            raise InputError(f"--set {'.'.join(key)}: {'.'.join(key[:depth])} is a value, not a table")
        inner[part] = dict(below)
        inner = inner[part]
    inner[key[-1]] = value
    return result


def _is_data_path(model: type[BaseModel], key: tuple[str, ...]) -> bool:
    """Whether the key names a file, which an override gives relative to the current folder."""
    for owner in _models(model, key[:-1]):
        field = owner.model_fields.get(key[-1])
        if field and (_RESOLVE_PATH in field.metadata or DataPath in _parts(field.annotation)):
            return True
    return False


# Messages


def _explain_errors(
    error: ValidationError,
    recipe: Path | str,
    model: type[BaseModel],
    *,
    table: dict[str, Any],
    changed: list[tuple[str, ...]],
) -> str:
    """All errors of a recipe, one per line, misspelt keys first."""
    problems = sorted(
        error.errors(include_url=False), key=lambda problem: problem["type"] != "extra_forbidden"
    )
    lines = []
    for problem in problems:
        key = _key(problem, table)
        origin = "--set" if any(key[: len(other)] == other for other in changed) else str(recipe)
        lines.append(f"{origin}: {_explain_error(problem, key, model)}")
    return "\n".join(dict.fromkeys(lines))


def _explain_error(problem: Mapping[str, Any], key: tuple[str, ...], model: type[BaseModel]) -> str:
    """One error, and what would be right."""
    name = ".".join(key)
    if problem["type"] == "extra_forbidden":
        return f"unknown key {name}; {_suggestion(key, model)}"
    if problem["type"] == "missing":
        return f"missing key {name}"
    expected = problem["msg"].replace("Input should be", "expected").removeprefix("Value error, ")
    if isinstance(problem["input"], dict):  # a rule about a whole table: do not repeat the table
        return f"{name}: {expected}" if name else expected
    return f"{name}: {expected}, got {problem['input']!r:.80}"


def _suggestion(key: tuple[str, ...], model: type[BaseModel]) -> str:
    """The nearest valid key: a similar one in the same table, or the same key in another table."""
    *tables, last = key
    siblings = [name for owner in _models(model, tables) for name in owner.model_fields]
    near = [(*tables, name) for name in difflib.get_close_matches(last, siblings, n=1)]
    near += [other for other in _keys(model) if other[-1] == last]
    if near:
        return f"did you mean {'.'.join(near[0])}?"
    return f"valid here: {', '.join(siblings)}"


def _key(problem: Mapping[str, Any], table: Any) -> tuple[str, ...]:
    """The key that an error is about, as the file spells it: without the names of union members."""
    key: list[str] = []
    for part in problem["loc"]:
        in_list = isinstance(table, list) and isinstance(part, int) and part < len(table)
        if in_list or (isinstance(table, dict) and part in table):
            key.append(str(part))
            table = table[part]
    return (*key, str(problem["loc"][-1])) if problem["type"] == "missing" else tuple(key)


def _parts(annotation: Any) -> Iterator[Any]:
    """An annotation and all annotations inside it."""
    yield annotation
    for argument in get_args(annotation):
        yield from _parts(argument)


def _models(model: type[BaseModel], key: Sequence[str]) -> list[type[BaseModel]]:
    """The models that a key may hold: several if the field is a union."""
    found = [model]
    for part in key:
        annotations = [owner.model_fields[part].annotation for owner in found if part in owner.model_fields]
        parts = [part for annotation in annotations for part in _parts(annotation)]
        found = [part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)]
    return found


def _keys(model: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every key that a recipe of this model may have."""
    for name in dict.fromkeys(name for owner in _models(model, above) for name in owner.model_fields):
        yield (*above, name)
        yield from _keys(model, (*above, name))
