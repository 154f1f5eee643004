"""z is a mixture of members: the softmax of a Gaussian."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, InitVar, dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from latentalign.core.alignments import Mixed
from latentalign.core.distributions.base import (
    DISTRIBUTIONS,
    AlignmentDistribution,
    check_scores,
    refuse_positional,
    require_count,
    require_positive,
)
from latentalign.core.numerics import NEG_INF, at_least_float32, masked_log_softmax


@DISTRIBUTIONS.register("logistic-normal")
@dataclass(frozen=True, eq=False)
class LogisticNormal(AlignmentDistribution):
    """z = softmax(mu + sigma * eps): a Gaussian in score space, independent over members."""

    loc: Float[Tensor, "*batch T"]
    scale: Float[Tensor, "*batch T"]
    _: KW_ONLY
    mask: Bool[Tensor, "*batch T"]
    """True where a member exists."""
    check: InitVar[bool] = True
    """Whether to check that scales are positive."""

    extra_scores = ("scale",)
    mean_is_softmax = True

    def __post_init__(self, check: bool) -> None:
        if check:
            require_positive("scale", self.scale, self.mask)

    @classmethod
    def from_scores(
        cls,
        scores: Float[Tensor, "*batch T"],
        scale_scores: Tensor | None = None,
        *more: Any,
        exists: Bool[Tensor, "..."] | None = None,
    ) -> LogisticNormal:
        """mu = scores, sigma = softplus(scale_scores), 1 without them; a score of -inf marks an absent member."""
        refuse_positional(cls, more)
        scores, mask = check_scores(scores, exists)
        if scale_scores is None:
            scale = torch.ones_like(scores)
        else:
            scale_scores, _ = check_scores(scale_scores, mask, "scale_scores")
            scale = F.softplus(scale_scores.masked_fill(~mask, 0.0)).clamp_min(1e-4)
        return cls(scores.masked_fill(~mask, 0.0), scale, mask=mask, check=False)

    def where(self, exists: Bool[Tensor, "*batch"]) -> LogisticNormal:
        """The same distribution with no member where a query does not exist."""
        return replace(self, mask=self.mask & exists.unsqueeze(-1), check=False)

    def detach(self) -> LogisticNormal:
        """The same distribution without gradient."""
        return replace(self, loc=self.loc.detach(), scale=self.scale.detach(), check=False)

    @property
    def mean(self) -> Float[Tensor, "*batch T"]:
        """softmax(mu): the centre, by convention; E[z] has no closed form."""
        return masked_log_softmax(self.loc, self.mask).exp()

    @property
    def entropy(self) -> Float[Tensor, "*batch"]:
        """Entropy of the Gaussian in score space, in nats."""
        each = 0.5 * math.log(2 * math.pi * math.e) + self.scale.log()
        return each.masked_fill(~self.mask, 0.0).sum(-1)

    def sample(self, n: int = 1) -> Mixed:
        """n draws of weight 1/n."""
        return self.rsample(n)

    def rsample(self, n: int = 1) -> Mixed:
        """n differentiable draws, z = softmax(mu + sigma * eps)."""
        require_count("n", n)
        shape = (*self.mask.shape[:-1], n, self.mask.shape[-1])
        noise = torch.randn(shape, dtype=self.loc.dtype, device=self.loc.device)
        scores = self.loc.unsqueeze(-2) + self.scale.unsqueeze(-2) * noise
        z = masked_log_softmax(scores, self.mask.unsqueeze(-2).expand(shape)).exp()
        return Mixed.draws(z, exists=self.mask)

    def log_prob(self, z: Float[Tensor, "*batch T"]) -> Float[Tensor, "*batch"]:
        """log density of a mixture, by the same measure as Dirichlet's; -inf on the border of the simplex.

        softmax forgets a shift c of all scores: with d_i = log z_i - mu_i and 1/prod z_i for the change of
        variables, the density is 1/prod z_i times the integral over c of prod_i N(d_i + c; 0, sigma_i^2), a
        Gaussian in c around minus the mean of d by precision.
        """
        inside = (z > 0) | ~self.mask
        log_z = at_least_float32(z).masked_fill(~self.mask | ~inside, 1.0).log()
        precision = (self.scale**-2).masked_fill(~self.mask, 0.0)
        total = precision.sum(-1, keepdim=True).masked_fill(~self.mask.any(-1, keepdim=True), 1.0)
        d = log_z - self.loc
        centred = d - (precision * d).sum(-1, keepdim=True) / total
        each = -log_z - self.scale.log() - 0.5 * precision * centred**2 - 0.5 * math.log(2 * math.pi)
        value = each.masked_fill(~self.mask, 0.0).sum(-1) - 0.5 * (total / (2 * math.pi)).log().squeeze(-1)
        return value.masked_fill(~inside.all(-1), NEG_INF).masked_fill(~self.mask.any(-1), 0.0)

    def kl(self, other: LogisticNormal) -> Float[Tensor, "*batch"]:
        """KL between the Gaussians in score space, an upper bound of the KL between the mixtures."""
        ratio = self.scale / other.scale
        each = 0.5 * (ratio**2 + ((self.loc - other.loc) / other.scale) ** 2 - 1) - ratio.log()
        return each.masked_fill(~self.mask, 0.0).sum(-1)
