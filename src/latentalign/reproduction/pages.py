"""The pages of `reproduce` and `report`: tables, curves, pictures, and examples to look at."""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentalign.reproduction import plots
from latentalign.reproduction.experiment import Experiment, PageContext, Record
from latentalign.reproduction.plan import Plan
from latentalign.reproduction.results import Result, by_row
from latentalign.reproduction.tables import figure_table
from latentalign.training.recipe import TaskRecipe
from latentalign.training.run import Run
from latentalign.web.pages import Page, Table, table_sections


def reproduction_page(
    plan: Plan, results: Sequence[Result], tables: Sequence[Table], *, diagnosis: dict[str, Any] | None
) -> Page:
    """report.html of `reproduce`; its figures are also saved as files."""
    experiment = plan.experiment
    firsts = {name: records[0] for name, records in by_row(results).items()}
    runs = {name: Run(plan.run_folder(name, record["seed"])) for name, record in firsts.items()}
    context = PageContext(
        config=plan.config,
        split="test",
        results=firsts,
        examples=read_examples(plan, firsts.values()),
        featured=[name for name in experiment.featured_rows if name in firsts],
    )
    figures = {
        "Training curves": plots.training_curves({name: run.validations() for name, run in runs.items()}),
        **experiment.pictures(context),
    }
    if diagnosis is not None:
        figures["Gradient variance against time"] = plots.gradient_costs(diagnosis["gradients"])
    plots.save_figures(figures, plan.out / "figures")
    count = results[0].get(experiment.examples)
    size = f"{count:,} test {experiment.examples}, " if count is not None else ""
    return Page(
        title=f"Attention as a latent variable: {Path(plan.recipe).stem}",
        summary=f"{len(firsts)} rows, {size}recipe {plan.recipe}; "
        "pictures and figures show the first seed of each row",
        sections=[*table_sections(tables), *plots.picture_sections(figures)],
        viewers=experiment.viewers(context),
    )


def read_examples(plan: Plan, records: Sequence[Result] | Any) -> dict[str, Sequence[Record]]:
    """The examples in the details of each record's row, where there are details."""
    examples = {}
    for record in records:
        path = plan.details_file(record["row"], record["seed"])
        if path.is_file():
            examples[record["row"]] = json.loads(path.read_bytes())[plan.experiment.detail_examples]
    return examples


@dataclass(frozen=True)
class EvaluatedRun:
    """A run that `latentalign report` shows: its recipe, figures and examples."""

    run: Run
    config: TaskRecipe
    figures: Record
    """What `evaluate` measures."""
    examples: Sequence[Record]


def runs_page(experiment: Experiment, runs: Sequence[EvaluatedRun], split: str) -> Page:
    """The page of `latentalign report`: figures, curves and examples of runs that were trained one by one."""
    named: dict[str, EvaluatedRun] = {}
    for run in runs:
        named[unique_name(run.config.objective.name, run.run.folder, named)] = run
    results = [{**run.figures, "row": name} for name, run in named.items()]
    context = PageContext(
        config=runs[0].config,
        split=split,
        results={record["row"]: record for record in results},
        examples={name: run.examples for name, run in named.items()},
        featured=list(named),
    )
    table = figure_table("Runs", experiment.run_note, experiment.run_columns, results, paper={})
    validations = {name: run.run.validations() for name, run in named.items()}
    figures = {"Training curves": plots.training_curves(validations), **experiment.pictures(context)}
    count = results[0].get(experiment.examples)
    size = f"{count:,} {experiment.examples} of " if count is not None else ""
    return Page(
        title="latentalign: " + ", ".join(named),
        summary=f"{size}the {split} split",
        sections=[*table_sections([table]), *plots.picture_sections(figures)],
        viewers=experiment.viewers(context),
    )


def unique_name(wanted: str, folder: Path, taken: Container[str]) -> str:
    """A name for a run: its objective, followed by as much of its path as distinguishes it."""
    parts = [part for part in folder.absolute().parts if part != "/"]
    names = [wanted, *(f"{wanted} ({'/'.join(parts[-n:])})" for n in range(1, len(parts) + 1))]
    names += [f"{wanted} {n}" for n in range(2, 1000)]  # the same run twice
    return next(name for name in names if name not in taken)
