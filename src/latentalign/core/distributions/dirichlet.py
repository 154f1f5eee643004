"""z is a mixture of members with a Dirichlet density."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, InitVar, dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.distributions import Gamma

from latentalign.core.alignments import Mixed
from latentalign.core.distributions.base import (
    DISTRIBUTIONS,
    AlignmentDistribution,
    check_scores,
    refuse_positional,
    require_count,
    require_positive,
)
from latentalign.core.numerics import in_float64, masked_log_softmax


@DISTRIBUTIONS.register("dirichlet")
@dataclass(frozen=True, eq=False)
class Dirichlet(AlignmentDistribution):
    """z is a mixture of members: Dirichlet(alpha), alpha = exp(scores) as in the paper's section 4."""

    concentration: Float[Tensor, "*batch T"]
    _: KW_ONLY
    mask: Bool[Tensor, "*batch T"]
    """True where a member exists."""
    check: InitVar[bool] = True
    """Whether to check that concentrations are positive."""

    def __post_init__(self, check: bool) -> None:
        if check:
            require_positive("concentration", self.concentration, self.mask)

    @classmethod
    def from_scores(
        cls, scores: Float[Tensor, "*batch T"], *more: Any, exists: Bool[Tensor, "..."] | None = None
    ) -> Dirichlet:
        """alpha = exp(scores), kept between 1e-4 and 1e4, where lgamma and its derivatives are exact.

        A score of -inf is a member that does not exist.
        """
        refuse_positional(cls, more)
        scores, mask = check_scores(scores, exists)
        limit = math.log(1e4)
        return cls(scores.masked_fill(~mask, 0.0).clamp(-limit, limit).exp(), mask=mask, check=False)

    def where(self, exists: Bool[Tensor, "*batch"]) -> Dirichlet:
        """The same distribution with no member where a query does not exist."""
        return replace(self, mask=self.mask & exists.unsqueeze(-1), check=False)

    def detach(self) -> Dirichlet:
        """The same distribution without gradient."""
        return replace(self, concentration=self.concentration.detach(), check=False)

    def _wide(self) -> Dirichlet:
        """The distribution in float64: differences of large lgamma values keep few digits in float32."""
        return replace(self, concentration=in_float64(self.concentration), check=False)

    @property
    def _safe(self) -> Float[Tensor, "*batch T"]:
        """Concentrations, with 1 for members that do not exist."""
        return self.concentration.masked_fill(~self.mask, 1.0)

    def _total(self) -> Float[Tensor, "*batch 1"]:
        total = self.concentration.masked_fill(~self.mask, 0.0).sum(-1, keepdim=True)
        return total.masked_fill(~self.mask.any(-1, keepdim=True), 1.0)

    @property
    def mean(self) -> Float[Tensor, "*batch T"]:
        """E[z] = alpha / sum of alpha."""
        return self.concentration.masked_fill(~self.mask, 0.0) / self._total()

    @property
    def entropy(self) -> Float[Tensor, "*batch"]:
        """Differential entropy -E[log p(z)] in nats (negative when concentrated)."""
        wide = self._wide()
        alpha, total = wide._safe, wide._total()
        each = alpha.lgamma() + (alpha - 1) * (total.digamma() - alpha.digamma())
        value = each.masked_fill(~self.mask, 0.0).sum(-1, keepdim=True) - total.lgamma()
        return value.squeeze(-1).masked_fill(~self.mask.any(-1), 0.0).to(self.concentration.dtype)

    def log_prob(self, z: Float[Tensor, "*batch T"]) -> Float[Tensor, "*batch"]:
        """log density of a mixture (with respect to the members that exist)."""
        wide = self._wide()
        alpha = wide._safe
        log_z = in_float64(z).masked_fill(~self.mask, 1.0).log()
        each = (alpha - 1) * log_z - alpha.lgamma()
        value = each.masked_fill(~self.mask, 0.0).sum(-1) + wide._total().lgamma().squeeze(-1)
        return value.masked_fill(~self.mask.any(-1), 0.0).to(self.concentration.dtype)

    def sample(self, n: int = 1) -> Mixed:
        """n draws of weight 1/n."""
        return self.rsample(n)

    def rsample(self, n: int = 1) -> Mixed:
        """n differentiable draws: implicit reparameterisation of gamma variates (Figurnov et al. 2018).

        log g = log Gamma(alpha + 1) + log(U) / alpha below alpha = 1, all in log space, so that tiny
        concentrations do not underflow.
        """
        require_count("n", n)
        alpha = self._safe.unsqueeze(-2).expand(*self.mask.shape[:-1], n, self.mask.shape[-1])
        small = (alpha < 1).to(alpha.dtype).detach()
        log_u = -torch.empty_like(alpha).exponential_()
        gamma = alpha + small
        if not alpha.is_meta:  # PyTorch has no meta kernel for the gradient of a gamma variate
            gamma = Gamma(gamma, torch.ones_like(alpha), validate_args=False).rsample()
        log_gamma = gamma.clamp_min(torch.finfo(alpha.dtype).tiny).log() + small * log_u / alpha
        z = masked_log_softmax(log_gamma, self.mask.unsqueeze(-2).expand_as(alpha)).exp()
        return Mixed.draws(z, exists=self.mask)

    def kl(self, other: Dirichlet) -> Float[Tensor, "*batch"]:
        """KL[self || other]; members that do not exist are absent from every lgamma sum."""
        p, q = self._wide(), other._wide()
        ours, theirs, total, other_total = p._safe, q._safe, p._total(), q._total()
        each = theirs.lgamma() - ours.lgamma() + (ours - theirs) * (ours.digamma() - total.digamma())
        value = (
            each.masked_fill(~self.mask, 0.0).sum(-1, keepdim=True) + total.lgamma() - other_total.lgamma()
        )
        return value.squeeze(-1).masked_fill(~self.mask.any(-1), 0.0).to(self.concentration.dtype)
