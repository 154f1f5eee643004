"""The recipe reference is complete: every key of every recipe is listed with its type, default and meaning."""

from pathlib import Path
from typing import Literal

import pytest
from pydantic import Field

from latentalign import config
from latentalign.config import Section
from latentalign.recipe_reference import REQUIRED, UNSET, RecipeKey, recipe_keys, recipe_tables
from latentalign.tasks.alignment.recipe import AlignmentConfig
from latentalign.tasks.nmt.recipe import NMTConfig
from latentalign.tasks.vqa.recipe import VQAConfig

MODELS = {"nmt": NMTConfig, "vqa": VQAConfig, "align": AlignmentConfig}


def leaves(table, prefix=""):
    """Dotted names of all values in nested tables."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name


class Inner(Section):
    """A table."""

    size: int = Field(3, ge=1, lt=9)
    """How large."""
    kind: Literal["a", "b"] = "a"
    """Which
    kind."""
    path: Path | None = None
    """Where."""
    silent: bool = False


class LargerInner(Inner):
    """The same table with another default."""

    size: int = Field(5, ge=1)


class Outer(Section):
    """A recipe."""

    name: str
    """What it is called."""
    inner: Inner = Inner(size=4)
    other: LargerInner
    maybe: Inner | None = None


@pytest.mark.parametrize("model", MODELS.values())
def test_every_key_has_a_type_a_default_and_a_meaning(model):
    for key in recipe_keys(model):
        assert key.type, key
        assert key.default, key
        assert key.meaning.endswith("."), f"{key.key} needs a docstring in {model.__name__}"
    assert all(table.meaning for table in recipe_tables(model))


@pytest.mark.parametrize("recipe", config.shipped_recipes())
def test_every_key_of_a_shipped_recipe_is_listed(recipe):
    model = MODELS[recipe.partition("/")[0]]
    listed = {key.key for key in recipe_keys(model)}
    loaded = config.load(recipe, model)
    options = {f"objective.{name}" for name in loaded.objective.options}
    assert set(leaves(loaded.model_dump(exclude_none=True))) - options <= listed
    assert set(leaves(config.read_recipe(recipe).table)) - options - {"task"} <= listed


@pytest.mark.parametrize("recipe", config.shipped_recipes())
def test_a_shipped_recipe_is_written_and_read_back_equal(recipe, tmp_path):
    model = MODELS[recipe.partition("/")[0]]
    loaded = config.load(recipe, model)
    path = tmp_path / "config.toml"
    path.write_text(config.dump(loaded))
    assert config.load(path, model) == loaded


def test_rows_say_what_the_model_says():
    rows = {key.key: key for key in recipe_keys(Outer)}
    assert rows["name"] == RecipeKey("name", "string", REQUIRED, "What it is called.")
    assert rows["inner.size"] == RecipeKey("inner.size", "integer >= 1 and < 9", "4", "How large.")
    assert rows["inner.kind"] == RecipeKey("inner.kind", '"a" or "b"', '"a"', "Which kind.")
    assert rows["inner.path"] == RecipeKey("inner.path", "path", UNSET, "Where.")
    assert rows["inner.silent"] == RecipeKey("inner.silent", "boolean", "false", "")
    assert rows["maybe.size"].default == "3"


def test_a_field_that_only_changes_the_default_inherits_its_meaning():
    (row,) = (key for key in recipe_keys(Outer) if key.key == "other.size")
    assert (row.default, row.meaning) == ("5", "How large.")


def test_tables_come_in_the_order_of_the_model_and_say_whether_they_are_required():
    tables = [(table.name, table.required) for table in recipe_tables(Outer)]
    assert tables == [("", True), ("inner", False), ("other", True), ("maybe", False)]
