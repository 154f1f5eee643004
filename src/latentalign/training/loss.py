"""The loss of a batch: model and objective as one module that returns sums over queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from latentalign.core.kernels.smoothing import mean_output_log_prob
from latentalign.core.objectives import Objective


class Batch(Protocol):
    """Examples that a model computes with at once."""

    @property
    def queries(self) -> int:
        """Number of latent choices: target tokens in translation, questions in question answering."""

    @property
    def examples(self) -> int:
        """Number of examples: sentence pairs in translation, questions in question answering."""

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on a device."""


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over the queries of a batch; the training loop normalises them, because only it knows all batches."""

    surrogate: Tensor
    """The quantity to maximise."""
    value: Tensor
    terms: dict[str, Tensor]
    queries: int
    examples: int

    def detach(self) -> Sums:
        """The same sums without the graph, which would keep everything that the batch computed."""
        terms = {name: term.detach() for name, term in self.terms.items()}
        return Sums(self.surrogate.detach(), self.value.detach(), terms, self.queries, self.examples)


@dataclass(frozen=True)
class Figures:
    """Sums over all batches and processes of an update, as the program reads them from the device."""

    surrogate: float
    value: float
    terms: dict[str, float]
    queries: int
    examples: int


def add_figures(parts: Sequence[Figures]) -> Figures:
    """Figures of several updates."""
    return Figures(
        sum(p.surrogate for p in parts),
        sum(p.value for p in parts),
        {name: sum(p.terms[name] for p in parts) for name in parts[0].terms},
        sum(p.queries for p in parts),
        sum(p.examples for p in parts),
    )


def add_sums(parts: Sequence[Sums]) -> Sums:
    """Sums of several batches, without gradient."""
    names = parts[0].terms
    return Sums(
        sum((p.surrogate.detach() for p in parts), torch.zeros(())),
        sum((p.value.detach() for p in parts), torch.zeros(())),
        {n: sum((p.terms[n].detach() for p in parts), torch.zeros(())) for n in names},
        sum(p.queries for p in parts),
        sum(p.examples for p in parts),
    )


class LossModule(nn.Module):
    """Model and objective as one module: batch -> sums of the surrogate and its terms.

    Label smoothing changes the surrogate only, so what is reported stays the objective itself.
    """

    def __init__(self, model: nn.Module, objective: Objective, *, label_smoothing: float = 0.0) -> None:
        super().__init__()
        self.model, self.objective, self.label_smoothing = model, objective, label_smoothing
        self.register_load_state_dict_pre_hook(rename_baseline)  # type: ignore[no-untyped-call]

    def forward(self, batch: Batch) -> Sums:
        """Sums over the queries of a batch."""
        model: Any = self.model
        latent = model.latent(batch)
        estimate = self.objective(latent)
        terms = {name: value.sum() for name, value in estimate.terms.items()}
        surrogate = estimate.surrogate.sum()
        if self.training and self.label_smoothing:
            even = mean_output_log_prob(latent).sum()
            surrogate = (1 - self.label_smoothing) * surrogate + self.label_smoothing * even
        return Sums(surrogate, estimate.value.sum(), terms, batch.queries, batch.examples)

    @property
    def has_lazy_layers(self) -> bool:
        """Whether some layers, such as those of a learned baseline, have no shape yet."""
        return any(isinstance(p, nn.UninitializedParameter) for p in self.parameters())


def rename_baseline(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Checkpoints of version 0.1 keep the parameters of a baseline under `parts.0`."""
    old, new = f"{prefix}parts.0.", f"{prefix}objective.expectation.baseline."
    for name in [n for n in state if n.startswith(old)]:
        state[new + name.removeprefix(old)] = state.pop(name)
