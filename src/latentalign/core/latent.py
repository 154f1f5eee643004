"""What a model hands to an objective, and what an objective hands back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from latentalign.core.alignments import Alignments, Mixed
from latentalign.core.distributions import Categorical, Dirichlet, LogisticNormal

D = TypeVar("D", Categorical, Dirichlet, LogisticNormal)


@dataclass(eq=False)
class Latent(Generic[D]):
    """A batch of independent latent choices: z ~ prior, y ~ f(x, z), with y observed."""

    prior: D
    log_likelihood: Callable[[Alignments], Tensor]
    """log p(y | x, x~, z_k) of shape (*batch, K) for any weighted set of alignments."""
    inferred: D | None = None
    """q(z; x, x~, y), where there is an inference network."""
    query: Float[Tensor, "*batch Dq"] | None = None
    """x~ as features; only a learned baseline looks at it."""

    def soft(self) -> Float[Tensor, "*batch"]:
        """log p(y | x, x~, E_p[z]): soft attention, and the baseline of REINFORCE."""
        return self.log_marginal(Mixed.point(self.prior.mean, self.prior.mask))

    def log_marginal(self, alignments: Alignments) -> Float[Tensor, "*batch"]:
        """log E[p(y | x, x~, z)] over a weighted set of alignments."""
        return alignments.log_expect_exp(self.log_likelihood(alignments))

    def mean_log_likelihood(self, alignments: Alignments) -> Float[Tensor, "*batch"]:
        """E[log p(y | x, x~, z)] over a weighted set of alignments."""
        return alignments.expect(self.log_likelihood(alignments))

    def require_inferred(self, who: str) -> D:
        """q, or an error that says how to get one, or in what it does not go with the prior."""
        if self.inferred is None:
            raise ValueError(
                f"{who} needs a model with an inference network: pass `inferred` to Latent "
                f"(in a recipe, set inference.kind)"
            )
        prior, inferred = self.prior, self.inferred
        if not isinstance(inferred, type(prior)):
            raise TypeError(
                f"{who} needs prior and q of one family, got {type(prior).__name__} and {type(inferred).__name__}"
            )
        if inferred.mask.shape != prior.mask.shape:
            raise ValueError(
                f"{who} needs prior and q of one shape (*batch, T), got {tuple(prior.mask.shape)} and "
                f"{tuple(inferred.mask.shape)}"
            )
        # A density over other members than the prior's has no divergence from it; a Categorical's is +inf.
        relaxed = not isinstance(prior, Categorical) and not torch.compiler.is_compiling()
        if relaxed and not torch.equal(inferred.mask, prior.mask):
            raise ValueError(f"{who} needs prior and q over the same members: build both with one mask")
        return inferred

    def categorical(self, who: str) -> Latent[Categorical]:
        """Itself, or an error when its alignments are not discrete."""
        if not isinstance(self.prior, Categorical):
            raise TypeError(
                f"{who} needs a Categorical prior, got {type(self.prior).__name__}: "
                f"build the model with the objective's `family`"
            )
        return self


@dataclass(frozen=True, eq=False)
class Estimate:
    """One number per query: report `value` and `terms`, maximise `surrogate`."""

    value: Float[Tensor, "*batch"]
    surrogate: Float[Tensor, "*batch"]
    """Its gradient estimates the gradient of the objective; its value means nothing by itself."""
    terms: dict[str, Tensor] = field(default_factory=dict)
