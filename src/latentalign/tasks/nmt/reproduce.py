"""The paper's translation tables on any parallel text: which rows, what is measured, and how it is shown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from latentalign import config as recipes
from latentalign.core.objectives import OBJECTIVES
from latentalign.data import demo
from latentalign.reproduction import curves, paper
from latentalign.reproduction.claims import judge
from latentalign.reproduction.rows import (
    Failure,
    Plan,
    Row,
    RowFailed,
    by_row,
    child,
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
from latentalign.tasks.nmt.align import encode_pairs, in_order
from latentalign.tasks.nmt.figures import draw_in_terminal, paper_figures
from latentalign.tasks.nmt.link_formats import read_gold
from latentalign.tasks.nmt.task import NMTConfig, Trained
from latentalign.textfiles import read_parallel
from latentalign.training.run import Run
from latentalign.web.pages import Page, picture_sections, table_sections, write_page

JENSEN_FIRST = ("training.warm_start_epochs=3", "training.warm_start_objective=relaxed-hard")
TABLE_1 = (
    "soft",
    "marginal",
    "hard-enum",
    "hard-sample",
    "relaxed",
    "variational-enum",
    "variational-sample",
)
ALTERNATIVES = ("rws", "gumbel", "vimco", "svi", "semi-amortized", "sum-and-sample")
ROWS = [Row(name, name, JENSEN_FIRST if name == "relaxed" else ()) for name in (*TABLE_1, *ALTERNATIVES)]
OBJECTIVE_ROWS = {row.name for row in ROWS}
CERTIFIED = [
    Row("marginal-certified", "marginal", ("objective.tolerance=0.01",)),
    Row("marginal-certified-sampled", "marginal", ("objective.tolerance=0.01", "objective.tail=sample")),
]
"""Rows that are trained when they are named."""
TEMPERATURES = (0.1, 0.3, 0.5, 1.0)
ABLATIONS = [
    Row("reinforce-soft-baseline", "variational-sample", ("objective.baseline=soft",)),
    Row("reinforce-no-baseline", "variational-sample", ("objective.baseline=none",)),
    Row("reinforce-learned-baseline", "variational-sample", ("objective.baseline=learned",)),
    *(Row(f"gumbel-temperature-{t}", "gumbel", (f"objective.temperature={t}",)) for t in TEMPERATURES),
    Row("attention-mlp", "variational-enum", ("model.attention=mlp",)),
    Row("attention-bilinear", "variational-enum", ("model.attention=bilinear",)),
    Row("no-length-penalty", "variational-enum", ("search.length_penalty=0.0",)),
    Row("relaxed-warm-start", "relaxed", JENSEN_FIRST),
    Row("relaxed-no-warm-start", "relaxed", ("training.warm_start_epochs=0",)),
]
FIGURES = (
    "ppl", "ppl_exact", "ppl_soft", "ppl_kmax5", "ppl_elbo", "bleu", "entropy_prior", "entropy_inferred", "elbo_gap",
    "jensen_gap", "aer_prior", "aer_inferred", "aer_posterior", "chrf", "bleu_signature", "tokens", "sentences",
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
    ablations: bool = False,
) -> Plan:
    """A plan for the demo, a known corpus or any recipe; the demo's data is generated into `out`."""
    known = ABLATIONS if ablations else ROWS
    unlisted = [Row(name, name) for name in OBJECTIVES if name not in OBJECTIVE_ROWS]
    others = [] if ablations else [*CERTIFIED, *unlisted]
    chosen = choose(rows, [*known, *others]) if rows else known
    given = settings_of(overrides, budget)
    recipe = recipe_of(data, "nmt")
    if data == "demo":
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
        details=("--sentences=50",),
        copied=("kmax_curve", "ppl_kmax1", "bleu_kmax5"),
        order=tuple(row.name for row in [*known, *others]),
    )


def checked(recipe: str, overrides: Sequence[str]) -> NMTConfig:
    """The recipe, if it has all that rows need."""
    return require_test(recipe, recipes.load(recipe, NMTConfig, overrides))


def generated(folder: Path) -> list[str]:
    """The demo's files, made when they are not there, as settings of its recipe."""
    if not (folder / "test.gold").is_file():
        demo.write(folder, overwrite=True)
    return [
        f"data.{split}.{key}={folder / f'{split}.{end}'}"
        for split in ("train", "valid", "test")
        for key, end in (("source", "de"), ("target", "en"), ("gold", "gold"))
        if not (split == "train" and key == "gold")
    ]


def reproduce(plan: Plan, *, ablations: bool = False) -> tuple[list[dict[str, Any]], list[Failure]]:
    """Train what is not finished yet; write results.json, tables.md, figures/ and report.html."""
    results, failures = train_rows(plan)
    if ablations:
        write_json(plan.out / "ablations.json", results)
        tables = [ablation_table(results), *failures_table(failures)]
        write_bytes(plan.out / "ablations.md", markdown(tables).encode())
        return results, failures
    write_json(plan.out / "results.json", results)
    verdicts = judge(paper.NMT_CLAIMS, results, plan.details_of)
    write_json(plan.out / "claims.json", verdicts)
    tables = [*failures_table(failures), claims_table(verdicts), *tables_of(results)]
    write_bytes(plan.out / "tables.md", markdown(tables).encode())
    write_page(plan.out / "report.html", page_of(plan, results, tables, examined(plan, results)))
    return results, failures


def examined(plan: Plan, results: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """`latentalign diagnose` of the first row that has all there is to diagnose; done once."""
    seeds = {record["row"]: record["seed"] for record in reversed(results)}
    name = next((n for n in ("variational-enum", "variational-sample", "marginal") if n in seeds), None)
    if name is None:
        return None
    run, folder = plan.run(name, seeds[name]), plan.out / "diagnose"
    path = folder / "diagnose.json"
    known: dict[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {}
    if known.get("run") != str(run):
        options = ["diagnose", str(run), f"--out={folder}", "--draws=20", "--json", f"--device={plan.device}"]
        console = Console(stderr=True)
        with console.status(f"diagnosing {name}"):
            try:
                known = child(options, plan.out / "logs" / "diagnose.log", lambda: None)
            except RowFailed as error:
                console.print(f"no diagnosis: {error}", highlight=False, markup=False)
                return None
    return known


def tables_of(results: Sequence[dict[str, Any]]) -> list[Table]:
    """The paper's tables 1 to 3 with its figures beside ours, alignments, and K-max perplexities."""
    beside = {"results": results, "paper": paper.NMT}
    curve = [
        {**r, **{f"k{k}": r["kmax_curve"][k - 1] for k in CURVE_POINTS if k <= len(r["kmax_curve"])}}
        for r in results
        if r["kmax_curve"]
    ]
    tables = [
        figure_table(
            "Table 1: objectives",
            "Perplexity of the test set, each row's own: soft attention under soft attention, relaxed with samples, "
            "all others exact. The paper's figures are of IWSLT 2014." + told(results),
            [
                Column("ppl", "ppl", 3), Column("paper's ppl", "ppl", 2, paper=True), Column("BLEU", "bleu", 2),
                Column("paper's BLEU", "bleu", 2, paper=True), Column("bound as ppl", "ppl_elbo", 3),
                Column("gap of the bound", "elbo_gap", 3), Column("epochs", "epochs", 0), Column("minutes", "seconds",
                1, scale=1 / 60),
            ],
            **beside,
        ),
        figure_table(
            "Table 2: exact against the five likeliest members, and against soft attention",
            "The row soft is soft attention's model tested as a latent one (the paper's Soft KMax); the first BLEU is "
            "decoded with each row's own predictive.",
            [
                Column("exact", "ppl_exact", 3), Column("K-max 5", "ppl_kmax5", 3), Column("soft", "ppl_soft", 3),
                Column("paper's K-max 5", "ppl_kmax5", 2, paper=True), Column("BLEU, own", "bleu", 2),
                Column("BLEU, K-max 5", "bleu_kmax5", 2), Column("paper's", "bleu_kmax5", 2, paper=True),
            ],
            **beside,
        ),
        figure_table(
            "Perplexity by the number of members",
            "The K likeliest members of the prior, renormalised; exact is K = T.",
            [*(Column(f"K = {k}", f"k{k}", 3) for k in CURVE_POINTS), Column("exact", "ppl_exact", 3)],
            curve,
            paper={},
        ),
        figure_table(
            "Table 3: inference alternatives",
            "Time of a target token in training, and the process's largest memory in an update, of which some 300 MB "
            "are the libraries.",
            [
                Column("samples", "samples", 0), Column("ppl", "ppl", 3), Column("paper's ppl", "ppl", 2, paper=True),
                Column("BLEU", "bleu", 2), Column("paper's BLEU", "bleu", 2, paper=True),
                Column("microseconds a token", "microseconds", 0), Column("MB", "peak_memory_mb", 0),
            ],
            [{**r, "microseconds": 1e6 / max(1e-9, r["tokens_per_second"])} for r in results],
            paper=paper.NMT,
            only=("variational-enum", "variational-sample", *ALTERNATIVES),
        ),
        figure_table(
            "Entropy of the prior",
            "In nats, mean over target tokens: lower is more certain.",
            [
                Column("prior", "entropy_prior", 2), Column("paper's", "entropy_prior", 2, paper=True),
                Column("inferred q", "entropy_inferred", 2),
            ],
            **beside,
        ),
        figure_table(
            "Alignment error rate",
            "Each target word linked to its likeliest source word; lower is better.",
            [Column(n, f"aer_{n}", 3) for n in ("prior", "inferred", "posterior")],
            **beside,
        ),
    ]  # fmt: skip
    return [table for table in tables if len(table.headings) > 1]  # no AER without gold links


def told(results: Sequence[dict[str, Any]]) -> str:
    """What rows were trained on first, which the paper does for relaxed attention alone; epochs are without it."""
    firsts: dict[str, list[str]] = {}
    for name, records in by_row(results).items():
        if records[0].get("warm_start"):
            firsts.setdefault(str(records[0]["warm_start"]), []).append(name)
    return "".join(
        f" Trained on {first} before its own epochs: {', '.join(names)}." for first, names in firsts.items()
    )


CURVE_POINTS = (1, 2, 3, 4, 5, 7, 10, 15, 20)


def ablation_table(results: Sequence[dict[str, Any]]) -> Table:
    """Everything that was changed one at a time."""
    columns = [
        Column("ppl", "ppl", 3), Column("BLEU", "bleu", 2), Column("entropy", "entropy_prior", 2),
        Column("AER of prior", "aer_prior", 3), Column("AER of posterior", "aer_posterior", 3),
        Column("minutes", "seconds", 1, scale=1 / 60),
    ]  # fmt: skip
    return figure_table("Ablations", "One thing changed at a time.", columns, results, paper={})


def page_of(
    plan: Plan, results: Sequence[dict[str, Any]], tables: Sequence[Table], examined: dict[str, Any] | None
) -> Page:
    """report.html: tables, figures and alignments to look at."""
    firsts = {name: records[0] for name, records in by_row(results).items()}
    details = {}
    for name, record in firsts.items():
        path = plan.details_of(name, record["seed"])
        if path.is_file():
            details[name] = json.loads(path.read_bytes())
    figures = {
        "Training curves": curves.training_curves(
            {name: Run(plan.run(name, r["seed"])).validations() for name, r in firsts.items()}
        ),
        "Perplexity against K": curves.kmax_curves(firsts),
        **paper_figures({name: d["alignments"] for name, d in details.items()}),
    }
    if examined is not None:
        figures["Gradient variance against time"] = curves.cost_of_gradients(examined["gradients"])
    curves.save_all(figures, plan.out / "figures")
    return Page(
        title=f"Attention as a latent variable: {Path(plan.recipe).stem}",
        summary=f"{len(firsts)} rows, {results[0]['sentences']:,} test sentences, recipe {plan.recipe}; "
        "pictures and figures are of each row's first seed",
        sections=[*table_sections(tables), *picture_sections(figures)],
        alignments={name: d["alignments"] for name, d in details.items()},
    )


SHOWN = {
    "ppl": Column("", "ppl", 3), "exact": Column("", "ppl_exact", 3), "BLEU": Column("", "bleu", 1),
    "H(p)": Column("", "entropy_prior", 2), "AER p": Column("", "aer_prior", 3), "q": Column("", "aer_inferred", 3),
    "post.": Column("", "aer_posterior", 3), "sec.": Column("", "seconds", 0),
}  # fmt: skip
"""What fits a terminal of 80 columns."""


def show(plan: Plan, results: Sequence[dict[str, Any]], *, sentences: int = 3) -> None:
    """The table, a few alignments drawn in the terminal, and where the files are."""
    console = Console()
    show_table(console, f"{plan.recipe}, test set", SHOWN, results)
    run = plan.run(results[-1]["row"], results[-1]["seed"])
    if Run(run).model.is_file():  # the tables do not need it: it may be gone
        draw_examples(console, Trained.load(run), sentences)
    if plan.recipe == "nmt/demo":
        draw_yardsticks(console)
    show_files(console, plan.out)


def draw_examples(console: Console, trained: Trained, sentences: int) -> None:
    """Exact posteriors of a few short test pairs, gold links in brackets."""
    split = trained.config.data.test
    assert split is not None
    pairs = list(read_parallel(split.source, split.target))
    gold = read_gold(split.gold, one_based=split.gold_one_based, sentences=len(pairs)) if split.gold else None
    short = [i for i, (s, t) in enumerate(pairs) if 7 <= len(s.split()) <= 12 and len(t.split()) <= 12]
    chosen = (short or list(range(len(pairs))))[:sentences]
    using = "posterior" if trained.model.family == "categorical" else "prior"
    encoded = encode_pairs(trained, [pairs[i][0] for i in chosen], [pairs[i][1] for i in chosen])
    name = trained.config.objective.name
    console.print(f"\n{using} alignments of {name}; brackets are gold links", highlight=False)
    for i, found in zip(chosen, in_order(trained, encoded, using), strict=True):
        words = [trained.tokenizer.words(side) for side in pairs[i]]
        links = gold[i].sure if gold else frozenset()
        console.print(draw_in_terminal(*words, found.probability, gold=links), markup=False, highlight=False)
        console.print()


def draw_yardsticks(console: Console) -> None:
    """What the demo's grammar itself allows."""
    pairs = demo.splits(0, 0, 1000)["test"]
    floor = demo.statistics(pairs).floor_perplexity
    console.print(
        "ppl is each model's own: soft attention under soft attention, others summed over all alignments;\n"
        "H(p): entropy of the prior; AER of prior p, inferred q and exact posterior\n"
        f"the grammar's own perplexity on this test set, the floor: {floor:.3f}\n",
        highlight=False,
    )
