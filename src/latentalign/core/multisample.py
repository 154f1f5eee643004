"""Objectives from n samples of q weighted by importance, all in log space: w = log p(z) + log p(y|z) - log q(z)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentalign.core.alignments import OneHot
from latentalign.core.latent import Estimate, Latent
from latentalign.core.numerics import NEG_INF, log_sum_exp, masked_log_softmax


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


def draw(latent: Latent[Any], who: str, n: int, draws: Int[Tensor, "*batch n"] | None) -> Weighted:
    """n draws of q and their log-probabilities under prior, likelihood and q."""
    inferred = latent.categorical(who).require_inferred(who)
    drawn = inferred.sample(n) if draws is None else inferred.at(draws)
    present = drawn.present
    log_prior = latent.prior.log_prob_of(drawn.index).masked_fill(~present, 0.0)
    return Weighted(drawn, log_prior, latent.log_likelihood(drawn), drawn.log_prob.masked_fill(~present, 0.0))


@dataclass(frozen=True)
class RWS:
    """Reweighted wake-sleep with the wake update of q (Bornschein and Bengio 2015; Ba et al. 2015).

    Biased for finite n: the self-normalised weights estimate the exact posterior, so that as n grows the
    gradient tends to that of the marginal likelihood for the model and of -KL[posterior || q] for q.
    """

    n: int = 5

    family = "categorical"
    needs_inferred = True
    predict = "exact"

    def __call__(self, latent: Latent[Any], draws: Int[Tensor, "*batch n"] | None = None) -> Estimate:
        s = draw(latent, "rws", self.n, draws)
        log_weight = s.log_weight.detach()
        share = masked_log_softmax(log_weight, s.drawn.present).exp().detach()
        each = share * (s.log_prior + s.log_likelihood + s.log_inferred)
        surrogate = each.masked_fill(share == 0, 0.0).sum(-1)  # 0 * -inf where the prior has no mass
        return Estimate(s.bound(), surrogate, {"effective_samples": effective(share)})


def effective(share: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch"]:
    """1 / sum of squared shares: how many of the draws count (0 where there is no member)."""
    squares = (share**2).sum(-1)
    return torch.where(squares > 0, 1 / squares.clamp_min(1e-30), 0.0)


@dataclass(frozen=True)
class VIMCO:
    """The importance weighted bound with a leave-one-out learning signal (Mnih and Rezende 2016).

    Unbiased for its own bound, E_q[log 1/n sum_k w_k]; needs n >= 2. The bound itself carries the pathwise
    term, the gradient through p, f and q inside the weights.
    """

    n: int = 5

    family = "categorical"
    needs_inferred = True
    predict = "exact"

    def __post_init__(self) -> None:
        require_two(self.n)

    def __call__(self, latent: Latent[Any], draws: Int[Tensor, "*batch n"] | None = None) -> Estimate:
        s = draw(latent, "vimco", self.n, draws)
        require_two(s.drawn.index.shape[-1])
        bound = s.bound()
        signal = (bound.unsqueeze(-1) - self.without_each(s.log_weight)).detach()
        # A bound of -inf is constant around here, as the divergence then is: nothing to learn from.
        signal = signal.masked_fill(~s.drawn.present | (bound == NEG_INF).unsqueeze(-1), 0.0)
        return Estimate(bound, bound + (signal * s.log_inferred).sum(-1), {"signal": signal.abs().mean(-1)})

    def without_each(self, log_weight: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        """The bound with each draw's weight replaced by the geometric mean of the others'.

        Weights of zero are left out of the mean; 0, which is as unbiased, where all the others are zero.
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
    """Raise unless there is another draw to compare each with."""
    if n < 2:
        raise ValueError(f"vimco needs n >= 2 samples for its leave-one-out signal, got {n}")
