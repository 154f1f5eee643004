"""Finding tasks by name, by recipe and by run.

A task is registered with one line, `TASKS["my-task"] = MyTask()`. Packages register theirs through the entry point
group `latentalign.tasks`. Modules in the environment variable `LATENTALIGN_PLUGINS`, separated by commas, are imported
first;
that is useful for a task that is not installed as a package, because it also reaches the processes that `reproduce`
starts.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from latentalign.config import Recipe, read_recipe, shipped_recipes
from latentalign.core.registry import Registry, UnknownNameError
from latentalign.errors import CheckpointError, InputError
from latentalign.training.run import Run

PLUGINS = "LATENTALIGN_PLUGINS"
BUILT_IN = {
    "nmt": ("latentalign.tasks.nmt.task", "TRANSLATION"),
    "vqa": ("latentalign.tasks.vqa.task", "ANSWERING"),
}
DEFAULT = "nmt"
"""The task of a recipe that neither names a task nor is recognised by one."""
AnyTask = Any
"""A task of any recipe, vocabulary and model; commands also call methods that only some tasks have."""


class TaskRegistry(Registry[AnyTask]):
    """Tasks by name. The built-in ones are imported when they are needed, because their libraries load slowly."""

    def __getitem__(self, name: str) -> AnyTask:
        if name in BUILT_IN and name not in self._entries:
            module, attribute = BUILT_IN[name]
            self[name] = getattr(import_module(module), attribute)
        return super().__getitem__(name)

    def load_entry_points(self) -> None:
        """Add the built-in tasks and those of installed packages."""
        for name in BUILT_IN:
            self[name]
        super().load_entry_points()


TASKS = TaskRegistry("task")


def import_plugins() -> None:
    """Import the modules that `LATENTALIGN_PLUGINS` names."""
    for name in filter(None, os.environ.get(PLUGINS, "").split(",")):
        try:
            import_module(name.strip())
        except ImportError as error:
            raise InputError(f"{PLUGINS}: {name.strip()} cannot be imported: {error}") from error


def task_named(name: str) -> AnyTask:
    """A task by name; an InputError names the nearest if there is none."""
    try:
        return TASKS[name]
    except UnknownNameError as error:
        raise InputError(str(error)) from None


def task_of_recipe(recipe: Recipe) -> AnyTask:
    """The task of a recipe: the one it names, else the one that recognises its data, else translation."""
    name = recipe.table.get("task")
    if name is not None:
        try:
            return TASKS[str(name)]
        except UnknownNameError as error:
            raise InputError(f"{recipe.name}: {error}") from None
    return next((task for task in TASKS.values() if task.recognises(recipe.table)), TASKS[DEFAULT])


def task_of_data(data: str | None) -> AnyTask:
    """The task of a data set: one that a task generates, a shipped recipe, or a recipe file; else translation."""
    if data is None:
        return TASKS[DEFAULT]
    for task in TASKS.values():
        generated = task.experiment().data
        if generated is not None and generated.name == data:
            return task
    shipped = shipped_recipes()
    names = [data, *(f"{name}/{data}" for name in TASKS)]
    return task_of_recipe(read_recipe(next((name for name in names if name in shipped), data)))


def task_of_run(folder: Path) -> AnyTask:
    """The task of a run directory; every defect of its recipe is a CheckpointError."""
    run = Run(folder)
    run.require()
    try:
        return task_of_recipe(read_recipe(run.config))
    except InputError as error:
        raise CheckpointError(f"{run.config}: {error}") from None
