"""What a model hands to an objective, and what an objective hands back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from latentalign.core.alignments import Alignments
from latentalign.core.distributions import AlignmentDistribution, as_distribution
from latentalign.core.errors import LikelihoodShapeError


@dataclass(frozen=True)
class CheckedLikelihood:
    """A likelihood that must give one number for every alignment; otherwise it would be broadcast silently."""

    function: Callable[[Alignments], Tensor]

    def __call__(self, alignments: Alignments) -> Tensor:
        found, wanted = self.function(alignments), alignments.log_weight.shape
        if found.shape != wanted:
            raise LikelihoodShapeError(
                f"log_likelihood must give one number for every alignment, (*batch, K) = {tuple(wanted)}, "
                f"got {tuple(found.shape)}"
            )
        return found


@dataclass(eq=False)
class Latent:
    """A batch of latent choices with observed outputs: z ~ prior, y ~ f(x, z)."""

    prior: AlignmentDistribution
    log_likelihood: Callable[[Alignments], Tensor]
    """log p(y | x, x~, z_k) of shape (*batch, K) for any weighted set of alignments."""
    inferred: AlignmentDistribution | None = None
    """q(z; x, x~, y), if there is an inference network."""
    query: Float[Tensor, "*batch Dq"] | None = None
    """x~ as features; only a learned baseline uses it."""

    def __post_init__(self) -> None:
        self.prior = as_distribution(self.prior, "prior")
        self.inferred = None if self.inferred is None else as_distribution(self.inferred, "inferred")
        if not callable(self.log_likelihood):
            raise TypeError(
                "log_likelihood must be a function of alignments z, got a "
                f"{type(self.log_likelihood).__name__}; for a table with the members in its last dimension, "
                "pass `lambda z: table.gather(-1, z.index)`"
            )
        if not isinstance(self.log_likelihood, CheckedLikelihood):
            self.log_likelihood = CheckedLikelihood(self.log_likelihood)

    def soft(self) -> Float[Tensor, "*batch"]:
        """log p(y | x, x~, E_p[z]): soft attention, and the baseline of REINFORCE."""
        return self.log_marginal(self.prior.point())

    def log_marginal(self, alignments: Alignments) -> Float[Tensor, "*batch"]:
        """log E[p(y | x, x~, z)] over a weighted set of alignments."""
        return alignments.log_expect_exp(self.log_likelihood(alignments))

    def mean_log_likelihood(self, alignments: Alignments) -> Float[Tensor, "*batch"]:
        """E[log p(y | x, x~, z)] over a weighted set of alignments."""
        return alignments.expect(self.log_likelihood(alignments))

    def require_inferred(self, by: str) -> AlignmentDistribution:
        """q; raises if there is none, or if its divergence from the prior is undefined."""
        if self.inferred is None:
            raise ValueError(
                f"{by} needs q, an inference network: build LatentAttention with inference=True, or pass "
                f"`inferred` to `observe` or Latent (in a recipe, set inference.kind)"
            )
        self.inferred.check_divergence(self.prior, by)
        return self.inferred


Per = Literal["query", "example"]


@dataclass(frozen=True, eq=False)
class Estimate:
    """One number per query: report `value` and `terms`, maximise `surrogate`.

    `loss()` is what to minimise and `mean()` what to report, averaged over the queries that exist.
    """

    value: Float[Tensor, "*batch"]
    surrogate: Float[Tensor, "*batch"]
    """Its gradient estimates the gradient of the objective; its value means nothing by itself."""
    terms: dict[str, Tensor] = field(default_factory=dict)
    exists: Bool[Tensor, "*batch"] | None = None
    """The queries that have members; objectives fill it in. None: all of them."""

    def loss(self, per: Per = "query") -> Float[Tensor, ""]:
        """Minus the surrogate, summed over the queries that exist and divided by their number.

        With `per="example"`, divided by the number of examples (entries of the first dimension) that have a query.
        """
        return -self.average(self.surrogate, per)

    def mean(self, per: Per = "query") -> Float[Tensor, ""]:
        """The value to report, summed and divided as in `loss`."""
        return self.average(self.value, per)

    def average(self, value: Float[Tensor, "*batch"], per: Per) -> Float[Tensor, ""]:
        """A sum over the queries that exist, divided by the number of queries or examples."""
        if per not in get_args(Per):
            raise ValueError(f"per must be one of {', '.join(get_args(Per))}, got {per!r}")
        exists = torch.ones_like(value, dtype=torch.bool) if self.exists is None else self.exists
        counted = exists if per == "query" or exists.dim() < 2 else exists.flatten(1).any(1)
        # Padding may hold anything, so it is replaced, not multiplied away.
        return value.masked_fill(~exists, 0.0).sum() / counted.sum().clamp_min(1)
