"""Objectives from n importance-weighted samples of q, in log space: w = log p(z) + log p(y|z) - log q(z)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentalign.core.alignments import OneHot
from latentalign.core.latent import Estimate, Latent
from latentalign.core.numerics import NEG_INF, log_sum_exp
from latentalign.core.objectives.base import Objective, objective


@dataclass(frozen=True, eq=False)
class Weighted:
    """Draws of q with the three log-probabilities that make their importance weights."""

    drawn: OneHot
    log_prior: Float[Tensor, "*batch n"]
    log_likelihood: Float[Tensor, "*batch n"]
    log_inferred: Float[Tensor, "*batch n"]

    @property
    def log_weight(self) -> Float[Tensor, "*batch n"]:
        return self.log_prior + self.log_likelihood - self.log_inferred

    def bound(self) -> Float[Tensor, "*batch"]:
        """log 1/n sum_k w_k: the bound of importance weighted autoencoders (Burda et al. 2016)."""
        return self.drawn.log_expect_exp(self.log_weight)


def draw(
    latent: Latent, by: str, n: int, draws: Int[Tensor, "*batch n"] | None
) -> tuple[OneHot, Float[Tensor, "*batch n"]]:
    """n draws of q, and their log-probabilities under the prior."""
    inferred = latent.require_inferred(by)
    inferred.require("sample", "at", "log_prob_of", by=by)
    drawn = inferred.at(draws) if draws is not None else cast(OneHot, inferred.sample(n))
    return drawn, latent.prior.log_prob_of(drawn.index)


def weigh(latent: Latent, by: str, n: int, draws: Int[Tensor, "*batch n"] | None) -> Weighted:
    """n draws of q with their likelihoods; equal draws are computed once."""
    drawn, log_prior = draw(latent, by, n, draws)
    absent = ~drawn.present
    log_f = latent.log_likelihood(drawn.merged()).gather(-1, drawn.first_of_equals())
    return Weighted(drawn, *(x.masked_fill(absent, 0.0) for x in (log_prior, log_f, drawn.log_prob)))


@objective(
    "rws",
    maximises="log E_p[f(z)] (reweighted wake-sleep)",
    gradient="n self-normalised importance weights",
    unbiased=False,
    remark=", less biased as n grows",
    needs_inferred=True,
    table=3,
    truth="marginal",
)
class RWS(Objective):
    """Reweighted wake-sleep with the wake update of q (Bornschein and Bengio 2015; Ba et al. 2015).

    Biased for finite n: the self-normalised weights estimate the exact posterior, so that as n grows the
    gradient tends to that of the marginal likelihood for the model and of -KL[posterior || q] for q.

    Options: `n` draws per query.
    """

    needs_inferred = True

    def __init__(self, n: int = 5) -> None:
        super().__init__()
        self.n = n

    def forward(self, latent: Latent, draws: Int[Tensor, "*batch n"] | None = None) -> Estimate:
        drawn, log_prior = draw(latent, "rws", self.n, draws)
        # sum of share_k (log p + log f + log q) has the gradient of log sum_k exp(log w_k + log f) if log w_k moves
        # as log p + log q do. So one fused average gives bound and surrogate; equal draws are computed once.
        moving = log_prior + drawn.log_prob
        possible = drawn.present & (moving > NEG_INF)
        moving = moving.masked_fill(~possible, 0.0)
        fixed = (log_prior - drawn.log_prob).masked_fill(~possible, NEG_INF).detach() + drawn.log_weight
        weighted = replace(drawn, log_weight=fixed + moving - moving.detach()).merged()
        bound = latent.log_marginal(weighted)
        nothing = drawn.present.any(-1) & ~possible.any(-1)  # the prior has no mass on any draw
        return Estimate(bound.masked_fill(nothing, NEG_INF), bound, {"distinct": weighted.present.sum(-1)})


@objective(
    "vimco",
    maximises="E_q[log 1/n sum of p f / q]",
    gradient="score function, leave-one-out signal",
    needs_inferred=True,
    table=3,
    truth="marginal",
)
class VIMCO(Objective):
    """The importance weighted bound with a leave-one-out learning signal (Mnih and Rezende 2016).

    Unbiased for its own bound, E_q[log 1/n sum_k w_k]; needs n >= 2. The bound itself carries the pathwise
    term, the gradient through p, f and q inside the weights.

    Options: `n` draws per query, at least 2.
    """

    needs_inferred = True

    def __init__(self, n: int = 5) -> None:
        super().__init__()
        require_two(n)
        self.n = n

    def forward(self, latent: Latent, draws: Int[Tensor, "*batch n"] | None = None) -> Estimate:
        s = weigh(latent, "vimco", self.n, draws)
        require_two(s.drawn.index.shape[-1])
        bound = s.bound()
        signal = (bound.unsqueeze(-1) - self.without_each(s.log_weight)).detach()
        # A bound of -inf stays -inf under small changes, so there is nothing to learn from it.
        signal = signal.masked_fill(~s.drawn.present | (bound == NEG_INF).unsqueeze(-1), 0.0)
        return Estimate(bound, bound + (signal * s.log_inferred).sum(-1), {"signal": signal.abs().mean(-1)})

    def without_each(self, log_weight: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        """The bound with each draw's weight replaced by the geometric mean of the others'.

        Weights of zero are left out of the mean. If all the others are zero it gives 0, which is unbiased too.
        """
        n = log_weight.shape[-1]
        possible = log_weight != NEG_INF
        log_weight = log_weight.masked_fill(~possible, 0.0)
        count = possible.sum(-1, keepdim=True) - possible.long()
        mean = (log_weight.sum(-1, keepdim=True) - log_weight) / count.clamp_min(1)
        others = ~torch.eye(n, dtype=torch.bool, device=log_weight.device) & possible.unsqueeze(-2)
        rest = log_sum_exp(log_weight.unsqueeze(-2).expand(others.shape).masked_fill(~others, NEG_INF))
        return (torch.logaddexp(rest, mean) - math.log(n)).masked_fill(count == 0, 0.0)


def require_two(n: int) -> None:
    """Raise unless every draw has another one to be compared with."""
    if n < 2:
        raise ValueError(f"vimco needs n >= 2 samples for its leave-one-out signal, got {n}")
