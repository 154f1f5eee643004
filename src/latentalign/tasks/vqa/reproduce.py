"""The paper's question answering tables on any data: which rows, what is measured, and how it is shown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from latentalign import config as recipes
from latentalign.data import scenes
from latentalign.reproduction import curves, paper
from latentalign.reproduction.claims import judge
from latentalign.reproduction.rows import (
    Failure,
    Plan,
    Row,
    by_row,
    choose,
    recipe_of,
    require_test,
    settings_of,
    train_rows,
)
from latentalign.reproduction.tables import (
    Column,
    Table,
    claims_table,
    failures_table,
    figure_table,
    markdown,
)
from latentalign.reproduction.terminal import show_files, show_table
from latentalign.storage import write_bytes, write_json
from latentalign.tasks.vqa.data import read_split
from latentalign.tasks.vqa.figures import embedded_pictures, find_pictures, looking
from latentalign.tasks.vqa.metrics import answer_scores, majority
from latentalign.tasks.vqa.task import VQAConfig
from latentalign.training.run import Run
from latentalign.web.pages import Page, picture_sections, table_sections, write_page

OBJECTIVES = (
    "soft", "marginal", "hard-enum", "hard-sample", "variational-enum", "variational-sample", "rws", "gumbel", "vimco",
    "svi", "semi-amortized", "sum-and-sample",
)  # fmt: skip
ROWS = [*(Row(name, name) for name in OBJECTIVES), Row("question-only", "soft", ("model.blind=true",))]
FIGURES = (
    "nll", "nll_exact", "nll_soft", "nll_kmax5", "nll_elbo", "accuracy", "accuracy_official", "entropy_prior",
    "entropy_inferred", "elbo_gap", "jensen_gap", "grounding_prior", "grounding_inferred", "grounding_posterior",
    "questions", "answerable", "by_question_type", "by_answer_type",
)  # fmt: skip


def plan_for(
    data: str,
    rows: Sequence[str] | None,
    *,
    seeds: int,
    out: Path,
    overrides: Sequence[str] = (),
    jobs: int = 1,
    budget: float | None = None,
) -> Plan:
    """A plan for the scenes, a known data set or any recipe; scenes are generated into `out`."""
    chosen = choose(rows, ROWS) if rows else ROWS
    given = settings_of(overrides, budget)
    recipe = recipe_of(data, "vqa")
    if data == "scenes":
        given = [*generated(out / "data"), *given]
    return Plan(
        recipe=recipe,
        rows=chosen,
        seeds=range(seeds),
        out=out,
        figures=FIGURES,
        config=checked(recipe, given),
        overrides=tuple(given),
        jobs=jobs,
        details=("--sentences=40",),
        order=tuple(row.name for row in ROWS),
    )


def checked(recipe: str, overrides: Sequence[str]) -> VQAConfig:
    """The recipe, if it has all that rows need."""
    return require_test(recipe, recipes.load(recipe, VQAConfig, overrides))


def generated(folder: Path) -> list[str]:
    """The files of the scenes, made when they are not there, as settings of their recipe."""
    if not (folder / "features.test.safetensors").is_file():
        scenes.write(folder, overwrite=True)
    found = [f"data.{split}.images={folder / 'images'}" for split in scenes.SPLITS]
    for split in scenes.SPLITS:
        found += [
            f"data.{split}.{key}={folder / f'{key}.{split}.json'}" for key in ("questions", "annotations")
        ]
        found.append(f"data.{split}.features={folder / f'features.{split}.safetensors'}")
    return found


def reproduce(plan: Plan) -> tuple[list[dict[str, Any]], list[Failure]]:
    """Train what is not finished yet; write results.json, tables.md, figures/ and report.html."""
    results, failures = train_rows(plan)
    write_json(plan.out / "results.json", results)
    verdicts = judge(paper.VQA_CLAIMS, results, plan.details_of)
    write_json(plan.out / "claims.json", verdicts)
    tables = [*failures_table(failures), claims_table(verdicts), *tables_of(results), majority_table(plan)]
    write_bytes(plan.out / "tables.md", markdown(tables).encode())
    write_page(plan.out / "report.html", page_of(plan, results, tables))
    return results, failures


def tables_of(results: Sequence[dict[str, Any]]) -> list[Table]:
    """The paper's table 1 for questions, predictives, entropies and grounding, and kinds of questions."""
    results = [{**r, "answerable_share": 100 * r["answerable"] / r["questions"]} for r in results]
    beside = {"results": results, "paper": paper.VQA}
    kinds = sorted({kind for r in results for kind in r["by_question_type"]})
    frequent = sorted(
        kinds, key=lambda k: -results[0]["by_question_type"].get(k, {"questions": 0})["questions"]
    )
    by_kind = [
        {**r, **{f"kind {k}": r["by_question_type"].get(k, {}).get("accuracy") for k in frequent[:8]}}
        for r in results
    ]
    return [
        figure_table(
            "Table 1: objectives",
            "Negative log-likelihood of human answers in nats, each row's own: soft attention under soft attention, "
            "all others exact. Accuracy is the paper's min(votes / 3, 1) in per cent, exact match where a question has "
            "one answer; the official one leaves each human out in turn. The likelihood is of answers that can be "
            "given: questions without one are left out of it, and count as wrong in the accuracy. The paper's figures "
            "are of VQA 2.0.",
            [
                Column("NLL", "nll", 3), Column("paper's NLL", "nll", 2, paper=True), Column("accuracy", "accuracy", 2),
                Column("paper's accuracy", "accuracy", 2, paper=True), Column("official", "accuracy_official", 2),
                Column("% answerable", "answerable_share", 1), Column("bound", "nll_elbo", 3),
                Column("minutes", "seconds", 1, scale=1 / 60),
            ],
            **beside,
        ),
        figure_table(
            "Predictives",
            "The same models tested in other ways.",
            [Column("exact", "nll_exact", 3), Column("K-max 5", "nll_kmax5", 3), Column("soft", "nll_soft", 3)],
            **beside,
        ),
        figure_table(
            "Entropy of the prior",
            "In nats: lower is more certain.",
            [
                Column("prior", "entropy_prior", 2), Column("paper's", "entropy_prior", 2, paper=True),
                Column("inferred q", "entropy_inferred", 2),
            ],
            **beside,
        ),
        figure_table(
            "Grounding",
            "Per cent of questions with gold regions whose likeliest region is one of them, given the answer.",
            [Column(n, f"grounding_{n}", 1, scale=100) for n in ("prior", "inferred", "posterior")],
            **beside,
        ),
        figure_table(
            "Accuracy by kind of question",
            "The most frequent kinds.",
            [Column(k, f"kind {k}", 1) for k in frequent[:8]],
            by_kind,
            paper={},
        ),
    ]  # fmt: skip


def majority_table(plan: Plan) -> Table:
    """What the most frequent answer of a question's type would reach."""
    data = checked(plan.recipe, plan.overrides).data
    assert data.test is not None
    train, test = (read_split(split, seed=data.split_seed) for split in (data.train, data.test))
    scores = answer_scores(majority([e.annotation for e in train], [e.annotation for e in test]), test)
    record = {"row": "most frequent answer of the type", **scores}
    columns = [Column("accuracy", "accuracy", 2), Column("official", "accuracy_official", 2)]
    return figure_table("Without a model", "A yardstick.", columns, [record], paper={})


def page_of(plan: Plan, results: Sequence[dict[str, Any]], tables: Sequence[Table]) -> Page:
    """report.html: tables, curves, and pictures with what the models look at and would say."""
    firsts = {name: records[0] for name, records in by_row(results).items()}
    histories = {name: Run(plan.run(name, r["seed"])).validations() for name, r in firsts.items()}
    figures = {"Training curves": curves.training_curves(histories)}
    test = checked(plan.recipe, plan.overrides).data.test
    looks: dict[str, Any] = {}
    pictures: dict[int, Path] = {}
    if test is not None and test.images is not None and test.images.is_dir():
        pictures = find_pictures(test.images)
        for name, record in firsts.items():
            path = plan.details_of(name, record["seed"])
            if path.is_file():
                looks[name] = json.loads(path.read_bytes())["looks"]
    for name in ("soft", "marginal", "variational-sample"):
        if name in looks:
            figures[f"Where {name} looks"] = looking(looks[name], pictures)
    curves.save_all(figures, plan.out / "figures")
    return Page(
        title=f"Attention as a latent variable: {Path(plan.recipe).stem}",
        summary=f"{len(firsts)} rows, {results[0]['questions']:,} test questions, recipe {plan.recipe}; "
        "pictures and figures are of each row's first seed",
        sections=[*table_sections(tables), *picture_sections(figures)],
        looks=looks,
        pictures=embedded_pictures(looks, pictures),
    )


SHOWN = {
    "NLL": Column("", "nll", 3), "acc.": Column("", "accuracy", 1), "VQA": Column("", "accuracy_official", 1),
    "H(p)": Column("", "entropy_prior", 2), "p": Column("", "grounding_prior", 2),
    "q": Column("", "grounding_inferred", 2), "post.": Column("", "grounding_posterior", 2),
    "sec.": Column("", "seconds", 0),
}  # fmt: skip
"""What fits a terminal of 80 columns."""


def show(plan: Plan, results: Sequence[dict[str, Any]]) -> None:
    """The table, and where the files are."""
    console = Console()
    show_table(console, f"{plan.recipe}, test set", SHOWN, results)
    console.print(
        "acc.: min(votes / 3, 1); VQA: the official accuracy; H(p): entropy of the prior; p, q, post.: share of "
        "questions\nwhose likeliest region under prior, inferred q and exact posterior is a gold one\n",
        highlight=False,
    )
    show_files(console, plan.out)
