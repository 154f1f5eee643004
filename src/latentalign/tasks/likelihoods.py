"""Log-probabilities, bounds and entropies of a split: the part of an evaluation that all tasks share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from latentalign.core.distributions import AlignmentDistribution
from latentalign.core.latent import Latent
from latentalign.core.predictives import (
    ExactPredictive,
    KMaxPredictive,
    Predictive,
    SoftPredictive,
    parse_predict,
)
from latentalign.errors import InputError
from latentalign.progress import Bars
from latentalign.training.data import WeightedBatch, mean_entropy

KMAX = 5
LOG_PROBABILITIES = ("own", "exact", "soft", f"kmax{KMAX}", "elbo")
"""Log p of the observed output: under the run's own predictive, under others, and its lower bound."""
NATS = (
    "entropy_prior",
    "entropy_inferred",
    "entropy_posterior",
    "mutual_information",
    "elbo_gap",
    "jensen_gap",
)


def parse_predictive(text: str) -> Predictive:
    """A predictive inference by name; an InputError if there is none."""
    try:
        return parse_predict(text)
    except ValueError as error:
        raise InputError(str(error)) from None


@dataclass(frozen=True)
class Likelihoods:
    """What one enumeration says about a batch."""

    figures: dict[str, Tensor]
    """Log-probabilities, bounds and entropies per query: those of `LOG_PROBABILITIES` and `NATS` that exist."""
    each: Tensor | None = None
    """log p(y | x, x~, z = i) of every member, if members can be enumerated."""
    predicted: AlignmentDistribution | None = None
    """The distribution that weighs them."""


ENUMERATED: dict[Predictive, str] = {
    ExactPredictive(): "exact",
    SoftPredictive(): "soft",
    KMaxPredictive(KMAX): f"kmax{KMAX}",
}
"""Predictives whose log-probabilities are among the figures in any case."""


def compute_likelihoods(latent: Latent, predictive: Predictive) -> Likelihoods:
    """Every figure of a batch; everything discrete comes from one enumeration."""
    found = {"soft": latent.soft(), "entropy_prior": mean_entropy(latent.prior.shown)}
    if latent.inferred is not None:
        found["entropy_inferred"] = mean_entropy(latent.inferred.shown)
    each = predicted = None
    if latent.prior.per_query.supports("enumerate"):
        each = latent.prior.log_likelihoods(latent)
        predicted = latent.prior.predicted(latent, each)
        found |= enumerated_figures(latent, each, predicted)
    known = found.get(ENUMERATED.get(predictive, ""))
    found["own"] = predictive.log_prob(latent) if known is None else known
    return Likelihoods(found, each, predicted)


def enumerated_figures(latent: Latent, each: Tensor, predicted: AlignmentDistribution) -> dict[str, Tensor]:
    """The figures that need the likelihood of each member."""
    found = {"exact": predicted.enumerate().log_expect_exp(each)}
    top = predicted.top(min(KMAX, each.shape[-1]))
    found[f"kmax{KMAX}"] = top.log_expect_exp(each.gather(-1, top.index))
    weight = predicted.enumerate().log_prob + each
    posterior = (weight - found["exact"].unsqueeze(-1)).exp()
    found["entropy_posterior"] = mean_entropy(predicted.over_members(posterior))
    # KL[posterior, prior] = E_posterior[log f] - log p(y); its mean over outputs y is the mutual information.
    information = (posterior * each.masked_fill(posterior == 0, 0.0)).sum(-1) - found["exact"]
    found["mutual_information"] = information.clamp_min(0.0)
    found["jensen_gap"] = found["exact"] - latent.prior.per_query.enumerate().expect(each)
    if latent.inferred is not None:
        fit = latent.inferred.per_query.enumerate().expect(each)
        found["elbo"] = fit - latent.inferred.kl(latent.prior)
        found["elbo_gap"] = found["exact"] - found["elbo"]
    return found


def sum_log_probabilities(
    parts: Iterable[tuple[WeightedBatch[Any], Latent]],
    predictive: Predictive,
    also: Callable[[Any, Latent, Likelihoods], None] | None = None,
    *,
    total: int | None = None,
) -> dict[str, float]:
    """Weighted sums of the figures over a split; `also` sees each batch with its latent choices and likelihoods.

    Progress counts examples; `total` is their number, if it is known.
    """
    sums: dict[str, float] = defaultdict(float)
    with torch.no_grad(), Bars() as bars:
        bar = bars.add("likelihoods", total, unit="examples")
        for part, latent in parts:
            bar.advance(part.batch.examples)
            found = compute_likelihoods(latent, predictive)
            for name, values in found.figures.items():
                sums[name] += part.total(values)
            if also is not None:
                also(part, latent, found)
    return dict(sums)
