"""A page about runs that were trained one by one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from latentalign.reproduction import curves
from latentalign.reproduction.tables import Column, figure_table
from latentalign.tasks.vqa.details import details
from latentalign.tasks.vqa.figures import embedded_pictures, find_pictures, looking
from latentalign.tasks.vqa.metrics import evaluate
from latentalign.tasks.vqa.task import Trained
from latentalign.web.pages import Page, Section, free_name, picture_sections

COLUMNS = (
    Column("NLL", "nll", 3), Column("exact", "nll_exact", 3), Column("K-max 5", "nll_kmax5", 3),
    Column("soft", "nll_soft", 3), Column("accuracy", "accuracy", 2), Column("official", "accuracy_official", 2),
    Column("entropy of p", "entropy_prior", 2), Column("grounding of p", "grounding_prior", 2),
    Column("of q", "grounding_inferred", 2), Column("of posterior", "grounding_posterior", 2),
)  # fmt: skip


def page_of_runs(folders: Sequence[Path], split: str, *, sentences: int, device: str) -> Page:
    """Figures, curves and pictures of some runs on one split."""
    results, figures, histories = [], {}, {}
    looks: dict[str, list[dict[str, Any]]] = {}
    pictures: dict[int, Path] = {}
    for folder in folders:
        trained = Trained.load(folder, device=device)
        name = free_name(trained.config.objective.name, folder, histories)
        results.append({"row": name, **evaluate(trained, split)})
        histories[name] = trained.run.validations()
        images = getattr(trained.config.data, split).images
        if images is not None and images.is_dir():
            looks[name] = details(trained, split, questions=sentences)["looks"]
            pictures |= find_pictures(images)
            figures[f"Where {name} looks"] = looking(looks[name], pictures)
    note = "Negative log-likelihood is each run's own, in nats."
    sections = [Section("Runs", table=figure_table("Runs", note, COLUMNS, results, paper={}))]
    sections += picture_sections({"Training curves": curves.training_curves(histories), **figures})
    return Page(
        title="latentalign: " + ", ".join(histories),
        summary=f"{results[0]['questions']:,} questions of the {split} split",
        sections=sections,
        looks=looks,
        pictures=embedded_pictures(looks, pictures),
    )
