"""Warm starts that several rows share."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from latentalign import config as recipes
from latentalign.reproduction.experiment import Row
from latentalign.reproduction.plan import Plan
from latentalign.reproduction.processes import run_command
from latentalign.storage import write_text
from latentalign.training.recipe import TaskRecipe
from latentalign.training.run import Run
from latentalign.training.warm_start import warm_start_recipe


class WarmStarts:
    """Training runs on an easier objective, made once for all rows of a seed.

    A row finds a copy in its own run, as if it had trained it there. Rows that change more than their objective or the
    search train their own.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.locks = {seed: Lock() for seed in plan.seeds}
        self.trained: set[Path] = set()

    def provide(self, row: Row, seed: int, report: Callable[[Path], None]) -> None:
        """Copy the warm start of a row into its run. The first row that asks trains it, and the others wait."""
        own = Run(self.plan.run_folder(row.name, seed)).warm_start
        recipe = self.recipe(row, seed)
        special = any(not o.startswith(("objective.", "search.")) for o in row.overrides)
        if recipe is None or special or own.exists():
            return
        shared = self.plan.warm_start_folder(recipe.objective.name, seed)
        with self.locks[seed]:
            if shared not in self.trained:
                self.train(recipe, shared, report)
                self.trained.add(shared)
        partial = own.with_name(f"{own.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(shared, partial, ignore=shutil.ignore_patterns("cache"))
        partial.rename(own)

    def recipe(self, row: Row, seed: int) -> TaskRecipe | None:
        """The recipe of a row's warm start; None when it has none."""
        plan = self.plan
        own = [f"objective.name={row.objective}", f"training.seed={seed}"]
        settings = [*plan.overrides, *row.overrides, *own]
        return warm_start_recipe(recipes.load(plan.recipe, type(plan.config), settings))

    def train(self, recipe: TaskRecipe, folder: Path, report: Callable[[Path], None]) -> None:
        """Train a warm start into the folder that the rows of a seed share."""
        path = folder.with_suffix(".toml")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, recipes.dump(recipe))
        command = ["train", str(path), f"--out={folder}", "--resume", "--json"]
        run_command(command, self.plan.log_file(f"warm-start-{folder.name}"), lambda: report(folder))
