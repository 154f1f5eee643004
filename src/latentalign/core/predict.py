"""Predictive inference: which alignments stand for the prior at test time, and what they give."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentalign.core.alignments import Alignments, Mixed, OneHot
from latentalign.core.distributions import Categorical, Dirichlet, LogisticNormal
from latentalign.core.latent import Latent
from latentalign.core.numerics import NEG_INF, log_sum_exp


@runtime_checkable
class Predict(Protocol):
    """The weighted alignments that stand for a prior."""

    def __call__(self, prior: Any) -> Alignments: ...


@dataclass(frozen=True)
class ExactPredict:
    """All members."""

    def __call__(self, prior: Categorical | Dirichlet | LogisticNormal) -> OneHot:
        if not isinstance(prior, Categorical):
            raise TypeError(f"a {type(prior).__name__} prior cannot be enumerated; predict with sample:N")
        return prior.enumerate()


@dataclass(frozen=True)
class KMaxPredict:
    """The k most probable members, renormalised (all of them where there are fewer)."""

    k: int

    def __call__(self, prior: Categorical | Dirichlet | LogisticNormal) -> OneHot:
        if not isinstance(prior, Categorical):
            raise TypeError(
                f"a {type(prior).__name__} prior has no most probable members; predict with sample:N"
            )
        return prior.top(min(self.k, prior.log_probs.shape[-1]))


@dataclass(frozen=True)
class SoftPredict:
    """The mean alone: soft attention."""

    def __call__(self, prior: Categorical | Dirichlet | LogisticNormal) -> Mixed:
        return Mixed.point(prior.mean, prior.mask)


@dataclass(frozen=True)
class SamplePredict:
    """n samples of the prior."""

    n: int

    def __call__(self, prior: Categorical | Dirichlet | LogisticNormal) -> Alignments:
        return prior.sample(self.n) if isinstance(prior, Categorical) else prior.rsample(self.n)


def parse_predict(text: str) -> Predict:
    """exact, kmax:K, soft or sample:N."""
    name, _, number = text.partition(":")
    if text in ("exact", "soft"):
        return ExactPredict() if text == "exact" else SoftPredict()
    if name in ("kmax", "sample") and number.isascii() and number.isdigit() and int(number) > 0:
        return KMaxPredict(int(number)) if name == "kmax" else SamplePredict(int(number))
    raise ValueError(f"predict must be exact, kmax:K, soft or sample:N with a positive number, got {text!r}")


def log_predictive(latent: Latent[Any], how: Predict) -> Float[Tensor, "*batch"]:
    """log p(y | x, x~) of the observed y."""
    return latent.log_marginal(how(latent.prior))


def exact_posterior(latent: Latent[Any]) -> Categorical:
    """p(z | x, x~, y) by Bayes' rule over all members."""
    prior = latent.categorical("the exact posterior").prior
    joint = prior.log_probs.masked_fill(~prior.mask, 0.0) + latent.log_likelihood(prior.enumerate())
    return Categorical.from_scores(joint, prior.mask)


@dataclass(frozen=True, eq=False)
class Certified:
    """A marginal with a proof: log p lies between `value` and `value + gap`."""

    value: Float[Tensor, "*batch"]
    gap: Float[Tensor, "*batch"]
    """log(1 + left out / found), at most log(1 + tolerance)."""
    visited: Int[Tensor, "*batch"]
    """How many members were evaluated."""


def certified_marginal(latent: Latent[Any], tolerance: float) -> Certified:
    """log p(y | x, x~) from the members that can matter.

    Members are visited in order of prior mass until the mass not yet visited is at most `tolerance` times
    the probability found: f <= 1, so what is left out cannot add more.
    """
    if not tolerance >= 0:
        raise ValueError(f"tolerance must not be negative, got {tolerance}")
    prior = latent.categorical("the certified marginal").prior
    log_prob, order = prior.log_probs.sort(dim=-1, descending=True)
    # Mass of the members from rank k on, summed from the small end so that tails keep their digits.
    log_tail = log_prob.detach().flip(-1).logcumsumexp(-1).flip(-1).masked_fill(log_prob == NEG_INF, NEG_INF)
    log_tolerance = math.log(tolerance) if tolerance else NEG_INF
    joint: list[Tensor] = []
    visited = torch.zeros_like(order[..., 0])
    exists = log_prob > NEG_INF
    open_: Bool[Tensor, "*batch"] = exists.any(-1)
    found = torch.full_like(log_tail[..., 0], NEG_INF)
    for rank in range(order.shape[-1]):
        open_ = open_ & exists[..., rank] & (log_tail[..., rank] > log_tolerance + found)
        if not open_.any():
            break
        weight = torch.zeros_like(log_tail[..., :1]).masked_fill(~open_.unsqueeze(-1), NEG_INF)
        one = OneHot(order[..., rank : rank + 1], weight, log_prob[..., rank : rank + 1])
        value = latent.log_likelihood(one).squeeze(-1) + log_prob[..., rank].masked_fill(~open_, 0.0)
        joint.append(value.masked_fill(~open_, NEG_INF))
        found = torch.logaddexp(found, joint[-1].detach())
        visited = visited + open_
    some = exists.any(-1)
    value = log_sum_exp(torch.stack(joint, -1)) if joint else torch.zeros_like(found)
    left = log_tail.gather(-1, visited.clamp(max=order.shape[-1] - 1).unsqueeze(-1)).squeeze(-1)
    gap = F.softplus(left - found).masked_fill(~some | (visited >= exists.sum(-1)), 0.0)
    return Certified(value.masked_fill(~some, 0.0), gap, visited)
