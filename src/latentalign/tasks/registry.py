"""Finding tasks by name, by recipe and by run.

A task is registered with one line, `TASKS["my-task"] = MyTask()`. Packages register theirs through the entry point
group `latentalign.tasks`. Modules in the environment variable `LATENTALIGN_PLUGINS`, separated by commas, are imported
first. Use it for a task that is not installed as a package: it also reaches the processes that `reproduce` starts.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latentalign.config import Recipe, read_recipe, shipped_recipes
from latentalign.core.registry import Registry, UnknownNameError
from latentalign.errors import CheckpointError, InputError
from latentalign.training.run import Run

if TYPE_CHECKING:
    from latentalign.tasks.base import Trained

PLUGINS = "LATENTALIGN_PLUGINS"
BUILT_IN = {
    "nmt": ("latentalign.tasks.nmt.task", "TRANSLATION"),
    "vqa": ("latentalign.tasks.vqa.task", "ANSWERING"),
    "alignment": ("latentalign.tasks.alignment.task", "ALIGNMENT"),
}
DEFAULT = "nmt"
"""The task of a recipe that neither names a task nor is recognised by one."""
TASK_OF_KEY = {"questions": "vqa"}
"""The task of a recipe without `task`, by a key of `[data.train]`. The first version wrote such recipes."""
ABILITIES = ("translate", "align", "answer", "ask")
"""Commands that use a trained model and that only some tasks have, each named as the method behind it."""
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
    """The task of a recipe: the one it names, else the one of its data, else translation."""
    table = recipe.merged_table
    name = table.get("task")
    if name is None:
        data = table.get("data")
        train = data.get("train") if isinstance(data, dict) else None
        keys = train if isinstance(train, dict) else ()
        name = next((TASK_OF_KEY[key] for key in keys if key in TASK_OF_KEY), DEFAULT)
    try:
        return TASKS[str(name)]
    except UnknownNameError as error:
        raise InputError(f"{recipe.name}: {error}") from None


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


def task_of_run(folder: Path) -> tuple[AnyTask, Recipe]:
    """The task of a run directory, and its recipe; every defect of the recipe is a CheckpointError."""
    recipe = Run(folder).read_recipe()
    try:
        return task_of_recipe(recipe), recipe
    except InputError as error:
        raise CheckpointError(f"{recipe.name}: {error}") from None


def load_run(
    folder: Path, *, device: str = "cpu", double: bool = False, ability: str | None = None
) -> tuple[AnyTask, Trained[Any, Any, Any]]:
    """The task and the model of a run; with an `ability`, a task that lacks it is an error."""
    task, recipe = task_of_run(folder)
    if ability is not None:
        require_ability(task, ability, str(folder))
    return task, task.load(folder, device=device, double=double, recipe=recipe)


def require_ability(task: AnyTask, ability: str, subject: str) -> None:
    """Raise unless a task has the method behind a command that only some tasks have."""
    if not hasattr(task, ability):
        able = " or ".join(other.title for other in TASKS.values() if hasattr(other, ability))
        own = " or ".join(f"`latentalign {name}`" for name in ABILITIES if hasattr(task, name))
        remedy = f"; use {own}" if own and ability in ABILITIES else ""
        command = ability.replace("_", "-")
        raise InputError(f"{subject}: `latentalign {command}` works for {able}; this is {task.title}{remedy}")


def select_serve_options(task: AnyTask, **options: Any) -> dict[str, Any]:
    """The options of `serve` that are not None; those that the task does not know are an error."""
    selected = {name: value for name, value in options.items() if value is not None}
    for name in selected:
        if name not in task.serve_options:
            able = " and ".join(other.title for other in TASKS.values() if name in other.serve_options)
            raise InputError(f"--{name} applies only to {able}; this run is {task.title}")
    return selected
