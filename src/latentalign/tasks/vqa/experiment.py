"""The experiment of question answering: the rows, figures, tables and claims of the paper, and what its pages show."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from latentalign.core.objectives import OBJECTIVES
from latentalign.data import scenes
from latentalign.reproduction.experiment import (
    Experiment,
    GeneratedData,
    PageContext,
    Record,
    Row,
    objective_rows,
    paper_objectives,
)
from latentalign.reproduction.tables import Column, FigureTable, figure_table
from latentalign.tasks.vqa import paper
from latentalign.tasks.vqa.baselines import majority, majority_of_type, question_only
from latentalign.tasks.vqa.data import read_split
from latentalign.tasks.vqa.embed import embed_pictures
from latentalign.tasks.vqa.evaluate import answer_scores
from latentalign.tasks.vqa.figures import draw_looks, find_pictures
from latentalign.tasks.vqa.recipe import VQAConfig
from latentalign.training.recipe import TaskRecipe
from latentalign.web.pages import Table, Viewer, region_viewer

OVER_REGIONS = [
    name
    for name in (*paper_objectives(1), *paper_objectives(3))
    if OBJECTIVES[name]().distribution == "categorical"
]
"""Objectives for a model whose alignments are single regions."""
ROWS = (*objective_rows(OVER_REGIONS), Row("question-only", "soft", ("model.blind=true",)))
MOST_KINDS = 8
"""Kinds of questions in the table of accuracies."""
TABLES = (
    FigureTable(
        "Table 1: objectives",
        "Negative log-likelihood of human answers in nats, under each row's own predictive: soft attention for soft, "
        "the exact sum for all others. Accuracy is the paper's min(votes / 3, 1) in per cent, or exact match where a "
        "question has one answer; the official accuracy leaves each human out in turn. The likelihood covers answers "
        "that the model can give: questions without one are left out of it, and count as wrong in the accuracy. The "
        "paper's figures are for VQA 2.0.",
        (
            Column("NLL", "nll", 3),
            Column("paper's NLL", "nll", 2, paper=True),
            Column("accuracy", "accuracy", 2),
            Column("paper's accuracy", "accuracy", 2, paper=True),
            Column("official", "accuracy_official", 2),
            Column(
                "% answerable",
                "answerable_share",
                1,
                value=lambda record: 100 * record["answerable"] / record["questions"],
            ),
            Column("bound", "nll_elbo", 3),
            Column("minutes", "seconds", 1, scale=1 / 60),
        ),
    ),
    FigureTable(
        "Predictives",
        "The same models, tested with other predictives.",
        (Column("exact", "nll_exact", 3), Column("K-max 5", "nll_kmax5", 3), Column("soft", "nll_soft", 3)),
    ),
    FigureTable(
        "Entropy of the prior",
        "In nats; lower is more certain.",
        (
            Column("prior", "entropy_prior", 2),
            Column("paper's", "entropy_prior", 2, paper=True),
            Column("inferred q", "entropy_inferred", 2),
        ),
    ),
    FigureTable(
        "Grounding",
        "Per cent of questions with gold regions whose likeliest region, given the answer, is one of them.",
        tuple(Column(name, f"grounding_{name}", 1, scale=100) for name in ("prior", "inferred", "posterior")),
    ),
)


def extra_tables(config: TaskRecipe, results: Sequence[Record]) -> list[Table]:
    """Accuracy by kind of question, and of the most frequent answer."""
    assert isinstance(config, VQAConfig)
    return [kinds_table(results), baselines_table(config)]


def kinds_table(results: Sequence[Record]) -> Table:
    """Accuracy on the most frequent kinds of questions."""
    first = results[0]["by_question_type"]
    kinds = sorted({kind for record in results for kind in record["by_question_type"]})
    frequent = sorted(kinds, key=lambda kind: -first.get(kind, {"questions": 0})["questions"])
    columns = [kind_column(kind) for kind in frequent[:MOST_KINDS]]
    return figure_table(
        "Accuracy by kind of question", "The most frequent kinds.", columns, results, paper={}
    )


def kind_column(kind: str) -> Column:
    """Accuracy on one kind of question."""

    def read(record: Any) -> float | None:
        accuracy: float | None = record["by_question_type"].get(kind, {}).get("accuracy")
        return accuracy

    return Column(kind, f"kind {kind}", 1, value=read)


def baselines_table(config: VQAConfig) -> Table:
    """The accuracy of answers that need no picture."""
    data = config.data
    assert data.test is not None
    train, test = (read_split(split, seed=data.split_seed) for split in (data.train, data.test))
    guesses = {
        "most frequent answer": majority(train, test),
        "most frequent answer of the type": majority_of_type(train, test),
        "most frequent answer to the first words": question_only(train, test),
    }
    records = [{"row": name, **answer_scores(guess, test)} for name, guess in guesses.items()]
    columns = [Column("accuracy", "accuracy", 2), Column("official", "accuracy_official", 2)]
    return figure_table("Without a model", "For comparison.", columns, records, paper={})


def write_scenes(folder: Path) -> None:
    """Write generated pictures, questions and features."""
    scenes.write(folder, overwrite=True)


def scenes_settings(folder: Path) -> list[str]:
    """The files of the scenes as overrides of their recipe."""
    settings = [f"data.{split}.images={folder / 'images'}" for split in scenes.SPLITS]
    for split in scenes.SPLITS:
        settings += [
            f"data.{split}.{key}={folder / f'{key}.{split}.json'}" for key in ("questions", "annotations")
        ]
        settings.append(f"data.{split}.features={folder / f'features.{split}.safetensors'}")
    return settings


def picture_folder(context: PageContext) -> Path | None:
    """The folder of a split's pictures, if the recipe names one."""
    folder: Path | None = getattr(getattr(context.config, "data", None), context.split).images
    return folder


def picture_files(context: PageContext) -> dict[int, Path]:
    """The picture files of a split by image id; empty when there is no folder of pictures."""
    folder = picture_folder(context)
    return find_pictures(folder) if folder is not None and folder.is_dir() else {}


def explain_missing_pictures(context: PageContext) -> str:
    """Why a page has no pictures, and what to do."""
    folder, key = picture_folder(context), f"data.{context.split}.images"
    if folder is None:
        return f"The recipe does not name the folder of the pictures; set {key}."
    if not folder.is_dir():
        return f"{key} is {folder}, which is not a folder; put the pictures there, or a link to them."
    return f"In {folder} ({key}), no file name ends in this number."


def pictures(context: PageContext) -> dict[str, Figure]:
    """Where featured models look in a few pictures."""
    files = picture_files(context)
    named = [name for name in context.featured if name in context.examples]
    return {f"Where {name} looks": draw_looks(context.examples[name], files) for name in named if files}


def viewers(context: PageContext) -> list[Viewer]:
    """Regions that the models look at, on their pictures, or on a grey area if there is no picture."""
    embedded = embed_pictures(context.examples, picture_files(context))
    return [region_viewer(context.examples, embedded, missing=explain_missing_pictures(context))]


EXPERIMENT = Experiment(
    task="vqa",
    recipe_model=VQAConfig,
    rows=ROWS,
    figures=(
        "nll", "nll_exact", "nll_soft", "nll_kmax5", "nll_elbo", "accuracy", "accuracy_official", "entropy_prior",
        "entropy_inferred", "elbo_gap", "jensen_gap", "grounding_prior", "grounding_inferred", "grounding_posterior",
        "questions", "answerable", "by_question_type", "by_answer_type",
    ),
    examples="questions",
    tables=TABLES,
    extra_tables=extra_tables,
    paper=paper.FIGURES,
    claims=paper.CLAIMS,
    details=("--sentences=40",),
    detail_examples="looks",
    featured_rows=("soft", "marginal", "variational-sample"),
    pictures=pictures,
    viewers=viewers,
    terminal_columns=(
        Column("NLL", "nll", 3), Column("acc.", "accuracy", 1), Column("VQA", "accuracy_official", 1),
        Column("H(p)", "entropy_prior", 2), Column("p", "grounding_prior", 2), Column("q", "grounding_inferred", 2),
        Column("post.", "grounding_posterior", 2), Column("sec.", "seconds", 0),
    ),
    terminal_note="acc.: min(votes / 3, 1); VQA: the official accuracy; H(p): entropy of the prior\n"
    "p, q, post.: share of questions whose likeliest region under prior, inferred q and exact posterior is gold",
    run_columns=(
        Column("NLL", "nll", 3), Column("exact", "nll_exact", 3), Column("K-max 5", "nll_kmax5", 3),
        Column("soft", "nll_soft", 3), Column("accuracy", "accuracy", 2), Column("official", "accuracy_official", 2),
        Column("entropy of p", "entropy_prior", 2), Column("grounding of p", "grounding_prior", 2),
        Column("of q", "grounding_inferred", 2), Column("of posterior", "grounding_posterior", 2),
    ),
    run_note="Negative log-likelihood is under each run's own predictive, in nats.",
    data=GeneratedData("scenes", "vqa/scenes", write_scenes, "features.test.safetensors", scenes_settings),
)  # fmt: skip
