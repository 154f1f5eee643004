"""Registries: what can be named in a recipe or on the command line, with room for third-party packages.

A package adds an entry without touching this project by declaring an entry point:

    [project.entry-points."latentalign.objectives"]
    my-objective = "my_package.objectives:my_objective"
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")
E = TypeVar("E")


class PluginError(ImportError):
    """An entry point of an installed package that cannot be loaded."""


class UnknownNameError(KeyError, ValueError):
    """A name that no entry has; the message suggests the nearest one."""

    def __str__(self) -> str:
        return str(self.args[0])  # a KeyError would print the representation of its message


class Registry(MutableMapping[str, T], Generic[T]):
    """Entries by name, in order of registration.

    Entry points of the group `latentalign.<plural>` are loaded when a name is missing or all names are asked for.
    An entry point never replaces an entry that exists.
    """

    def __init__(self, kind: str, convert: Callable[[str, Any], T] | None = None) -> None:
        """`kind` is the singular in messages; `convert(name, entry)` turns what is registered into an entry."""
        self.kind, self.convert = kind, convert
        self.group = f"latentalign.{kind}s"
        self._entries: dict[str, T] = {}
        self._loaded = False

    def register(self, name: str) -> Callable[[E], E]:
        """A decorator that registers a class or function under a name."""

        def add(entry: E) -> E:
            self[name] = cast(T, entry)
            return entry

        return add

    def load_entry_points(self) -> None:
        """Add the entries that installed packages declare; does nothing the second time."""
        if self._loaded:
            return
        self._loaded = True
        for point in entry_points(group=self.group):
            try:
                entry = point.load()
            except Exception as error:
                self._loaded = False  # the next attempt fails as well, instead of not knowing the name
                raise PluginError(
                    f"the entry point {point.name} = {point.value!r} of group {self.group} cannot be loaded: {error}; "
                    f"repair or uninstall the package that declares it"
                ) from error
            if point.name not in self._entries:  # loading may have registered it by decorator
                self[point.name] = entry

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            self.load_entry_points()
        if name not in self._entries:
            raise UnknownNameError(f"unknown {self.kind} {name!r}{suggest(name, self._entries)}")
        return self._entries[name]

    def __setitem__(self, name: str, entry: T) -> None:
        self._entries[name] = entry if self.convert is None else self.convert(name, entry)

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def clear(self) -> None:
        """Remove every entry; entry points that were loaded are not loaded again."""
        self._entries.clear()

    def __iter__(self) -> Iterator[str]:
        self.load_entry_points()
        return iter(self._entries)

    def __len__(self) -> int:
        self.load_entry_points()
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Registry({self.kind}: {', '.join(self)})"


def suggest(word: Any, names: Iterable[str]) -> str:
    """The end of an error message: the nearest name, or all names."""
    names = list(names)
    close = difflib.get_close_matches(str(word), names, 1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; choose one of {', '.join(names)}" if names else "; there is none"


SCORES: Registry[Callable[..., Any]] = Registry("score")
"""Builders of attention scores: builder(query_dim=, memory_dim=, hidden=) gives a module."""
