"""What a model hands to an objective, and what an objective hands back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor

from latentalign.core.alignments import Alignments, Mixed
from latentalign.core.distributions import AlignmentDistribution


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

    def soft(self) -> Float[Tensor, "*batch"]:
        """log p(y | x, x~, E_p[z]): soft attention, and the baseline of REINFORCE."""
        return self.log_marginal(Mixed.point(self.prior.mean, self.prior.mask))

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
                f"{by} needs a model with an inference network: pass `inferred` to Latent "
                f"(in a recipe, set inference.kind)"
            )
        self.inferred.check_divergence(self.prior, by)
        return self.inferred


@dataclass(frozen=True, eq=False)
class Estimate:
    """One number per query: report `value` and `terms`, maximise `surrogate`."""

    value: Float[Tensor, "*batch"]
    surrogate: Float[Tensor, "*batch"]
    """Its gradient estimates the gradient of the objective; its value means nothing by itself."""
    terms: dict[str, Tensor] = field(default_factory=dict)
