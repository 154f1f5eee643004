"""Stochastic variational inference: q's scores refined for each example, with or without a network to start from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from latentalign.core.distributions import Categorical, require_count
from latentalign.core.latent import Estimate, Latent


@dataclass(frozen=True)
class SVI:
    """M steps of the sampled ELBO gradient on every query's own scores, then a step of the model (Hoffman et al. 2013).

    The gradient of one draw is in closed form, (r - B)(z - q) - q (log q - log p - KL[q||p]); it is sampled on
    purpose: enumerated gradients would make this the exact marginal in disguise. The step at iteration m is
    `rate / sqrt(m)`. With `amortized`, the scores start at the inference network's (Kim et al. 2018) and the
    network learns to be where the refinement ends, by KL[refined || q]; otherwise they start at zero.
    """

    steps: int = 10
    rate: float = 1.0
    n: int = 1
    amortized: bool = False
    kl_weight: float = 1.0

    family = "categorical"
    predict = "exact"

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise ValueError(f"{self.name} needs steps >= 0 of refinement, got {self.steps}")
        require_count("n", self.n)

    @property
    def needs_inferred(self) -> bool:
        return self.amortized

    @property
    def name(self) -> str:
        return "semi-amortized" if self.amortized else "svi"

    def __call__(self, latent: Latent[Any]) -> Estimate:
        refined = self.refine(latent)
        drawn = refined.sample(self.n)
        reward = latent.mean_log_likelihood(drawn)  # fused: gradients in one pass over the logits
        kl = refined.kl(latent.prior)
        surrogate = reward - self.kl_weight * kl if self.kl_weight else reward
        terms = {"kl": kl, "log_likelihood": reward}
        if self.amortized:
            terms["amortization"] = refined.kl(latent.require_inferred(self.name))
            surrogate = surrogate - terms["amortization"]
        return Estimate(reward - kl, surrogate, terms)

    @torch.no_grad()
    def refine(self, latent: Latent[Any]) -> Categorical:
        """q after M steps, without gradient."""
        prior = latent.categorical(self.name).prior
        q, scores = prior, torch.zeros_like(prior.log_probs)
        if self.amortized:
            scores = latent.require_inferred(self.name).log_probs.masked_fill(~prior.mask, 0.0)
        baseline = latent.soft().unsqueeze(-1)
        for step in range(self.steps):
            q = Categorical.from_scores(scores, prior.mask)
            scores = scores + self.rate / (step + 1) ** 0.5 * self.gradient(latent, q, baseline)
        return Categorical.from_scores(scores, prior.mask)

    def gradient(
        self, latent: Latent[Any], q: Categorical, baseline: Float[Tensor, "*batch 1"]
    ) -> Float[Tensor, "*batch T"]:
        """The ELBO's gradient by q's scores from n draws, E[(r - B)(z - q)] minus the KL's own."""
        drawn = q.sample(self.n)
        advantage = (latent.log_likelihood(drawn) - baseline) * drawn.log_weight.exp()
        towards = torch.zeros_like(q.log_probs).scatter_add(-1, drawn.index, advantage.to(q.log_probs.dtype))
        likelihood: Tensor = towards - q.mean * advantage.sum(-1, keepdim=True)
        ratio = (q.log_probs - latent.prior.log_probs).masked_fill(~q.mask, 0.0)
        divergence: Tensor = q.mean * (ratio - q.kl(latent.prior).unsqueeze(-1))
        return (likelihood - self.kl_weight * divergence).masked_fill(~q.mask, 0.0)
