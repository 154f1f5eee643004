"""`latentalign reproduce`: train the rows of an experiment, then write results, tables, figures and a page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from latentalign.errors import Interrupted
from latentalign.interrupts import first_interruption
from latentalign.progress import inform, warn
from latentalign.reproduction.claims import judge_claims
from latentalign.reproduction.pages import reproduction_page
from latentalign.reproduction.plan import Plan
from latentalign.reproduction.processes import CommandFailed, run_command
from latentalign.reproduction.results import Result
from latentalign.reproduction.rows import Failure, count_finished, train_rows
from latentalign.reproduction.tables import claims_table, failures_table, markdown
from latentalign.storage import write_json, write_text
from latentalign.web.pages import Table, write_page

DRAWS = 20
"""Draws of every estimator in the diagnosis of a page."""


def reproduce(plan: Plan) -> tuple[list[dict[str, Any]], list[Failure]]:
    """Train all rows that are not finished and write everything; the results, and the rows that failed."""
    try:
        results, failures = train_rows(plan)
        if plan.ablations:
            write_ablations(plan, results, failures)
        else:
            write_results(plan, results, failures)
    except KeyboardInterrupt as error:
        raise Interrupted(first_interruption(error).number, count_finished(plan)) from None
    return results, failures


def write_ablations(plan: Plan, results: Sequence[Result], failures: Sequence[Failure]) -> None:
    """Write ablations.json and ablations.md."""
    experiment = plan.experiment
    write_json(plan.out / "ablations.json", results)
    declared = [experiment.ablation_table] if experiment.ablation_table is not None else []
    tables = [*(table.build(results, {}) for table in declared), *failures_table(failures)]
    write_text(plan.out / "ablations.md", markdown(tables))


def write_results(plan: Plan, results: Sequence[Result], failures: Sequence[Failure]) -> None:
    """Write results.json, claims.json, tables.md, figures/ and report.html."""
    experiment = plan.experiment
    write_json(plan.out / "results.json", results)
    verdicts = judge_claims(
        experiment.claims, results, plan.details_file, corpus_scores=experiment.corpus_scores
    )
    write_json(plan.out / "claims.json", [verdict.to_json() for verdict in verdicts])
    tables = [*failures_table(failures), *([claims_table(verdicts)] if experiment.claims else [])]
    tables += result_tables(plan, results)
    write_text(plan.out / "tables.md", markdown(tables))
    diagnosis = diagnose_once(plan, results)
    write_page(plan.out / "report.html", reproduction_page(plan, results, tables, diagnosis=diagnosis))


def result_tables(plan: Plan, results: Sequence[Result]) -> list[Table]:
    """The tables of an experiment; those without any figure are left out."""
    experiment = plan.experiment
    tables = [table.build(results, experiment.paper) for table in experiment.tables]
    if experiment.extra_tables is not None:
        tables += experiment.extra_tables(plan.config, results)
    return [table for table in tables if len(table.headings) > 1]


def diagnose_once(plan: Plan, results: Sequence[Result]) -> dict[str, Any] | None:
    """`latentalign diagnose` of the first row that the experiment names for it, computed once per run."""
    seeds = {record["row"]: record["seed"] for record in reversed(results)}
    name = next((n for n in plan.experiment.diagnosed_rows if n in seeds), None)
    if name is None:
        return None
    run, folder = plan.run_folder(name, seeds[name]), plan.out / "diagnose"
    known = read_diagnosis(folder / "diagnose.json")
    if known.get("run") == str(run):
        return known
    options = [f"--out={folder}", f"--draws={DRAWS}", "--json", f"--device={plan.device}"]
    inform(f"diagnosing {name}")
    try:
        return run_command(["diagnose", str(run), *options], plan.log_file("diagnose"), lambda: None)
    except CommandFailed as error:
        warn(f"no diagnosis: {error}")
        return None


def read_diagnosis(path: Path) -> dict[str, Any]:
    """An earlier diagnosis; empty when there is none."""
    diagnosis: dict[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {}
    return diagnosis
