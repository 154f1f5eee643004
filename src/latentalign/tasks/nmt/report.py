"""A page about runs that were trained one by one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from latentalign.reproduction import curves
from latentalign.reproduction.tables import Column, figure_table
from latentalign.tasks.nmt.details import pictured
from latentalign.tasks.nmt.figures import paper_figures
from latentalign.tasks.nmt.metrics import evaluate
from latentalign.tasks.nmt.task import Trained
from latentalign.web.pages import Page, Section, free_name, picture_sections

COLUMNS = (
    Column("ppl", "ppl", 3), Column("exact", "ppl_exact", 3), Column("K-max 5", "ppl_kmax5", 3),
    Column("soft", "ppl_soft", 3), Column("gap of the bound", "elbo_gap", 3),
    Column("entropy of p", "entropy_prior", 2), Column("of q", "entropy_inferred", 2),
    Column("AER of prior", "aer_prior", 3), Column("of q", "aer_inferred", 3),
    Column("of posterior", "aer_posterior", 3),
)  # fmt: skip


def page_of_runs(folders: Sequence[Path], split: str, *, sentences: int, device: str) -> Page:
    """Figures, curves and alignments of some runs on one split."""
    results, alignments, histories = [], {}, {}
    for folder in folders:
        trained = Trained.load(folder, device=device)
        name = free_name(trained.config.objective.name, folder, alignments)
        results.append({"row": name, **evaluate(trained, split)})
        alignments[name] = pictured(trained, split, sentences)
        histories[name] = trained.run.validations()
    table = figure_table(
        "Runs", "Perplexity is each run's own; `latentalign evaluate` adds BLEU.", COLUMNS, results, paper={}
    )
    pictures = {"Training curves": curves.training_curves(histories), **paper_figures(alignments)}
    sections = [Section("Runs", table=table)]
    sections += picture_sections(pictures)
    return Page(
        title="latentalign: " + ", ".join(alignments),
        summary=f"{results[0]['sentences']:,} sentences of the {split} split",
        sections=sections,
        alignments=alignments,
    )
