"""What one call of `reproduce` trains, with which settings, and where its files are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from latentalign import config as recipes
from latentalign.core.objectives import OBJECTIVES
from latentalign.errors import InputError
from latentalign.reproduction.experiment import Experiment, GeneratedData, Row
from latentalign.training.recipe import TaskRecipe

SLOWEST = ("variational-enum", "sum-and-sample", "relaxed", "marginal", "hard-enum", "semi-amortized", "svi")
"""Objectives whose training runs take long, the longest first."""
NEUTRAL = {"objective.name", "training.seed", "training.threads", "training.checkpoint_steps", "training.log_steps",
           "training.device", "training.logger", "training.tensorboard"}  # fmt: skip
"""Settings that belong to the row or change no figure."""


@dataclass(frozen=True)
class Plan:
    """A recipe, rows and seeds to train, and the folder that receives everything."""

    experiment: Experiment
    recipe: str
    rows: Sequence[Row]
    seeds: Sequence[int]
    out: Path
    config: TaskRecipe
    """The recipe after the overrides that all rows share."""
    overrides: tuple[str, ...] = ()
    jobs: int = 1
    """Rows trained at a time."""
    ablations: bool = False
    generated: GeneratedData | None = None
    """The generated data set that the rows are trained on."""

    def run_folder(self, row: str, seed: int) -> Path:
        return self.out / "runs" / f"{row}-{seed}"

    def result_file(self, row: str, seed: int) -> Path:
        """The file that exists once a row is trained and evaluated."""
        return self.out / "rows" / f"{row}-{seed}.json"

    def details_file(self, row: str, seed: int) -> Path:
        return self.out / "details" / f"{row}-{seed}.json"

    def settings_file(self, row: str, seed: int) -> Path:
        """The file that says how a row is trained. It is written before training starts."""
        return self.out / "settings" / f"{row}-{seed}.json"

    def warm_start_folder(self, objective: str, seed: int) -> Path:
        """The run of a warm start that the rows of a seed share."""
        return self.out / "warm-starts" / f"{objective}-{seed}"

    def log_file(self, name: str) -> Path:
        return self.out / "logs" / f"{name}.log"

    def write_data(self) -> None:
        """Write the generated data set, if the rows are trained on it and its files do not exist."""
        if self.generated is not None:
            self.generated.prepare(self.out / "data")

    @property
    def row_order(self) -> list[str]:
        """Names of all rows that results may have, in the order of the tables."""
        known = self.experiment.ablations if self.ablations else self.experiment.known_rows
        return [row.name for row in known]

    @property
    def epochs(self) -> int:
        return self.config.training.epochs

    @property
    def device(self) -> str:
        """The device that trains, evaluates and diagnoses rows."""
        return self.config.training.device

    def training_runs(self) -> list[tuple[Row, int]]:
        """Every row with every seed. With several jobs the slowest start first, so that none runs alone at the end."""
        runs = [(row, seed) for row in self.rows for seed in self.seeds]
        if self.jobs == 1:
            return runs
        place = {name: i for i, name in enumerate(SLOWEST)}
        return sorted(runs, key=lambda run: place.get(run[0].objective, len(SLOWEST)))

    def settings(self, row: Row) -> dict[str, Any]:
        """What decides a row's figures: the settings that all rows share, and the row's own."""
        shared = recipes.flatten(self.config)
        shared = {name: value for name, value in shared.items() if name not in NEUTRAL}
        text = json.dumps(shared).replace(str(self.out), "OUT")  # the folder may be moved
        return {"shared": json.loads(text), "own": [row.objective, *sorted(row.overrides)]}


def make_plan(
    experiment: Experiment,
    data: str | None = None,
    rows: Sequence[str] | None = None,
    *,
    out: Path,
    seeds: int = 1,
    overrides: Sequence[str] = (),
    jobs: int = 1,
    budget: float | None = None,
    ablations: bool = False,
) -> Plan:
    """A plan for the generated data set (the default), a shipped recipe or a recipe file."""
    if ablations and not experiment.ablations:
        raise InputError(f"the task {experiment.task} has no ablations; leave --ablations out")
    default = experiment.ablations if ablations else experiment.rows
    known = experiment.ablations if ablations else experiment.known_rows
    chosen = choose_rows(rows, known) if rows else list(default)
    options, settings = separate_options(overrides)
    settings += [f"training.max_minutes={budget}"] if budget else []
    generated = experiment.data
    if data is None and generated is None:
        raise InputError(f"the task {experiment.task} generates no data; name a recipe with --data")
    if generated is not None and data not in (None, generated.name):
        generated = None
    if generated is not None:
        recipe = generated.recipe
        settings = [*generated.settings(out / "data"), *settings]
    else:
        assert data is not None
        recipe = recipe_name(data, experiment.task)
    config = recipes.load(recipe, experiment.recipe_model, settings)
    require_test_set(recipe, config)
    chosen = add_options(chosen, options)
    for row in chosen if options else []:  # a wrong value is reported before anything is trained
        own = [f"objective.name={row.objective}", *row.overrides]
        recipes.load(recipe, experiment.recipe_model, [*settings, *own])
    return Plan(
        experiment,
        recipe,
        chosen,
        range(seeds),
        out,
        config=config,
        overrides=tuple(settings),
        jobs=jobs,
        ablations=ablations,
        generated=generated,
    )


def separate_options(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """The overrides that are options of an objective, and all others."""
    options = [text for text in overrides if option_name(text) not in (None, "name")]
    return options, [text for text in overrides if text not in options]


def option_name(override: str) -> str | None:
    """The option of an objective that an override sets; None if it sets something else."""
    table, _, name = override.partition("=")[0].strip().partition(".")
    return name if table == "objective" else None


def add_options(rows: Sequence[Row], options: Sequence[str]) -> list[Row]:
    """The rows with those options that their objectives have; a row's own overrides come last, so they win."""
    for text in options:
        if not any(option_name(text) in OBJECTIVES[row.objective].options for row in rows):
            names = ", ".join(row.name for row in rows)
            raise InputError(f"--set {text}: none of the rows has this option: {names}")
    return [
        replace(row, overrides=(*(o for o in options if option_name(o) in known), *row.overrides))
        for row in rows
        for known in [OBJECTIVES[row.objective].options]
    ]


def recipe_name(data: str, task: str) -> str:
    """The recipe of a data set: a file, or the shipped recipe of that name."""
    return data if data.endswith(".toml") or "/" in data else f"{task}/{data}"


def require_test_set(recipe: str, config: TaskRecipe) -> None:
    """Raise when a recipe could have a test set and has none."""
    if getattr(getattr(config, "data", None), "test", "not a split") is None:
        raise InputError(f"{recipe}: rows are compared on a test set; add [data.test] to the recipe")


def choose_rows(names: Sequence[str], known: Sequence[Row]) -> list[Row]:
    """Rows by name."""
    by_name = {row.name: row for row in known}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise InputError(f"unknown row {unknown[0]!r}; choose from {', '.join(by_name)}")
    return [by_name[name] for name in names]


def require_same_settings(plan: Plan) -> None:
    """Raise when the folder holds rows that were trained, or started, with other settings."""
    planned = {(row.name, seed): row for row, seed in plan.training_runs()}
    names = {path.stem for folder in ("rows", "settings") for path in (plan.out / folder).glob("*.json")}
    for name in sorted(names):
        row, _, seed = name.rpartition("-")
        path = plan.settings_file(row, int(seed))
        advice = f"choose another --out, or delete rows, settings and runs of {name} there to train it again"
        if not path.is_file():
            raise InputError(f"{path} is missing, so the settings of {name} are not known; {advice}")
        changes = setting_changes(plan, json.loads(path.read_bytes()), planned.get((row, int(seed))))
        if changes:
            changed = "; ".join(changes)
            raise InputError(f"{path}: {name} was trained with other settings ({changed}); {advice}")


def setting_changes(plan: Plan, before: dict[str, Any], row: Row | None) -> list[str]:
    """The settings that a row had and the plan changes; `row` is None when the plan does not contain it.

    A setting that did not exist when the row was trained had its default value.
    """
    now = plan.settings(row or Row("", ""))
    old = dict(before["shared"])
    for key in now["shared"].keys() - old.keys():
        old[key] = recipes.default_value(plan.config, key)
    changes = [
        f"{key} = {old.get(key)!r}, now {now['shared'].get(key)!r}"
        for key in sorted(old.keys() | now["shared"].keys())
        if old.get(key) != now["shared"].get(key)
    ]
    if row is not None and before["own"] != now["own"]:
        changes.append(f"{' '.join(before['own'])}, now {' '.join(now['own'])}")
    return changes
