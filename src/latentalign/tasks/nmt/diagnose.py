"""Diagnosis of a trained translation model: bounds, gradients and Proposition 1 on pairs of a split."""

from __future__ import annotations

from typing import Any

import torch

from latentalign.errors import InputError
from latentalign.reproduction import diagnosis
from latentalign.tasks.nmt.data import collate
from latentalign.tasks.nmt.evaluate import open_split
from latentalign.tasks.nmt.recipe import TrainedTranslator

GROUP = 16
"""Pairs whose bounds are computed at once."""


def diagnose(
    trained: TrainedTranslator, split_name: str, *, sentences: int, batch: int, draws: int, queries: int = 100
) -> dict[str, Any]:
    """Bounds on `sentences` pairs, gradients on the first `batch` of them, Proposition 1 on about `queries` tokens."""
    if not trained.model.distribution.supports("enumerate"):
        raise InputError(
            f"{trained.config.objective.name} has no members to sum over, so there is nothing exact to compare with"
        )
    corpus = open_split(trained, split_name)
    sentences, batch = min(sentences, len(corpus)), min(batch, len(corpus))
    device = trained.device
    torch.manual_seed(trained.config.training.seed)
    model = trained.model
    groups = (range(i, min(i + GROUP, sentences)) for i in range(0, sentences, GROUP))
    inferred = model.inference is not None
    found: dict[str, Any] = {"run": str(trained.run.folder), "split": split_name}
    found["objective"] = trained.config.objective.name
    found["bounds"] = diagnosis.bounds(model.latent(collate(corpus, list(g)).to(device)) for g in groups)
    first = collate(corpus, list(range(batch))).to(device)
    found["gradients"] = diagnosis.gradients(
        model, lambda: model.latent(first), inferred=inferred, draws=draws
    )
    few, tokens = 0, 0
    while few < len(corpus) and tokens < queries:
        tokens += len(corpus.target(few)) + 1
        few += 1
    with torch.no_grad():
        latent = model.latent(collate(corpus, list(range(few))).to(device))
    found["proposition_1"] = diagnosis.proposition_1(latent)
    return found
