"""Ways to estimate E_{z ~ d}[log p(y | x, x~, z)] and its gradient.

Estimators that sample members accept their draws as an argument, so that a test can average over all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import torch
from jaxtyping import Int
from torch import Tensor, nn

from latentalign.core.alignments import OneHot
from latentalign.core.baselines import Baseline, leave_one_out, soft_baseline
from latentalign.core.distributions import AlignmentDistribution, Categorical, require_count
from latentalign.core.latent import Estimate, Latent
from latentalign.core.numerics import NEG_INF, masked_log_softmax


class Expectation(nn.Module, ABC):
    """An estimate of E_{z ~ d}[log f(x, z)] under a distribution d.

    Parts that learn (baselines, control variates) are submodules: they are trained and saved with the model.
    """

    abilities: ClassVar[tuple[str, ...]] = ()
    """What it asks of the distribution."""
    distribution: str = "categorical"
    """The distribution it is for, unless an objective names another."""
    takes_draws: ClassVar[bool] = False
    """Whether `forward` accepts the draws to use, member indices (*batch, n)."""
    accepts_marginals: ClassVar[bool] = False
    """Whether it may be given the marginals of queries that depend on each other, as in a chain."""

    if TYPE_CHECKING:
        __call__: Callable[..., Estimate]

    @abstractmethod
    def forward(self, latent: Latent, over: AlignmentDistribution) -> Estimate:
        """The estimate under `over`."""


class Enumerate(Expectation):
    """sum_i d_i log f_i, exactly."""

    abilities = ("enumerate",)
    accepts_marginals = True

    def forward(self, latent: Latent, over: AlignmentDistribution) -> Estimate:
        value = latent.mean_log_likelihood(over.enumerate())
        return Estimate(value, value)


class ScoreFunction(Expectation):
    """n samples with grad E[r] = E[grad r + (r - B) grad log q(z)] (Williams 1992); unbiased for every baseline."""

    abilities = ("sample", "at")
    takes_draws = accepts_marginals = True

    def __init__(self, n: int = 1, baseline: Baseline = soft_baseline) -> None:
        super().__init__()
        self.n, self.baseline = n, baseline

    def forward(
        self, latent: Latent, over: AlignmentDistribution, draws: Int[Tensor, "*batch n"] | None = None
    ) -> Estimate:
        drawn = self.draw(over) if draws is None else over.at(draws)
        # A single draw has weight one, so its mean is itself: the fused average saves a pass over the logits.
        single = drawn.log_weight.shape[-1] == 1
        reward = latent.mean_log_likelihood(drawn).unsqueeze(-1) if single else latent.log_likelihood(drawn)
        advantage = (reward - self.baseline(latent, reward)).detach()
        log_prob = drawn.log_prob.masked_fill(~drawn.present, 0.0)
        surrogate, value = drawn.expect(reward + advantage * log_prob), drawn.expect(reward)
        if hasattr(self.baseline, "fit"):
            surrogate = surrogate + self.baseline.fit(latent, value.detach())
        return Estimate(value, surrogate, {"advantage": drawn.expect(advantage.abs())})

    def draw(self, over: AlignmentDistribution) -> OneHot:
        """Weighted draws whose averages are unbiased; override it to draw in another way."""
        drawn = over.sample(self.n)
        if not isinstance(drawn, OneHot):
            raise over.lacks("at", by=type(self).__name__)
        return drawn


class SumAndSample(Expectation):
    """The k most probable members enumerated, one of the rest sampled; unbiased, exact at k = T (Liu et al. 2019)."""

    abilities = ("enumerate", "top", "log_prob_of")
    takes_draws = True
    n = 1  # draws from the rest

    def __init__(self, k: int = 5, baseline: Baseline = soft_baseline) -> None:
        super().__init__()
        require_count("k", k)
        if baseline is leave_one_out:
            raise ValueError(
                "sum-and-sample with the leave-one-out baseline would be biased: its draws are not independent "
                "draws of q; choose another baseline"
            )
        self.k, self.baseline = k, baseline

    def forward(
        self, latent: Latent, over: AlignmentDistribution, draws: Int[Tensor, "*batch 1"] | None = None
    ) -> Estimate:
        drawn = self.alignments(over, draws)
        possible = drawn.present & (drawn.log_prob != NEG_INF)  # a draw passed in may be impossible
        log_prob = drawn.log_prob.masked_fill(~possible, 0.0)
        # E[r grad log q] is the gradient of E[r] through weights that move as q does: one fused average gives
        # everything except the baseline's term.
        weights = (drawn.log_weight + log_prob - log_prob.detach()).masked_fill(~possible, NEG_INF)
        average = latent.mean_log_likelihood(replace(drawn, log_weight=weights))
        value = average.detach()
        b = self.baseline(latent, value.unsqueeze(-1)).detach().squeeze(-1)
        surrogate = average - b * drawn.expect(log_prob)
        if hasattr(self.baseline, "fit"):
            surrogate = surrogate + self.baseline.fit(latent, value)
        return Estimate(value, surrogate, {"advantage": (value - b).abs()})

    def top(self, over: AlignmentDistribution) -> Int[Tensor, "*batch k"]:
        """The k most probable members (all of them if there are fewer)."""
        return over.detach().top(min(self.k, over.mask.shape[-1])).index

    def rest(self, over: AlignmentDistribution, top: Int[Tensor, "*batch k"] | None = None) -> Categorical:
        """The distribution given that z is none of the k most probable members."""
        top = self.top(over) if top is None else top
        mask = over.mask & ~torch.zeros_like(over.mask).scatter(-1, top, True)
        log_probs = masked_log_softmax(over.enumerate().log_weight.detach(), mask)
        return Categorical(log_probs, mask=mask, check=False)

    def alignments(self, over: AlignmentDistribution, draws: Int[Tensor, "*batch 1"] | None) -> OneHot:
        """The enumerated members with their own mass, and the sampled one with the mass of all the rest."""
        top = self.top(over)
        rest = self.rest(over, top)
        index = torch.cat([top, rest.sample(1).index if draws is None else draws], -1)
        log_prob = over.log_prob_of(index)
        left = over.enumerate().log_weight.detach().exp().masked_fill(~rest.mask, 0.0).sum(-1, keepdim=True)
        left = left.log().masked_fill(~rest.mask.any(-1, keepdim=True), NEG_INF)
        weights = torch.cat([log_prob[..., :-1].detach(), left], -1)
        return OneHot(index, weights, log_prob, over.members_per_alignment)


class Pathwise(Expectation):
    """n reparameterised samples; unbiased."""

    abilities = ("rsample",)
    distribution = "dirichlet"

    def __init__(self, n: int = 1) -> None:
        super().__init__()
        self.n = n

    def forward(self, latent: Latent, over: AlignmentDistribution) -> Estimate:
        value = latent.mean_log_likelihood(over.rsample(self.n))
        return Estimate(value, value)


class GumbelSoftmax(Expectation):
    """n relaxed samples at a temperature (Jang et al. 2017).

    Biased, because log f is taken at mixtures instead of members. The bias vanishes with the temperature, while the
    variance of the gradient grows without bound. `straight_through` takes log f at members and the gradient
    of the relaxation.
    """

    abilities = ("relaxed_sample",)

    def __init__(self, n: int = 1, temperature: float = 0.1, straight_through: bool = False) -> None:
        super().__init__()
        self.n, self.temperature, self.straight_through = n, temperature, straight_through

    def forward(self, latent: Latent, over: AlignmentDistribution) -> Estimate:
        z = over.relaxed_sample(self.n, self.temperature, straight_through=self.straight_through)
        value = latent.mean_log_likelihood(z)
        return Estimate(value, value)
