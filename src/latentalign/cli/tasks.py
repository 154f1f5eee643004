"""Which task a recipe or a run is of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from latentalign import config as recipes
from latentalign.errors import InputError
from latentalign.training.run import Run


def is_vqa(recipe: str | Path) -> bool:
    """Whether a recipe asks questions about pictures: its training split has them."""
    train = recipes.read_recipe(recipe).table.get("data", {})
    train = train.get("train", {}) if isinstance(train, dict) else {}
    return isinstance(train, dict) and "questions" in train


def craft_of(recipe: str) -> Any:
    """What trains a recipe."""
    if is_vqa(recipe):
        from latentalign.tasks.vqa.task import ANSWERING

        return ANSWERING
    from latentalign.tasks.nmt.task import TRANSLATION

    return TRANSLATION


def is_vqa_run(folder: Path) -> bool:
    """Whether a run directory holds a question answering model; whatever is wrong with it, its reader will say."""
    try:
        return Run(folder).config.is_file() and is_vqa(Run(folder).config)
    except InputError:
        return False


def require_nmt(folder: Path, what: str) -> None:
    """Raise when a run is of question answering, where only translation will do."""
    if is_vqa_run(folder):
        raise InputError(f"{folder}: a question answering model cannot {what}; `latentalign answer` uses it")
