"""Scores of every member of the source for every query: a(x, x~).

A score is a module with two parts: `project` computes what depends on the source alone, and `scores` does the rest
for a query. `LatentAttention` and `AttentionDecoder` take such a module, or the name of one registered in `SCORES`.

Queries and members that are padding must hold finite numbers, zeros for instance. Their scores are masked afterwards,
but the gradient of zero times NaN is NaN. `LatentAttention` writes zeros there itself.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from latentalign.core.linear import Linear, linear
from latentalign.core.registry import SCORES
from latentalign.core.score_steps import AutogradSteps, DotSteps, MLPSteps, ScoreSteps


@runtime_checkable
class Score(Protocol):
    """A module that scores members of the source for queries.

    `scores(query, project(memory))` equals the call `score(query, memory)`. It may depend on nothing else that has a
    gradient, except the module's parameters.
    """

    def project(self, memory: Tensor, /) -> Tensor:
        """(B, T, D) -> (B, T, A), once for all queries of a source."""

    def scores(self, query: Tensor, projected: Tensor, /) -> Tensor:
        """(*batch, Dq) and (*batch or 1, T, A) -> (*batch, T)."""

    def __call__(self, query: Tensor, memory: Tensor, /) -> Tensor:
        """(*batch, Dq) and (*batch or 1, T, D) -> (*batch, T)."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """As of any module."""


class ProjectedScore(nn.Module, ABC):
    """Base class of scores: implement `project` and `scores`."""

    @abstractmethod
    def project(self, memory: Float[Tensor, "*any T D"]) -> Float[Tensor, "*any T A"]:
        """The share of the source, computed once."""

    @abstractmethod
    def scores(
        self, query: Float[Tensor, "*batch Dq"], projected: Float[Tensor, "*#batch T A"]
    ) -> Float[Tensor, "*batch T"]:
        """Scores against a projected source."""

    def forward(
        self, query: Float[Tensor, "*batch Dq"], memory: Float[Tensor, "*#batch T D"]
    ) -> Float[Tensor, "*batch T"]:
        """Scores against a source."""
        return self.scores(query, self.project(memory))


@SCORES.register("mlp")
class MLPScore(ProjectedScore):
    """w' tanh(W1 x_i + W2 x~), without biases (Bahdanau et al. 2015).

    Computed with tanh(a) = 2 sigmoid(2a) - 1, which takes a third of the time on a CPU.
    """

    def __init__(self, query_dim: int, memory_dim: int, hidden: int) -> None:
        super().__init__()
        self.from_memory = Linear(memory_dim, hidden, bias=False)
        self.from_query = Linear(query_dim, hidden, bias=False)
        self.to_score = Linear(hidden, 1, bias=False)

    def project(self, memory: Float[Tensor, "*any T D"]) -> Float[Tensor, "*any T H"]:
        """2 W1 x_i."""
        return linear(memory, 2 * self.from_memory.weight)

    def scores(
        self, query: Float[Tensor, "*batch Dq"], projected: Float[Tensor, "*#batch T H"]
    ) -> Float[Tensor, "*batch T"]:
        doubled = torch.add(projected, self.from_query(query).unsqueeze(-2), alpha=2)
        weight = self.to_score.weight.squeeze(0)
        if doubled.element_size() < 4:  # in half precision, a sigmoid has few digits near 1/2
            return torch.tanh(doubled / 2) @ weight
        return doubled.sigmoid() @ (2 * weight) - weight.sum()

    def steps(self, projected: Float[Tensor, "B T H"], queries: int) -> ScoreSteps:
        """The scores of a recurrence, with a hand-written backward pass."""
        if projected.element_size() < 4:
            return AutogradSteps(self, projected)
        return MLPSteps(self.from_query.weight, self.to_score.weight, projected, queries=queries)


class DotScore(ProjectedScore):
    """x~' x_i / sqrt(D) (Vaswani et al. 2017); query and memory have the same size."""

    def project(self, memory: Float[Tensor, "*any T D"]) -> Float[Tensor, "*any T Dq"]:
        """x_i / sqrt(D)."""
        return memory / math.sqrt(memory.shape[-1])

    def scores(
        self, query: Float[Tensor, "*batch Dq"], projected: Float[Tensor, "*#batch T Dq"]
    ) -> Float[Tensor, "*batch T"]:
        """x~' p_i for a projected source p; one matrix product where the queries of an example share its source."""
        if query.dim() > 1 and projected.dim() == query.dim() + 1 and projected.shape[-3] == 1:
            return query @ projected.squeeze(-3).transpose(-1, -2)
        return (query.unsqueeze(-2) @ projected.transpose(-1, -2)).squeeze(-2)

    def steps(self, projected: Float[Tensor, "B T Dq"], queries: int) -> ScoreSteps:
        """The scores of a recurrence, with a hand-written backward pass."""
        return DotSteps(projected)


class BilinearScore(DotScore):
    """x~' U x_i (Luong et al. 2015)."""

    def __init__(self, query_dim: int, memory_dim: int) -> None:
        super().__init__()
        self.from_memory = Linear(memory_dim, query_dim, bias=False)

    def project(self, memory: Float[Tensor, "*any T D"]) -> Float[Tensor, "*any T Dq"]:
        """U x_i."""
        projected: Tensor = self.from_memory(memory)
        return projected


@SCORES.register("scaled-dot")
class ScaledDotScore(DotScore):
    """(W1 x~)' (W2 x_i) / sqrt(hidden): the scores of one attention head of a transformer (Vaswani et al. 2017)."""

    def __init__(self, query_dim: int, memory_dim: int, hidden: int) -> None:
        super().__init__()
        self.from_memory = Linear(memory_dim, hidden, bias=False)
        self.from_query = Linear(query_dim, hidden, bias=False)

    def project(self, memory: Float[Tensor, "*any T D"]) -> Float[Tensor, "*any T H"]:
        """W2 x_i / sqrt(hidden)."""
        return super().project(self.from_memory(memory))

    def scores(
        self, query: Float[Tensor, "*batch Dq"], projected: Float[Tensor, "*#batch T H"]
    ) -> Float[Tensor, "*batch T"]:
        return super().scores(self.from_query(query), projected)


@SCORES.register("product")
class ProductScore(DotScore):
    """tanh(W1 x~ + b1)' tanh(W2 x_i + b2): the product of two hidden layers (after Kim et al. 2017).

    A hidden unit can stand for one property: the query says whether it is wanted, the member whether it is there. The
    sum over units is highest for the member that has all that is wanted.
    """

    def __init__(self, query_dim: int, memory_dim: int, hidden: int) -> None:
        super().__init__()
        self.from_memory = Linear(memory_dim, hidden)
        self.from_query = Linear(query_dim, hidden)

    def project(self, memory: Float[Tensor, "*any T D"]) -> Float[Tensor, "*any T H"]:
        """tanh(W2 x_i + b2)."""
        return torch.tanh(self.from_memory(memory))

    def scores(
        self, query: Float[Tensor, "*batch Dq"], projected: Float[Tensor, "*#batch T H"]
    ) -> Float[Tensor, "*batch T"]:
        return super().scores(torch.tanh(self.from_query(query)), projected)


@SCORES.register("bilinear")
def build_bilinear(*, query_dim: int, memory_dim: int, hidden: int) -> BilinearScore:
    """A bilinear score; it has no hidden layer."""
    return BilinearScore(query_dim, memory_dim)


@SCORES.register("dot")
def build_dot(*, query_dim: int, memory_dim: int, hidden: int) -> DotScore:
    """A dot-product score; it has no parameters."""
    if query_dim != memory_dim:
        raise ValueError(
            f"dot scores need query and memory of one size, got {query_dim} and {memory_dim}; use bilinear"
        )
    return DotScore()


def resolve_score(score: str | nn.Module, *, query_dim: int, memory_dim: int, hidden: int) -> Score:
    """A score as a module: a new one of a registered name, or the given module itself."""
    if isinstance(score, str):
        score = SCORES[score](query_dim=query_dim, memory_dim=memory_dim, hidden=hidden)
    if not isinstance(score, Score):
        raise TypeError(
            f"{type(score).__name__} is not a score: it needs the methods project(memory) and "
            "scores(query, projected); deriving it from ProjectedScore adds the rest"
        )
    return score


def score_steps(score: Score, projected: Float[Tensor, "B T A"], queries: int) -> ScoreSteps:
    """The scores of a packed recurrence of so many queries: the score's own `steps`, or autograd.

    Inherited `steps` do not fit a class that overrides `scores`, so autograd differentiates these.
    """
    for kind in type(score).__mro__:
        if "steps" in vars(kind):
            steps: ScoreSteps = vars(kind)["steps"](score, projected, queries)
            return steps
        if "scores" in vars(kind):
            break
    return AutogradSteps(score, projected)
