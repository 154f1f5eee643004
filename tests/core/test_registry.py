"""Registries: names, suggestions and entry points of other packages."""

from __future__ import annotations

import pytest

from latentalign.core import registry
from latentalign.core.registry import PluginError, Registry, UnknownNameError


class Point:
    """An entry point as importlib.metadata gives it."""

    def __init__(self, name: str, entry: object) -> None:
        self.name, self.value, self.entry = name, f"package:{name}", entry

    def load(self) -> object:
        if isinstance(self.entry, Exception):
            raise self.entry
        return self.entry


def declare(monkeypatch: pytest.MonkeyPatch, *points: Point) -> list[str]:
    """Let other packages declare entry points; gives the groups that were asked for."""
    asked: list[str] = []

    def entry_points(*, group: str) -> tuple[Point, ...]:
        asked.append(group)
        return points

    monkeypatch.setattr(registry, "entry_points", entry_points)
    return asked


def test_a_registered_name_gives_its_entry_in_order() -> None:
    kinds: Registry[int] = Registry("objective")
    kinds["b"], kinds["a"] = 2, 1
    assert (kinds["a"], list(kinds)) == (1, ["b", "a"])


def test_the_decorator_leaves_what_it_registers_as_it_is() -> None:
    kinds: Registry[object] = Registry("objective")

    @kinds.register("double")
    def double(x: int) -> int:
        return 2 * x

    assert double(2) == 4
    assert kinds["double"] is double


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    kinds: Registry[int] = Registry("objective")
    kinds["variational-sample"] = 1
    with pytest.raises(
        UnknownNameError,
        match=r"^unknown objective 'variational_sample'; did you mean 'variational-sample'\?$",
    ):
        kinds["variational_sample"]
    with pytest.raises(KeyError, match="choose one of variational-sample"):
        kinds["zzz"]
    assert "zzz" not in kinds


def test_entry_points_are_loaded_at_the_first_miss_only(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = declare(monkeypatch, Point("theirs", 3))
    kinds: Registry[int] = Registry("score")
    kinds["ours"] = 1
    assert kinds["ours"] == 1
    assert asked == []
    assert kinds["theirs"] == 3
    assert set(kinds) == {"ours", "theirs"}
    assert asked == ["latentalign.scores"]


def test_an_entry_point_never_replaces_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, Point("ours", 3))
    kinds: Registry[int] = Registry("score")
    kinds["ours"] = 1
    assert (list(kinds), kinds["ours"]) == (["ours"], 1)


def test_an_entry_point_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, Point("broken", ValueError("no such thing")))
    with pytest.raises(
        PluginError, match=r"broken = 'package:broken' of group latentalign.scores.*no such thing"
    ):
        list(Registry[int]("score"))


def test_a_registry_can_be_cleared_and_filled_again():
    registry = Registry("thing")
    registry["a"] = 1
    registry.clear()
    assert len(registry) == 0
    registry["b"] = 2
    assert list(registry) == ["b"]


def test_clearing_the_tasks_ends():
    from latentalign.tasks.registry import TASKS

    known = dict(TASKS)
    TASKS.clear()
    TASKS.update(known)
    assert set(TASKS) >= {"nmt", "vqa"}
