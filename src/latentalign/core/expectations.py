"""Ways to estimate E_{z ~ d}[log p(y | x, x~, z)] and its gradient.

Each is a frozen object that holds its own hyperparameters and answers with an `Estimate`. Estimators that
sample accept their draws, so that a test can average over all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from latentalign.core.alignments import OneHot
from latentalign.core.baselines import Baseline, leave_one_out, soft_baseline
from latentalign.core.distributions import Categorical, Dirichlet, LogisticNormal, require_count
from latentalign.core.latent import Estimate, Latent
from latentalign.core.numerics import NEG_INF, masked_log_softmax

Expectation = Callable[..., Estimate]
"""(latent, distribution, draws=None) -> Estimate of E[log f] under the distribution."""


@dataclass(frozen=True)
class Enumerate:
    """sum_i d_i log f_i, exactly."""

    families = ("categorical",)
    takes_draws = False

    def __call__(self, latent: Latent[Any], over: Categorical) -> Estimate:
        value = latent.mean_log_likelihood(over.enumerate())
        return Estimate(value, value)


@dataclass(frozen=True)
class ScoreFunction:
    """n samples with grad E[r] = E[grad r + (r - B) grad log q(z)] (Williams 1992); unbiased for every baseline."""

    n: int = 1
    baseline: Baseline = soft_baseline

    families = ("categorical",)

    def __call__(
        self, latent: Latent[Any], over: Categorical, draws: Int[Tensor, "*batch n"] | None = None
    ) -> Estimate:
        return score_function(latent, over.sample(self.n) if draws is None else over.at(draws), self.baseline)


@dataclass(frozen=True)
class SumAndSample:
    """The k most probable members enumerated, one of the rest sampled; unbiased, exact at k = T (Liu et al. 2019)."""

    k: int = 5
    baseline: Baseline = soft_baseline

    families = ("categorical",)
    n = 1  # draws of the rest

    def __post_init__(self) -> None:
        require_count("k", self.k)
        if self.baseline is leave_one_out:
            raise ValueError(
                "sum-and-sample with the leave-one-out baseline would be biased: its draws are not independent "
                "draws of q; choose another baseline"
            )

    def __call__(
        self, latent: Latent[Any], over: Categorical, draws: Int[Tensor, "*batch 1"] | None = None
    ) -> Estimate:
        drawn = self.alignments(over, draws)
        possible = drawn.present & (drawn.log_prob != NEG_INF)  # a draw that was given may not be
        log_prob = drawn.log_prob.masked_fill(~possible, 0.0)
        # E[r grad log q] is what E[r] gives through weights that move as q does: one fused average, B apart.
        weights = (drawn.log_weight + log_prob - log_prob.detach()).masked_fill(~possible, NEG_INF)
        average = latent.mean_log_likelihood(OneHot(drawn.index, weights, drawn.log_prob))
        value = average.detach()
        b = self.baseline(latent, value.unsqueeze(-1)).detach().squeeze(-1)
        return fitted(
            latent, self.baseline, value, average - b * drawn.expect(log_prob), advantage=(value - b).abs()
        )

    def top(self, over: Categorical) -> Int[Tensor, "*batch k"]:
        """The k most probable members (all of them where there are fewer)."""
        return over.log_probs.detach().topk(min(self.k, over.log_probs.shape[-1]), dim=-1).indices

    def rest(self, over: Categorical, top: Int[Tensor, "*batch k"] | None = None) -> Categorical:
        """The distribution given that z is none of the k most probable."""
        top = self.top(over) if top is None else top
        mask = over.mask & ~torch.zeros_like(over.mask).scatter(-1, top, True)
        return Categorical(masked_log_softmax(over.log_probs.detach(), mask), mask)

    def alignments(self, over: Categorical, draws: Int[Tensor, "*batch 1"] | None) -> OneHot:
        """The enumerated members with their own mass, the sampled one with all that is left."""
        top = self.top(over)
        rest = self.rest(over, top)
        index = torch.cat([top, rest.sample_index(1) if draws is None else draws], -1)
        log_prob = over.log_prob_of(index)
        left = over.mean.detach().masked_fill(~rest.mask, 0.0).sum(-1, keepdim=True)
        left = left.log().masked_fill(~rest.mask.any(-1, keepdim=True), NEG_INF)
        return OneHot(index, torch.cat([log_prob[..., :-1].detach(), left], -1), log_prob)


def score_function(latent: Latent[Any], drawn: OneHot, baseline: Baseline) -> Estimate:
    """surrogate = E[r + (r - B).detach() log q(z)] over weighted draws."""
    # A single draw has weight one, so its mean is itself: the fused average spares a pass over the logits.
    single = drawn.log_weight.shape[-1] == 1
    reward = latent.mean_log_likelihood(drawn).unsqueeze(-1) if single else latent.log_likelihood(drawn)
    advantage = (reward - baseline(latent, reward)).detach()
    log_prob = drawn.log_prob.masked_fill(~drawn.present, 0.0)
    surrogate, value = drawn.expect(reward + advantage * log_prob), drawn.expect(reward)
    return fitted(latent, baseline, value, surrogate, advantage=drawn.expect(advantage.abs()))


def fitted(
    latent: Latent[Any], baseline: Baseline, value: Tensor, surrogate: Tensor, *, advantage: Tensor
) -> Estimate:
    """The estimate, with what a baseline learns from E[r]."""
    if hasattr(baseline, "fit"):
        surrogate = surrogate + baseline.fit(latent, value.detach())
    return Estimate(value, surrogate, {"advantage": advantage})


@dataclass(frozen=True)
class Pathwise:
    """n reparameterised samples of a Dirichlet or logistic normal; unbiased."""

    n: int = 1

    families = ("dirichlet", "logistic-normal")
    takes_draws = False

    def __call__(self, latent: Latent[Any], over: Dirichlet | LogisticNormal) -> Estimate:
        value = latent.mean_log_likelihood(over.rsample(self.n))
        return Estimate(value, value)


@dataclass(frozen=True)
class GumbelSoftmax:
    """n relaxed samples at a temperature (Jang et al. 2017).

    Biased: log f is taken at mixtures, not at members. The bias goes to zero with the temperature, where the
    variance of the gradient grows without bound. `straight_through` takes log f at members and the gradient
    of the relaxation.
    """

    n: int = 1
    temperature: float = 0.1
    straight_through: bool = False

    families = ("categorical",)
    takes_draws = False

    def __call__(self, latent: Latent[Any], over: Categorical) -> Estimate:
        z = over.relaxed_sample(self.n, self.temperature, straight_through=self.straight_through)
        value = latent.mean_log_likelihood(z)
        return Estimate(value, value)
