"""Predictive inference: which alignments stand for the prior at test time, and what they give."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from latentalign.core.alignments import Alignments, Mixed, OneHot
from latentalign.core.distributions import Categorical, Dirichlet, LogisticNormal
from latentalign.core.kernels.certified import certified_marginal
from latentalign.core.latent import Latent


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
class CertifiedPredict(ExactPredict):
    """All members, of which those that provably cannot matter to the tolerance need not be computed."""

    tolerance: float


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
    """exact, certified:TOLERANCE, kmax:K, soft or sample:N."""
    name, _, number = text.partition(":")
    if text in ("exact", "soft"):
        return ExactPredict() if text == "exact" else SoftPredict()
    if name in ("kmax", "sample") and number.isascii() and number.isdigit() and int(number) > 0:
        return KMaxPredict(int(number)) if name == "kmax" else SamplePredict(int(number))
    if name == "certified" and (tolerance := positive(number)):
        return CertifiedPredict(tolerance)
    raise ValueError(
        "predict must be exact, certified:TOLERANCE, kmax:K, soft or sample:N with a positive number, "
        f"got {text!r}"
    )


def positive(number: str) -> float | None:
    """A positive number, or None."""
    try:
        value = float(number)
    except ValueError:
        return None
    return value if 0 < value < math.inf else None


def log_predictive(latent: Latent[Any], how: Predict) -> Float[Tensor, "*batch"]:
    """log p(y | x, x~) of the observed y."""
    if isinstance(how, CertifiedPredict):
        return certified_marginal(latent, how.tolerance).value
    return latent.log_marginal(how(latent.prior))


def exact_posterior(latent: Latent[Any]) -> Categorical:
    """p(z | x, x~, y) by Bayes' rule over all members."""
    prior = latent.categorical("the exact posterior").prior
    joint = prior.log_probs.masked_fill(~prior.mask, 0.0) + latent.log_likelihood(prior.enumerate())
    return Categorical.from_scores(joint, prior.mask)
