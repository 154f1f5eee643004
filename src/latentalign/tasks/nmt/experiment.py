"""The experiment of translation: the rows, figures, tables and claims of the paper, and what its pages show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from sacrebleu.metrics.bleu import BLEU

from latentalign.data import demo
from latentalign.reproduction.claims import CorpusScore
from latentalign.reproduction.experiment import (
    Experiment,
    GeneratedData,
    PageContext,
    Row,
    objective_rows,
    paper_objectives,
)
from latentalign.reproduction.tables import Column, FigureTable
from latentalign.tasks.nmt import paper
from latentalign.tasks.nmt.figures import draw_test_pairs, kmax_curves, paper_figures
from latentalign.tasks.nmt.recipe import NMTConfig
from latentalign.web.pages import Viewer, alignment_viewer

RELAXED_WARM_START = ("training.warm_start_epochs=3", "training.warm_start_objective=relaxed-hard")
TABLE_1, TABLE_3 = paper_objectives(1), paper_objectives(3)
ROWS = tuple(
    Row(name, name, RELAXED_WARM_START if name == "relaxed" else ()) for name in (*TABLE_1, *TABLE_3)
)
CERTIFIED_ROWS = (
    Row("marginal-certified", "marginal", ("objective.tolerance=0.01",)),
    Row("marginal-certified-sampled", "marginal", ("objective.tolerance=0.01", "objective.tail=sample")),
)
TEMPERATURES = (0.1, 0.3, 0.5, 1.0)
ABLATIONS = (
    Row("reinforce-soft-baseline", "variational-sample", ("objective.baseline=soft",)),
    Row("reinforce-no-baseline", "variational-sample", ("objective.baseline=none",)),
    Row("reinforce-learned-baseline", "variational-sample", ("objective.baseline=learned",)),
    *(Row(f"gumbel-temperature-{t}", "gumbel", (f"objective.temperature={t}",)) for t in TEMPERATURES),
    Row("attention-mlp", "variational-enum", ("model.attention=mlp",)),
    Row("attention-bilinear", "variational-enum", ("model.attention=bilinear",)),
    Row("no-length-penalty", "variational-enum", ("search.length_penalty=0.0",)),
    Row("relaxed-warm-start", "relaxed", RELAXED_WARM_START),
    Row("relaxed-no-warm-start", "relaxed", ("training.warm_start_epochs=0",)),
)
MEMBER_COUNTS = (1, 2, 3, 4, 5, 7, 10, 15, 20)


def kmax_column(k: int) -> Column:
    """Perplexity under the K likeliest members, read off the curve of all K."""

    def read(record: Any) -> float | None:
        curve = record["kmax_curve"]
        return curve[k - 1] if k <= len(curve) else None

    return Column(f"K = {k}", f"k{k}", 3, value=read)


TABLES = (
    FigureTable(
        "Table 1: objectives",
        "Perplexity of the test set under each row's own predictive: soft attention for soft, samples for relaxed, "
        "the exact sum for all others. The paper's figures are for IWSLT 2014.",
        (
            Column("ppl", "ppl", 3),
            Column("paper's ppl", "ppl", 2, paper=True),
            Column("BLEU", "bleu", 2),
            Column("paper's BLEU", "bleu", 2, paper=True),
            Column("bound as ppl", "ppl_elbo", 3),
            Column("gap of the bound", "elbo_gap", 3),
            Column("epochs", "epochs", 1),
            Column("minutes", "seconds", 1, scale=1 / 60),
        ),
        names_warm_starts=True,
    ),
    FigureTable(
        "Table 2: exact against the five likeliest members, and against soft attention",
        "The row soft is the model of soft attention, tested as a latent one (the paper's Soft KMax). The first BLEU "
        "is decoded with each row's own predictive.",
        (
            Column("exact", "ppl_exact", 3),
            Column("K-max 5", "ppl_kmax5", 3),
            Column("soft", "ppl_soft", 3),
            Column("paper's K-max 5", "ppl_kmax5", 2, paper=True),
            Column("BLEU, own", "bleu", 2),
            Column("BLEU, K-max 5", "bleu_kmax5", 2),
            Column("paper's", "bleu_kmax5", 2, paper=True),
        ),
    ),
    FigureTable(
        "Perplexity by the number of members",
        "The K likeliest members of the prior, renormalised; K = T is exact.",
        (*map(kmax_column, MEMBER_COUNTS), Column("exact", "ppl_exact", 3)),
        required_figure="kmax_curve",
    ),
    FigureTable(
        "Table 3: inference alternatives",
        "Training time per target token, and the largest memory of the process during an update. The libraries take "
        "about 300 MB of it.",
        (
            Column("samples", "samples", 0),
            Column("ppl", "ppl", 3),
            Column("paper's ppl", "ppl", 2, paper=True),
            Column("BLEU", "bleu", 2),
            Column("paper's BLEU", "bleu", 2, paper=True),
            Column(
                "microseconds per token",
                "microseconds",
                0,
                value=lambda record: 1e6 / max(1e-9, record["tokens_per_second"]),
            ),
            Column("MB", "peak_memory_mb", 0),
        ),
        only_rows=("variational-enum", "variational-sample", *TABLE_3),
    ),
    FigureTable(
        "Entropy of the prior",
        "In nats, averaged over target tokens; lower is more certain.",
        (
            Column("prior", "entropy_prior", 2),
            Column("paper's", "entropy_prior", 2, paper=True),
            Column("inferred q", "entropy_inferred", 2),
        ),
    ),
    FigureTable(
        "Alignment error rate",
        "Each target word is linked to its likeliest source word; lower is better.",
        tuple(Column(name, f"aer_{name}", 3) for name in ("prior", "inferred", "posterior")),
    ),
)
ABLATION_TABLE = FigureTable(
    "Ablations",
    "One change at a time.",
    (
        Column("ppl", "ppl", 3),
        Column("BLEU", "bleu", 2),
        Column("entropy", "entropy_prior", 2),
        Column("AER of prior", "aer_prior", 3),
        Column("AER of posterior", "aer_posterior", 3),
        Column("minutes", "seconds", 1, scale=1 / 60),
    ),
)


def write_demo(folder: Path) -> None:
    """Write the embedded language's corpus."""
    demo.write(folder, overwrite=True)


def demo_settings(folder: Path) -> list[str]:
    """The demo's files as overrides of its recipe."""
    return [
        f"data.{split}.{key}={folder / f'{split}.{end}'}"
        for split in ("train", "valid", "test")
        for key, end in (("source", "de"), ("target", "en"), ("gold", "gold"))
        if not (split == "train" and key == "gold")
    ]


def demo_floor() -> str:
    """The lowest perplexity that the demo's grammar allows."""
    pairs = demo.splits(0, 0, 1000)["test"]
    floor = demo.statistics(pairs).floor_perplexity
    return f"perplexity of the grammar itself on this test set, the lower limit: {floor:.3f}"


def corpus_bleu(statistics: Any) -> float:
    """BLEU of summed sentence statistics: lengths of output and reference, then matches and counts of n-grams."""
    hypothesis, reference, *counts = (int(x) for x in statistics)
    result = BLEU.compute_bleu(
        correct=counts[:4], total=counts[4:], sys_len=hypothesis, ref_len=reference, smooth_method="exp"
    )
    return float(result.score)


def pictures(context: PageContext) -> dict[str, Figure]:
    """K-max curves where there are any, and the paper's pictures of a few sentences."""
    curves = {name: record for name, record in context.results.items() if record.get("kmax_curve")}
    figures = {"Perplexity against K": kmax_curves(curves)} if curves else {}
    return {**figures, **paper_figures(context.examples)}


def viewers(context: PageContext) -> list[Viewer]:
    """Alignment matrices to look at."""
    return [alignment_viewer(context.examples)] if context.examples else []


EXPERIMENT = Experiment(
    task="nmt",
    recipe_model=NMTConfig,
    rows=ROWS,
    optional_rows=(*CERTIFIED_ROWS, *objective_rows(paper_objectives(None))),
    ablations=ABLATIONS,
    figures=(
        "ppl", "ppl_exact", "ppl_soft", "ppl_kmax5", "ppl_elbo", "bleu", "entropy_prior", "entropy_inferred",
        "elbo_gap", "jensen_gap", "aer_prior", "aer_inferred", "aer_posterior", "chrf", "bleu_signature", "tokens",
        "sentences",
    ),
    examples="sentences",
    tables=TABLES,
    ablation_table=ABLATION_TABLE,
    paper=paper.FIGURES,
    claims=paper.CLAIMS,
    corpus_scores={"bleu": CorpusScore("bleu_statistics", corpus_bleu)},
    details=("--sentences=50",),
    detail_figures=("kmax_curve", "ppl_kmax1", "bleu_kmax5"),
    detail_examples="alignments",
    diagnosed_rows=("variational-enum", "variational-sample", "marginal"),
    pictures=pictures,
    viewers=viewers,
    terminal_columns=(
        Column("ppl", "ppl", 3), Column("exact", "ppl_exact", 3), Column("BLEU", "bleu", 1),
        Column("H(p)", "entropy_prior", 2), Column("AER p", "aer_prior", 3), Column("q", "aer_inferred", 3),
        Column("post.", "aer_posterior", 3), Column("sec.", "seconds", 0),
    ),
    terminal_note="ppl: under each model's own predictive (soft attention, or the sum over all alignments)\n"
    "H(p): entropy of the prior; AER of prior p, inferred q and exact posterior",
    draw_examples=draw_test_pairs,
    run_columns=(
        Column("ppl", "ppl", 3), Column("exact", "ppl_exact", 3), Column("K-max 5", "ppl_kmax5", 3),
        Column("soft", "ppl_soft", 3), Column("BLEU", "bleu", 1), Column("gap of the bound", "elbo_gap", 3),
        Column("entropy of p", "entropy_prior", 2), Column("of q", "entropy_inferred", 2),
        Column("AER of prior", "aer_prior", 3), Column("of q", "aer_inferred", 3),
        Column("of posterior", "aer_posterior", 3),
    ),
    run_note="Perplexity is under each run's own predictive; BLEU is there if `latentalign evaluate` measured it.",
    data=GeneratedData("demo", "nmt/demo", write_demo, "test.gold", demo_settings, demo_floor),
)  # fmt: skip
