"""Stochastic variational inference: scores of q refined for each query, from zero or from a network's."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from latentalign.core.distributions import Categorical, require_count
from latentalign.core.latent import Estimate, Latent
from latentalign.core.objectives.base import Objective, objective


class SVI(Objective):
    """M steps of the sampled ELBO gradient on every query's own scores, then a model step (Hoffman et al. 2013).

    The gradient of one draw has a closed form, (r - B)(z - q) - q (log q - log p - KL[q||p]). It is sampled on
    purpose: with enumerated gradients this would be the exact marginal in disguise. The step size at iteration m is
    `rate / sqrt(m)`. With `amortized`, the scores start at those of the inference network (Kim et al. 2018), and the
    network learns to predict the refined ones, by KL[refined || q]; otherwise they start at zero.
    """

    def __init__(
        self,
        steps: int = 10,
        rate: float = 1.0,
        n: int = 1,
        *,
        amortized: bool = False,
        kl_weight: float = 1.0,
    ) -> None:
        super().__init__()
        self.name = "semi-amortized" if amortized else "svi"
        if steps < 0:
            raise ValueError(f"{self.name} needs steps >= 0 of refinement, got {steps}")
        require_count("n", n)
        self.steps, self.rate, self.n, self.kl_weight = steps, rate, n, kl_weight
        self.amortized = self.needs_inferred = amortized

    def forward(self, latent: Latent) -> Estimate:
        latent.prior.require("enumerate", by=self.name)
        refined = self.refine(latent)
        drawn = refined.sample(self.n)
        reward = latent.mean_log_likelihood(drawn)  # fused: values and gradients in one pass over the logits
        kl = refined.kl(latent.prior)
        surrogate = reward - self.kl_weight * kl if self.kl_weight else reward
        terms = {"kl": kl, "log_likelihood": reward}
        if self.amortized:
            terms["amortization"] = refined.kl(latent.require_inferred(self.name))
            surrogate = surrogate - terms["amortization"]
        return Estimate(reward - kl, surrogate, terms)

    @torch.no_grad()
    def refine(self, latent: Latent) -> Categorical:
        """q after M steps, without gradient."""
        mask = latent.prior.mask
        scores = torch.zeros_like(latent.prior.enumerate().log_prob)
        if self.amortized:
            scores = latent.require_inferred(self.name).enumerate().log_prob.masked_fill(~mask, 0.0)
        baseline = latent.soft().unsqueeze(-1)
        for step in range(self.steps):
            q = Categorical.from_scores(scores, exists=mask)
            scores = scores + self.rate / (step + 1) ** 0.5 * self.gradient(latent, q, baseline)
        return Categorical.from_scores(scores, exists=mask)

    def gradient(
        self, latent: Latent, q: Categorical, baseline: Float[Tensor, "*batch 1"]
    ) -> Float[Tensor, "*batch T"]:
        """The gradient of the ELBO by the scores of q, from n draws: E[(r - B)(z - q)] minus that of the KL."""
        drawn = q.sample(self.n)
        advantage = (latent.log_likelihood(drawn) - baseline) * drawn.log_weight.exp()
        towards = torch.zeros_like(q.log_probs).scatter_add(-1, drawn.index, advantage.to(q.log_probs.dtype))
        likelihood: Tensor = towards - q.mean * advantage.sum(-1, keepdim=True)
        ratio = (q.log_probs - latent.prior.enumerate().log_prob).masked_fill(~q.mask, 0.0)
        divergence: Tensor = q.mean * (ratio - q.kl(latent.prior).unsqueeze(-1))
        return (likelihood - self.kl_weight * divergence).masked_fill(~q.mask, 0.0)


@objective(
    "svi",
    maximises="E_q[log f(z)] - KL[q, p], q fitted to each query",
    gradient="draws of the fitted q",
    remark=", given q",
    table=3,
    truth="marginal",
)
def svi(steps: int = 10, rate: float = 1.0, n: int = 1, kl_weight: float = 1.0) -> Objective:
    """The ELBO with a q that is fitted to every query from zero (stochastic variational inference).

    Options: `steps` of the fit; `rate`, their first size; `n` draws per step; `kl_weight`, that of the divergence.
    """
    return SVI(steps, rate, n, amortized=False, kl_weight=kl_weight)


@objective(
    "semi-amortized",
    maximises="as `svi`, the fit of q starts at a network's",
    gradient="draws of the fitted q",
    remark=", given q",
    needs_inferred=True,
    table=3,
    truth="marginal",
)
def semi_amortized(steps: int = 5, rate: float = 1.0, n: int = 1, kl_weight: float = 1.0) -> Objective:
    """The ELBO with a q that is fitted to every query, starting at the inference network's.

    Options: `steps` of the fit; `rate`, their first size; `n` draws per step; `kl_weight`, that of the divergence.
    """
    return SVI(steps, rate, n, amortized=True, kl_weight=kl_weight)
