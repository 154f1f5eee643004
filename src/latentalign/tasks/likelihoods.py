"""Log-probabilities, bounds and entropies of a split: the part of an evaluation that all tasks share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from latentalign.core.latent import Latent
from latentalign.core.predictives import Predictive, parse_predict
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


def log_probabilities(latent: Latent, predictive: Predictive) -> dict[str, Tensor]:
    """Log-probabilities, bounds and entropies per query; everything discrete comes from one enumeration."""
    found = {
        "own": predictive.log_prob(latent),
        "soft": latent.soft(),
        "entropy_prior": mean_entropy(latent.prior.shown),
    }
    if latent.inferred is not None:
        found["entropy_inferred"] = mean_entropy(latent.inferred.shown)
    if not latent.prior.per_query.supports("enumerate"):
        return found
    each = latent.prior.log_likelihoods(latent)
    predicted = latent.prior.predicted(latent, each)
    found["exact"] = predicted.enumerate().log_expect_exp(each)
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
    also: Callable[[Any, Latent], None] | None = None,
    *,
    total: int | None = None,
) -> dict[str, float]:
    """Weighted sums of `log_probabilities` over a split; `also` sees each batch with its latent choices.

    Progress counts examples; `total` is their number, if it is known.
    """
    sums: dict[str, float] = defaultdict(float)
    with torch.no_grad(), Bars() as bars:
        bar = bars.add("likelihoods", total, unit="examples")
        for part, latent in parts:
            bar.advance(part.batch.examples)
            for name, values in log_probabilities(latent, predictive).items():
                sums[name] += part.total(values)
            if also is not None:
                also(part, latent)
    return dict(sums)
