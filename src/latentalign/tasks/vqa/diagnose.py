"""Diagnosis of a trained question answering model: bounds, gradients and Proposition 1 on questions of a split."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from latentalign.reproduction import diagnosis
from latentalign.tasks.vqa.recipe import TrainedAnswerer, open_split


def diagnose(
    trained: TrainedAnswerer, split: str, *, questions: int, batch: int, draws: int, queries: int = 100
) -> dict[str, Any]:
    """Bounds on some questions with drawn answers, gradients on `batch` of them, Proposition 1 on `queries`."""
    corpus = open_split(trained, split)
    answers, usable = corpus.draw_answers(trained.config.training.seed, 0), corpus.answerable
    torch.manual_seed(trained.config.training.seed)
    model, device = trained.model, trained.device

    def latent(index: np.ndarray) -> Any:
        return model.latent(corpus.batch(index, answers[index]).to(device))

    usable = usable[: max(questions, batch, queries)]
    groups = (usable[:questions][i : i + 64] for i in range(0, min(questions, len(usable)), 64))
    found: dict[str, Any] = {"run": str(trained.run.folder), "split": split}
    found["objective"] = trained.config.objective.name
    found["bounds"] = diagnosis.bounds(latent(group) for group in groups)
    first = corpus.batch(usable[:batch], answers[usable[:batch]]).to(device)
    found["gradients"] = diagnosis.gradients(
        model, lambda: model.latent(first), inferred=model.inference is not None, draws=draws
    )
    with torch.no_grad():
        few = latent(usable[:queries])
    found["proposition_1"] = diagnosis.proposition_1(few)
    return found
