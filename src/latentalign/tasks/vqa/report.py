"""Figures and regions of one run, for `latentalign report`."""

from __future__ import annotations

from pathlib import Path

from latentalign.reproduction.pages import EvaluatedRun
from latentalign.tasks.vqa.details import details
from latentalign.tasks.vqa.metrics import evaluate
from latentalign.tasks.vqa.task import Trained


def evaluate_run(folder: Path, split: str, *, sentences: int, device: str) -> EvaluatedRun:
    """Evaluate a run on a split, with the regions of some questions."""
    trained = Trained.load(folder, device=device)
    figures = evaluate(trained, split)
    looks = details(trained, split, questions=sentences)["looks"]
    return EvaluatedRun(trained.run, trained.config, figures, looks)
