"""Tasks are found by name, by recipe, by data set and by run."""

import shutil
from pathlib import Path

import pytest

from latentalign.config import read_recipe, shipped_recipes
from latentalign.errors import CheckpointError, InputError
from latentalign.tasks.registry import (
    TASKS,
    import_plugins,
    task_named,
    task_of_data,
    task_of_recipe,
    task_of_run,
)

FIXTURE = Path(__file__).parents[1] / "fixtures" / "run-v1"


def recipe(folder: Path, text: str):
    path = folder / "recipe.toml"
    path.write_text(text)
    return read_recipe(path)


@pytest.mark.parametrize("name", shipped_recipes())
def test_every_shipped_recipe_names_the_task_of_its_folder(name):
    source = read_recipe(name)
    folder = name.partition("/")[0]
    expected = {"align": "alignment"}.get(folder, folder)
    assert source.table["task"] == expected == task_of_recipe(source).name
    assert source.build(task_of_recipe(source).recipe).task == source.table["task"]


@pytest.mark.parametrize(
    ("text", "task"),
    [
        ("[data.train]\nquestions = 'q'", "vqa"),
        ("[data.train]\nsource = 's'", "nmt"),
        ("", "nmt"),
        ("data = 3", "nmt"),
        ("task = 'vqa'\n[data.train]\nsource = 's'", "vqa"),
    ],
)
def test_a_recipe_without_a_task_is_recognised_by_its_data(tmp_path, text, task):
    assert task_of_recipe(recipe(tmp_path, text)).name == task


def test_an_unknown_task_names_the_nearest_or_all(tmp_path):
    with pytest.raises(InputError, match=r"recipe\.toml: unknown task 'vqaa'; did you mean 'vqa'"):
        task_of_recipe(recipe(tmp_path, "task = 'vqaa'"))
    with pytest.raises(InputError, match=r"choose one of .*nmt\b.*vqa"):
        task_named("parsing")


@pytest.mark.parametrize(
    ("data", "task"),
    [
        (None, "nmt"), ("demo", "nmt"), ("scenes", "vqa"), ("multi30k", "nmt"), ("daquar", "vqa"),
        ("vqa/vqa2", "vqa"),
    ],
)  # fmt: skip
def test_a_data_set_leads_to_its_task(data, task):
    assert task_of_data(data).name == task


def test_an_unknown_data_set_is_an_error():
    with pytest.raises(InputError, match="no such file"):
        task_of_data("multi31k")


def test_a_run_of_the_first_version_is_a_translation_run(tmp_path):
    assert task_of_run(FIXTURE)[0] is TASKS["nmt"]
    with pytest.raises(CheckpointError, match="no such run directory"):
        task_of_run(tmp_path / "none")
    (tmp_path / "recipe.toml").touch()
    with pytest.raises(CheckpointError, match="a file, not a run directory"):
        task_of_run(tmp_path / "recipe.toml")
    shutil.copytree(FIXTURE, tmp_path / "run")
    (tmp_path / "run" / "config.toml").write_text("task = 'parsing'")
    with pytest.raises(CheckpointError, match="unknown task"):
        task_of_run(tmp_path / "run")


def test_plugins_are_imported_by_name(monkeypatch, tmp_path):
    (tmp_path / "my_plugin_for_tests.py").write_text(
        "from latentalign.tasks.registry import TASKS\nTASKS['mine'] = TASKS['nmt']\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("LATENTALIGN_PLUGINS", "my_plugin_for_tests")
    try:
        import_plugins()
        assert task_named("mine") is TASKS["nmt"]
    finally:
        TASKS.pop("mine", None)
    monkeypatch.setenv("LATENTALIGN_PLUGINS", "no_such_module")
    with pytest.raises(InputError, match="no_such_module cannot be imported"):
        import_plugins()
