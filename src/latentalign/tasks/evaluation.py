"""Evaluations of runs, stored in the run: what was measured, on which data, with which model and options."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latentalign import config as recipes
from latentalign import storage
from latentalign.errors import InputError, StorageError
from latentalign.tasks.base import EvaluationOptions, Task, Trained

if TYPE_CHECKING:
    from latentalign.reproduction.pages import EvaluatedRun

VERSION = 1
Identity = dict[str, Any]


def evaluate_and_store(
    task: Task[Any, Any, Any], trained: Trained[Any, Any, Any], split: str, options: EvaluationOptions
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Every figure of a split, and the details if they are wanted. The figures are also written into the run."""
    identity = describe_evaluation(task, trained, split, options)
    figures, details = task.evaluate(trained, split, options)
    path = result_file(trained, split)
    kept = [entry for entry in read_results(path) if entry["identity"] != identity]
    kept = [entry for entry in kept if entry["identity"]["model"] == identity["model"]]
    document = {"version": VERSION, "results": [*kept, {"identity": identity, "figures": figures}]}
    try:
        path.parent.mkdir(exist_ok=True)
        storage.write_text(path, storage.format_json(document))
    except (StorageError, OSError) as error:  # the figures are known, even if the run cannot be written
        print(f"latentalign: the result is not stored: {error}", file=sys.stderr)
    return figures, details


def replace_files(
    task: Task[Any, Any, Any], trained: Trained[Any, Any, Any], split: str, changes: Sequence[str]
) -> Trained[Any, Any, Any]:
    """The same model with other files for a split, as `--set` names them. Nothing else may change."""
    if not changes:
        return trained
    for change in changes:
        if not change.strip().startswith(f"data.{split}."):
            raise InputError(
                f"--set {change}: only the files of the split can be changed, for example data.{split}.source=FILE; "
                "everything else belongs to the run"
            )
    return replace(trained, config=trained.run.read_recipe().build(task.recipe, changes))


def evaluate_for_page(
    task: Task[Any, Any, Any], trained: Trained[Any, Any, Any], split: str, *, examples: int
) -> tuple[EvaluatedRun, bool]:
    """The figures and some examples of a run, for `latentalign report`, and whether the figures were stored before."""
    from latentalign.reproduction.pages import EvaluatedRun

    options = EvaluationOptions(outputs=False)
    stored = find_stored(task, trained, split, options)
    figures = evaluate_and_store(task, trained, split, options)[0] if stored is None else stored
    shown = EvaluatedRun(trained.run, trained.config, figures, task.examples(trained, split, examples))
    return shown, stored is not None


def find_stored(
    task: Task[Any, Any, Any], trained: Trained[Any, Any, Any], split: str, options: EvaluationOptions
) -> dict[str, Any] | None:
    """The figures of an earlier evaluation of the same model on the same data with the same options.

    An evaluation that also scored outputs serves if outputs are not wanted.
    """
    results = read_results(result_file(trained, split))
    if not results:
        return None
    wanted = describe_evaluation(task, trained, split, options)
    accepted = [wanted] if options.outputs else [{**wanted, "outputs": True}, wanted]
    for identity in accepted:
        for entry in results:
            if entry["identity"] == identity:
                figures: dict[str, Any] = entry["figures"]
                return figures
    return None


def describe_evaluation(
    task: Task[Any, Any, Any], trained: Trained[Any, Any, Any], split: str, options: EvaluationOptions
) -> Identity:
    """Everything that the figures of an evaluation depend on. Details do not change the figures."""
    wanted = replace(options, details=None, predict=options.predict or trained.objective.predict)
    files = task.evaluation_files(trained.config, split)
    return {
        "split": split,
        "predict": wanted.predict,
        "beam": wanted.beam,
        "outputs": wanted.outputs or options.details is not None,
        "precision": str(next(trained.model.parameters()).dtype).removeprefix("torch."),
        "model": storage.fingerprint(trained.run.model),
        "recipe": storage.sha256(recipes.dump(trained.config).encode()),
        "data": {name: storage.fingerprint(path) for name, path in files.items() if path.is_file()},
        "latentalign": version("latentalign"),
    }


def result_file(trained: Trained[Any, Any, Any], split: str) -> Path:
    """Where the evaluations of a split are stored."""
    return trained.run.evaluation / f"{split}.json"


def read_results(path: Path) -> list[dict[str, Any]]:
    """The evaluations in a file. One that is absent, damaged or of another version contains none."""
    try:
        document = json.loads(path.read_bytes())
        results = document["results"] if document["version"] == VERSION else []
        return [
            entry for entry in results if entry["identity"]["model"] and isinstance(entry["figures"], dict)
        ]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return []
