"""What is wrong with a recipe, in words: where the problem stands, and what would be right."""

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel

BASE = "base"
"""The key at the top of a recipe that names the recipe it starts from."""
Key = tuple[str, ...]
"""The parts of a dotted key."""


@dataclass(frozen=True)
class Problem:
    """One error that pydantic found in the tables of a recipe."""

    error: Mapping[str, Any]
    table: dict[str, Any]
    is_new: bool
    """Whether overrides brought it about: the recipe alone does not have it."""

    @property
    def is_misspelt(self) -> bool:
        """Whether a key does not exist."""
        return bool(self.error["type"] == "extra_forbidden")

    @property
    def key(self) -> Key:
        """The key that the error is about, as the file spells it: without the names of union members."""
        key: list[str] = []
        table: Any = self.table
        for part in self.error["loc"]:
            in_list = isinstance(table, list) and isinstance(part, int) and part < len(table)
            if in_list or (isinstance(table, dict) and part in table):
                key.append(str(part))
                table = table[part]
        return (*key, str(self.error["loc"][-1])) if self.error["type"] == "missing" else tuple(key)


def summary(error: Mapping[str, Any]) -> tuple[Any, ...]:
    """Where an error of pydantic stands and what it says, without the value that it was about."""
    return error["loc"], error["type"], error["msg"]


def describe_problems(
    problems: Sequence[Problem],
    model: type[BaseModel],
    *,
    changed: Mapping[Key, str],
    file_of: Callable[[Key], str],
) -> str:
    """All problems of a recipe, one per line, misspelt keys first.

    `changed` are the overridden keys and the options that set them. `file_of` names the recipe that sets a key.
    """
    lines = []
    for problem in sorted(problems, key=lambda problem: not problem.is_misspelt):
        key = problem.key
        flags = _flags(key, changed) if problem.is_new and changed else []
        origin = " and ".join(flags) or file_of(key)
        named = "" if flags and "--set" not in flags else ".".join(key)
        lines.append(f"{origin}: {_describe_problem(problem, named, model)}")
    return "\n".join(dict.fromkeys(lines))


def _flags(key: Key, changed: Mapping[Key, str]) -> list[str]:
    """The options that may have caused a problem of a key: those that set it, its table or a key in its table."""
    near = [flag for other, flag in changed.items() if key[: len(other)] == other or other[: len(key)] == key]
    return list(dict.fromkeys(near or changed.values()))


def _describe_problem(problem: Problem, name: str, model: type[BaseModel]) -> str:
    """One problem, and what would be right. The name of the key is left out if an option stands for it."""
    error, key = problem.error, problem.key
    if problem.is_misspelt:
        return f"unknown key {'.'.join(key)}; {_suggestion(key, model)}"
    if error["type"] == "missing":
        return f"missing key {'.'.join(key)}"
    expected = error["msg"].replace("Input should be", "expected").removeprefix("Value error, ")
    value = repr(error["input"])
    # Do not repeat a whole table, or a value that the message quotes.
    got = "" if isinstance(error["input"], dict) or value in expected else f", got {value:.80}"
    return f"{name}: {expected}{got}" if name else f"{expected}{got}"


def _suggestion(key: Key, model: type[BaseModel]) -> str:
    """The nearest valid key: a similar one in the same table, or the same key in another table."""
    *tables, last = key
    siblings = [name for owner in models_at(model, tables) for name in owner.model_fields]
    siblings += [] if tables else [BASE]
    near = [(*tables, name) for name in difflib.get_close_matches(last, siblings, n=1)]
    near += [other for other in _keys(model) if other[-1] == last]
    if near:
        return f"did you mean {'.'.join(near[0])}?"
    return f"valid here: {', '.join(siblings)}"


def parts_of(annotation: Any) -> Iterator[Any]:
    """An annotation and all annotations inside it."""
    yield annotation
    for argument in get_args(annotation):
        yield from parts_of(argument)


def models_at(model: type[BaseModel], key: Sequence[str]) -> list[type[BaseModel]]:
    """The models that a key may hold: several if the field is a union."""
    found = [model]
    for part in key:
        annotations = [owner.model_fields[part].annotation for owner in found if part in owner.model_fields]
        parts = [part for annotation in annotations for part in parts_of(annotation)]
        found = [part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)]
    return found


def _keys(model: type[BaseModel], above: Key = ()) -> Iterator[Key]:
    """Every key that a recipe of this model may have."""
    for name in dict.fromkeys(name for owner in models_at(model, above) for name in owner.model_fields):
        yield (*above, name)
        yield from _keys(model, (*above, name))
