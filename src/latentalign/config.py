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
from dataclasses import dataclass, replace
from functools import reduce
from importlib import resources
from importlib.resources.abc import Traversable
from operator import getitem
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

import tomli_w
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, ValidationInfo
from pydantic_core import to_jsonable_python

from latentalign.errors import InputError
from latentalign.recipe_errors import BASE, Key, Problem, describe_problems, models_at, parts_of, summary
from latentalign.textfiles import read_lines


class Section(BaseModel):
    """One table of a recipe. Unknown keys are errors and values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
    alternatives: ClassVar[tuple[frozenset[str], ...]] = ()
    """Groups of keys of which one is used. If a recipe or --set uses one, those of its base do not count any more."""
    selector: ClassVar[str | None] = None
    """The key that decides which others there are. If a recipe or --set changes it, the others of its base do not count
    any more."""


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
    """The keys of this recipe alone, without those of its base."""
    folder: Path
    base: "Recipe | None" = None
    """The recipe that this one starts from."""

    @classmethod
    def parse(cls, text: str, name: str, folder: Path) -> "Recipe":
        """A recipe from its text; an InputError if that is not TOML."""
        try:
            return cls(name, _parse_toml(text), folder)
        except ValueError as error:
            raise InputError(f"{name}: not valid TOML: {error}") from None

    @property
    def merged_table(self) -> dict[str, Any]:
        """The keys of this recipe and of its bases. Where both have a key, the recipe wins."""
        return _merge(self.base.merged_table, self.table) if self.base else self.table

    def build(
        self, model: type[T], overrides: Sequence[str] = (), *, flags: Mapping[str, str] | None = None
    ) -> T:
        """The model that the recipe describes, with overrides.

        `flags` names the option of the command line that an override comes from, by its key, if that is not --set.
        Messages about the override then name this option.
        """
        complete = self._with_anchored_bases(model)
        parsed = [_parse_override(override) for override in overrides]
        table, changed = complete, dict[Key, str]()
        for key, value in parsed:
            table = _without_options(table, key, value, model)
        for key, value in parsed:
            if _is_data_path(model, key):
                value = str(Path.cwd() / str(value))
            table = _assign(_without_alternatives(table, key, model), key, value)
            changed[key] = (flags or {}).get(".".join(key), "--set")
        found = self._validate(model, table, origin=f"{self.name} with --set" if changed else self.name)
        if not isinstance(found, ValidationError):
            return found
        # A problem that the recipe has without the overrides is the recipe's own.
        before = self._validate(model, complete, origin=self.name) if changed else None
        old = [summary(each) for each in before.errors()] if isinstance(before, ValidationError) else []
        problems = [Problem(each, table, is_new=summary(each) not in old) for each in found.errors()]
        raise InputError(describe_problems(problems, model, changed=changed, file_of=self._file_of))

    def _validate(self, model: type[T], table: dict[str, Any], *, origin: str) -> T | ValidationError:
        """The model of some tables, or the error that says what is wrong with them."""
        # Strict: "3" is not a number and 1 is not a truth value. The detour through JSON is needed because
        # strict mode accepts a list for a tuple and text for a path only there.
        try:
            text = json.dumps(table, default=str)
        except (RecursionError, ValueError):
            problem = "a number has thousands of digits, or tables are nested too deeply"
            raise InputError(f"{origin}: {problem}") from None
        try:
            return model.model_validate_json(text, strict=True, context={"folder": self.folder})
        except ValidationError as error:
            return error

    def _with_anchored_bases(self, model: type[BaseModel]) -> dict[str, Any]:
        """The merged tables, in which the paths of the bases are absolute."""
        if self.base is None:
            return self.table
        base = _anchor(self.base._with_anchored_bases(model), self.base.folder, model)
        for key in _value_keys(self.table):
            base = _without_options(base, key, _get(self.table, key), model)
            base = _without_alternatives(base, key, model)
        return _merge(base, self.table)

    def _file_of(self, key: Key) -> str:
        """The name of the recipe that sets a key: this one, or one of its bases."""
        found: Recipe | None = self
        while found is not None and not _has(found.table, key):
            found = found.base
        return found.name if found else self.name


def read_recipe(recipe: Path | str) -> Recipe:
    """Read a recipe and its bases: a file, or the name of a shipped one such as `nmt/demo`."""
    return _read_with_bases(recipe, ())


def _read_with_bases(recipe: Path | str, readers: tuple[str, ...]) -> Recipe:
    """Read a recipe that is the base of all `readers`, the outermost first."""
    text, folder = _read_text(recipe, readers)
    found = Recipe.parse(text, str(recipe), folder)
    name = found.table.pop(BASE, None)
    if name is None:
        return found
    if not isinstance(name, str):
        raise InputError(f"{recipe}: {BASE} must be the name of a recipe or a file, got {name!r:.80}")
    is_shipped = name in shipped_recipes() and not os.path.isfile(folder / name)
    base = name if is_shipped else str(folder / name)
    here = str(recipe) if str(recipe) in shipped_recipes() else os.path.realpath(recipe)
    chain = (*readers, here)
    if (base if is_shipped else os.path.realpath(base)) in chain:
        raise InputError(f"{recipe}: {BASE} = {name!r} leads back to itself; remove one of these keys")
    return replace(found, base=_read_with_bases(base, chain))


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


def shipped_description(name: str) -> str:
    """What a shipped recipe is for: its first line, which is a comment."""
    first, _, _ = (_shipped_folder() / f"{name}.toml").read_text(encoding="utf-8").partition("\n")
    return first.removeprefix("#").strip()


def dump(model: BaseModel) -> str:
    """Complete TOML text of a model, from which `load` builds an equal one."""
    return tomli_w.dumps(toml_values(model))


def toml_values(model: BaseModel) -> dict[str, Any]:
    """The tables of a model as values that TOML has. Keys that are not set are left out."""
    values: dict[str, Any] = _without_absent(model.model_dump())
    return values


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


def _read_text(recipe: Path | str, readers: Sequence[str] = ()) -> tuple[str, Path]:
    """The text of a recipe and the folder that its paths are relative to. `readers` have it as their base."""
    where = f"{readers[-1]}: {BASE}: " if readers else ""
    # os.path returns False for names that no file can have; the methods of Path would raise.
    if not os.path.isfile(recipe):
        names = shipped_recipes()
        if str(recipe) in names:
            return (_shipped_folder() / f"{recipe}.toml").read_text(encoding="utf-8"), Path.cwd()
        if not os.path.exists(recipe):
            near = difflib.get_close_matches(str(recipe), names, n=1)
            remedy = f"; did you mean {near[0]}?" if near else ""
            raise InputError(
                f"{where}{recipe}: no such file, and no shipped recipe has that name ({', '.join(names)}){remedy}"
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


def _parse_override(override: str) -> tuple[Key, Any]:
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


def _assign(table: dict[str, Any], key: Key, value: Any) -> dict[str, Any]:
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


def _is_data_path(model: type[BaseModel], key: Key) -> bool:
    """Whether the key names a file, which an override gives relative to the current folder."""
    for owner in models_at(model, key[:-1]):
        field = owner.model_fields.get(key[-1])
        if field and (_RESOLVE_PATH in field.metadata or DataPath in parts_of(field.annotation)):
            return True
    return False


# Bases


def _merge(base: dict[str, Any], table: dict[str, Any]) -> dict[str, Any]:
    """The keys of both, table by table. Where both have a value, that of `table` is taken."""
    merged = dict(base)
    for key, value in table.items():
        below = merged.get(key)
        merged[key] = _merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def _anchor(table: dict[str, Any], folder: Path, model: type[BaseModel], above: Key = ()) -> dict[str, Any]:
    """The same tables with absolute paths, where a key names a file."""
    anchored = dict(table)
    for name, value in table.items():
        key = (*above, name)
        if isinstance(value, dict):
            anchored[name] = _anchor(value, folder, model, key)
        elif isinstance(value, str) and _is_data_path(model, key):
            anchored[name] = str(folder / value)
    return anchored


def _value_keys(table: dict[str, Any], above: Key = ()) -> Iterator[Key]:
    """The keys of all values in nested tables."""
    for name, value in table.items():
        yield from _value_keys(value, (*above, name)) if isinstance(value, dict) else [(*above, name)]


def _without_alternatives(table: dict[str, Any], key: Key, model: type[BaseModel]) -> dict[str, Any]:
    """The same tables without the keys that a key replaces."""
    for owner in models_at(model, key[:-1]):
        groups = owner.alternatives if issubclass(owner, Section) else ()
        if any(key[-1] in group for group in groups):
            for name in frozenset().union(*(group for group in groups if key[-1] not in group)):
                table = _remove(table, (*key[:-1], name))
    return table


def _without_options(table: dict[str, Any], key: Key, value: Any, model: type[BaseModel]) -> dict[str, Any]:
    """The same tables without the options of what the key selected before, if it now selects something else."""
    selects = any(issubclass(o, Section) and o.selector == key[-1] for o in models_at(model, key[:-1]))
    if not selects or not _has(table, key) or _get(table, key) == value:
        return table
    for name in _get(table, key[:-1]).keys() - {key[-1]}:
        table = _remove(table, (*key[:-1], name))
    return table


def _get(table: dict[str, Any], key: Key) -> Any:
    """What nested tables have under a key."""
    return reduce(getitem, key, table)


def _remove(table: dict[str, Any], key: Key) -> dict[str, Any]:
    """A copy of nested tables without a key."""
    if not _has(table, key):
        return table
    first, *rest = key
    if rest:
        return {**table, first: _remove(table[first], tuple(rest))}
    return {name: value for name, value in table.items() if name != first}


def _has(table: Any, key: Key) -> bool:
    """Whether nested tables have a key."""
    for part in key:
        if not isinstance(table, dict) or part not in table:
            return False
        table = table[part]
    return True
