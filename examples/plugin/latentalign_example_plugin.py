"""A plugin for latentalign: one objective, one score, one distribution and one predictive."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from latentalign import (
    AlignmentDistribution,
    Categorical,
    Estimate,
    Latent,
    Objective,
    OneHot,
    Predictive,
    ProjectedScore,
    objective,
)
from latentalign.core.distributions import check_scores

NEG_INF = float("-inf")


@objective("entropy-marginal", maximises="log E_p[f(z)] + bonus H[p]", gradient="exact, all members")
class EntropyMarginal(Objective):
    """log E_p[f] + bonus H[p]: the exact marginal likelihood with an entropy bonus for the prior."""

    def __init__(self, bonus: float = 0.1, distribution: str = "categorical") -> None:
        super().__init__()
        self.bonus, self.distribution = bonus, distribution

    def forward(self, latent: Latent) -> Estimate:
        value = latent.log_marginal(latent.prior.enumerate())
        entropy = latent.prior.entropy
        return Estimate(value, value + self.bonus * entropy, {"entropy": entropy})


class CosineScore(ProjectedScore):
    """s cos(x~, W x_i) with a learned scale s."""

    def __init__(self, query_dim: int, memory_dim: int) -> None:
        super().__init__()
        self.from_memory = nn.Linear(memory_dim, query_dim, bias=False)
        self.scale = nn.Parameter(torch.ones(1))

    def project(self, memory: Tensor) -> Tensor:
        return normalize(self.from_memory(memory), dim=-1)

    def scores(self, query: Tensor, projected: Tensor) -> Tensor:
        return self.scale * (normalize(query, dim=-1).unsqueeze(-2) * projected).sum(-1)


def build_cosine(*, query_dim: int, memory_dim: int, hidden: int) -> CosineScore:
    """A cosine score; it has no hidden layer."""
    return CosineScore(query_dim, memory_dim)


class TaylorSoftmax(Categorical):
    """p_i ~ 1 + s_i + s_i^2 / 2: a softmax with a heavier tail (de Brebisson and Vincent 2016).

    Only the way from scores to probabilities is new, so all abilities of a categorical are inherited.
    """

    mean_is_softmax = False

    @classmethod
    def from_scores(cls, scores: Tensor, *, exists: Tensor | None = None) -> TaylorSoftmax:
        scores, mask = check_scores(scores, exists)
        scores = scores.masked_fill(~mask, 0.0)
        weights = (1 + scores + scores**2 / 2).log().masked_fill(~mask, NEG_INF)
        total = weights.masked_fill(~mask.any(-1, keepdim=True), 0.0).logsumexp(-1, keepdim=True)
        return cls(weights - total, mask=mask)


@dataclass(frozen=True)
class Nucleus(Predictive):
    """The most probable members that together hold a share of the mass, renormalised."""

    share: float

    usage = "nucleus:SHARE"
    abilities = ("top",)

    @classmethod
    def parse(cls, argument: str) -> Nucleus:
        share = float(argument)
        if not 0 < share <= 1:
            raise ValueError(f"expected a share above 0 and at most 1, got {argument!r}")
        return cls(share)

    def alignments(self, prior: AlignmentDistribution) -> OneHot:
        ordered = prior.top(prior.mask.shape[-1])  # the most probable member first
        weight = ordered.log_weight.exp()
        left_out = weight.cumsum(-1) - weight >= self.share
        kept = ordered.log_weight.masked_fill(left_out, NEG_INF)
        total = kept.logsumexp(-1, keepdim=True)
        return OneHot(ordered.index, kept - total.masked_fill(total == NEG_INF, 0.0), ordered.log_prob)
