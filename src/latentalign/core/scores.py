"""Scores of every member of the source for every query: a(x, x~).

Members and queries that are padding must hold finite numbers here, zeros for instance: their scores are masked
afterwards, but a gradient of zero times NaN is NaN. `LatentAttention` puts zeros there itself.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


class MLPScore(nn.Module):
    """w' tanh(W1 x_i + W2 x~), without biases (Bahdanau et al. 2015).

    Computed as tanh(a) = 2 sigmoid(2a) - 1, which on a CPU takes a third of the time.
    """

    def __init__(self, query_dim: int, memory_dim: int, hidden: int) -> None:
        super().__init__()
        self.from_memory = nn.Linear(memory_dim, hidden, bias=False)
        self.from_query = nn.Linear(query_dim, hidden, bias=False)
        self.to_score = nn.Linear(hidden, 1, bias=False)

    def project(self, memory: Float[Tensor, "*any T D"]) -> Float[Tensor, "*any T H"]:
        """2 W1 x_i: what depends on the source alone, to be computed once."""
        return F.linear(memory, 2 * self.from_memory.weight)

    def scores(
        self, query: Float[Tensor, "*batch Dq"], projected: Float[Tensor, "*#batch T H"]
    ) -> Float[Tensor, "*batch T"]:
        """Scores against a projected source."""
        doubled = torch.add(projected, self.from_query(query).unsqueeze(-2), alpha=2)
        weight = self.to_score.weight.squeeze(0)
        if doubled.element_size() < 4:  # in half precision a sigmoid has few digits near 1/2
            return torch.tanh(doubled / 2) @ weight
        return doubled.sigmoid() @ (2 * weight) - weight.sum()

    def forward(
        self, query: Float[Tensor, "*batch Dq"], memory: Float[Tensor, "*#batch T D"]
    ) -> Float[Tensor, "*batch T"]:
        return self.scores(query, self.project(memory))


class BilinearScore(nn.Module):
    """x~' U x_i (Luong et al. 2015)."""

    def __init__(self, query_dim: int, memory_dim: int) -> None:
        super().__init__()
        self.from_memory = nn.Linear(memory_dim, query_dim, bias=False)

    def project(self, memory: Float[Tensor, "*any T D"]) -> Float[Tensor, "*any T H"]:
        """U x_i, to be computed once."""
        projected: Tensor = self.from_memory(memory)
        return projected

    def scores(
        self, query: Float[Tensor, "*batch Dq"], projected: Float[Tensor, "*#batch T Dq"]
    ) -> Float[Tensor, "*batch T"]:
        """Scores against a projected source."""
        return dot_products(query, projected)

    def forward(
        self, query: Float[Tensor, "*batch Dq"], memory: Float[Tensor, "*#batch T D"]
    ) -> Float[Tensor, "*batch T"]:
        return self.scores(query, self.project(memory))


class DotScore(nn.Module):
    """x~' x_i / sqrt(D) (Vaswani et al. 2017); query and memory have the same size."""

    def project(self, memory: Float[Tensor, "*any T D"]) -> Float[Tensor, "*any T D"]:
        """x_i / sqrt(D)."""
        return memory / math.sqrt(memory.shape[-1])

    def scores(
        self, query: Float[Tensor, "*batch D"], projected: Float[Tensor, "*#batch T D"]
    ) -> Float[Tensor, "*batch T"]:
        """Scores against a projected source."""
        return dot_products(query, projected)

    def forward(
        self, query: Float[Tensor, "*batch D"], memory: Float[Tensor, "*#batch T D"]
    ) -> Float[Tensor, "*batch T"]:
        return self.scores(query, self.project(memory))


def dot_products(
    query: Float[Tensor, "*batch D"], memory: Float[Tensor, "*#batch T D"]
) -> Float[Tensor, "*batch T"]:
    """x~' x_i; one matrix product where the source is shared by the queries of an example."""
    if query.dim() > 1 and memory.dim() == query.dim() + 1 and memory.shape[-3] == 1:
        return query @ memory.squeeze(-3).transpose(-1, -2)
    return (query.unsqueeze(-2) @ memory.transpose(-1, -2)).squeeze(-2)


Score = MLPScore | BilinearScore | DotScore


def build_score(kind: str, *, query_dim: int, memory_dim: int, hidden: int) -> Score:
    """A score by name: mlp, bilinear or dot."""
    if kind == "mlp":
        return MLPScore(query_dim, memory_dim, hidden)
    if kind == "bilinear":
        return BilinearScore(query_dim, memory_dim)
    if kind == "dot":
        if query_dim != memory_dim:
            raise ValueError(
                f"dot scores need query and memory of one size, got {query_dim} and {memory_dim}"
            )
        return DotScore()
    raise ValueError(f"unknown score {kind!r}; choose mlp, bilinear or dot")
