"""Finding the task of a run or a recipe for a command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from latentalign.errors import InputError

if TYPE_CHECKING:
    from latentalign.tasks.base import Trained
    from latentalign.tasks.registry import AnyTask


ABILITIES = ("translate", "align", "answer")
"""Commands that use a trained model and that only some tasks have, each named as the method behind it."""


def load_run(
    run: Path, *, device: str = "cpu", double: bool = False, ability: str | None = None
) -> tuple[AnyTask, Trained[Any, Any, Any]]:
    """The task and the model of a run; with an `ability`, a task that lacks it is an error."""
    from latentalign.tasks.registry import task_of_run

    task = task_of_run(run)
    if ability is not None:
        require_ability(task, ability, str(run))
    return task, task.load(run, device=device, double=double)


def require_ability(task: AnyTask, ability: str, subject: str) -> None:
    """Raise unless a task has the method behind a command that only some tasks have."""
    from latentalign.tasks.registry import TASKS

    if not hasattr(task, ability):
        able = " or ".join(other.title for other in TASKS.values() if hasattr(other, ability))
        own = " or ".join(f"`latentalign {name}`" for name in ABILITIES if hasattr(task, name))
        remedy = f"; use {own}" if own and ability in ABILITIES else ""
        command = ability.replace("_", "-")
        raise InputError(f"{subject}: `latentalign {command}` works for {able}; this is {task.title}{remedy}")


def given_options(task: AnyTask, **options: Any) -> dict[str, Any]:
    """The options of `serve` that were given; those that the task does not know are an error."""
    from latentalign.tasks.registry import TASKS

    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if name not in task.serve_options:
            able = " and ".join(other.title for other in TASKS.values() if name in other.serve_options)
            raise InputError(f"--{name} applies only to {able}; this run is {task.title}")
    return given
