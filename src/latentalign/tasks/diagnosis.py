"""The diagnosis of a trained model, the same for every task: bounds, gradients and Proposition 1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from latentalign.core.kernels.emission import EmissionLatent
from latentalign.errors import InputError
from latentalign.reproduction import diagnosis
from latentalign.tasks.base import Trained
from latentalign.training.loss import Batch

PROPOSITION_QUERIES = 100
"""About as many queries are compared with Proposition 1."""


@dataclass(frozen=True)
class ExampleSet:
    """Examples of a split that can be loaded by position."""

    count: int
    load: Callable[[int, int], Batch]
    """The batch of the examples from one position to another."""
    group: int = 16
    """Examples whose bounds are computed at once."""


def diagnose_model(
    trained: Trained[Any, Any, Any], split: str, examples: ExampleSet, *, count: int, batch: int, draws: int
) -> dict[str, Any]:
    """Bounds on the first `count` examples, gradients on the first `batch`, Proposition 1 on a few queries."""

    def observe(start: int, stop: int) -> EmissionLatent:
        latent: EmissionLatent = trained.model.latent(
            examples.load(start, min(stop, examples.count)).to(trained.device)
        )
        return latent

    torch.manual_seed(trained.config.training.seed)
    count = min(count, examples.count)
    first = examples.load(0, min(batch, examples.count)).to(trained.device)
    with torch.no_grad():
        sample = observe(0, 1)
    if not sample.prior.supports("enumerate"):
        name = trained.config.objective.name
        raise InputError(f"{name} has no members to sum over, so there is nothing exact to compare with")
    if sample.prior.members_per_alignment > 1:
        raise InputError(
            "diagnose compares alignments that select one member; this run has prior.looks = dependent"
        )
    torch.manual_seed(trained.config.training.seed)
    groups = (observe(i, min(i + examples.group, count)) for i in range(0, count, examples.group))
    found: dict[str, Any] = {"run": str(trained.run.folder), "split": split}
    found["objective"] = trained.config.objective.name
    found["bounds"] = diagnosis.bounds(groups)
    found["gradients"] = diagnosis.gradients(
        trained.model,
        lambda: trained.model.latent(first),
        inferred=sample.inferred is not None,
        draws=draws,
    )
    with torch.no_grad():
        few = observe(0, count_examples(examples, PROPOSITION_QUERIES))
    found["proposition_1"] = diagnosis.proposition_1(few)
    return found


def count_examples(examples: ExampleSet, queries: int) -> int:
    """The number of first examples that have at least so many queries, or all."""
    count = found = 0
    while count < examples.count and found < queries:
        found += examples.load(count, count + 1).queries
        count += 1
    return count
