"""Figures and alignments of one run, for `latentalign report`."""

from __future__ import annotations

from pathlib import Path

from latentalign.reproduction.pages import EvaluatedRun
from latentalign.tasks.nmt.details import pictured
from latentalign.tasks.nmt.metrics import evaluate
from latentalign.tasks.nmt.task import Trained


def evaluate_run(folder: Path, split: str, *, sentences: int, device: str) -> EvaluatedRun:
    """Evaluate a run on a split, with the alignments of some sentences."""
    trained = Trained.load(folder, device=device)
    figures = evaluate(trained, split)
    return EvaluatedRun(trained.run, trained.config, figures, pictured(trained, split, sentences))
