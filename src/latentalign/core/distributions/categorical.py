"""z selects one member of the source."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentalign.core.alignments import Mixed, OneHot
from latentalign.core.distributions.base import (
    DISTRIBUTIONS,
    AlignmentDistribution,
    check_scores,
    require_count,
)
from latentalign.core.numerics import NEG_INF, masked_log_softmax


@DISTRIBUTIONS.register("categorical")
@dataclass(frozen=True, eq=False)
class Categorical(AlignmentDistribution):
    """z is one member: p(z_i = 1) = softmax(scores)_i."""

    log_probs: Float[Tensor, "*batch T"]
    mask: Bool[Tensor, "*batch T"]

    mean_is_softmax = True
    same_members = False  # elsewhere the divergence is +inf

    @classmethod
    def from_scores(
        cls, scores: Float[Tensor, "*batch T"], mask: Bool[Tensor, "..."] | None = None
    ) -> Categorical:
        """Normalise scores over the members that exist; a score of -inf is a member of probability zero."""
        scores, mask = check_scores(scores, mask)
        return cls(masked_log_softmax(scores, mask), mask)

    def where(self, exists: Bool[Tensor, "*batch"]) -> Categorical:
        """The same distribution with no member where a query does not exist."""
        keep = exists.unsqueeze(-1)
        return replace(self, log_probs=self.log_probs.masked_fill(~keep, NEG_INF), mask=self.mask & keep)

    @property
    def mean(self) -> Float[Tensor, "*batch T"]:
        """E[z], the probabilities."""
        return self.log_probs.exp()

    @property
    def entropy(self) -> Float[Tensor, "*batch"]:
        """-E[log p(z)] in nats."""
        probs = self.log_probs.exp()
        return -(probs * self.log_probs.masked_fill(probs == 0, 0.0)).sum(-1)

    def detach(self) -> Categorical:
        """The same distribution without gradient."""
        return replace(self, log_probs=self.log_probs.detach())

    def enumerate(self) -> OneHot:
        """Every member with its probability."""
        index = torch.arange(self.log_probs.shape[-1], device=self.log_probs.device)
        return OneHot(index.expand(self.log_probs.shape), self.log_probs, self.log_probs)

    def top(self, k: int) -> OneHot:
        """The k most probable members, renormalised."""
        require_count("k", k)
        if k > self.log_probs.shape[-1]:
            raise ValueError(f"k must be at most T = {self.log_probs.shape[-1]}, got {k}")
        log_prob, index = self.log_probs.topk(k, dim=-1)
        return OneHot(index, masked_log_softmax(log_prob, log_prob > NEG_INF), log_prob)

    def sample(self, n: int) -> OneHot:
        """n independent draws of weight 1/n; member 0, without weight, for queries without members."""
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        *batch, members = self.log_probs.shape
        if self.log_probs.numel() == 0:  # multinomial refuses an empty batch
            return self.at(torch.zeros(*batch, n, dtype=torch.long, device=self.log_probs.device))
        probs = self.log_probs.detach().exp().masked_fill(~self.mask.any(-1, keepdim=True), 1.0)
        return self.at(torch.multinomial(probs.reshape(-1, members), n, replacement=True).view(*batch, n))

    def at(self, index: Int[Tensor, "*batch n"]) -> OneHot:
        """Given draws, as if they had been sampled: weight 1/n each, without gradient; no weight if impossible."""
        log_prob = self.log_probs.gather(-1, index)
        log_weight = torch.full_like(log_prob, -math.log(log_prob.shape[-1])).detach()
        return OneHot(index, log_weight.masked_fill(log_prob == NEG_INF, NEG_INF), log_prob)

    def log_prob_of(self, index: Int[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        """log p(z = index)."""
        return self.log_probs.gather(-1, index)

    def relaxed_sample(self, n: int, temperature: float, *, straight_through: bool = False) -> Mixed:
        """softmax((log p + Gumbel noise) / temperature): Gumbel-Softmax (Jang et al. 2017; Maddison et al. 2017).

        With `straight_through` the forward value is one-hot and the gradient that of the relaxed sample.
        """
        require_count("n", n)
        if not temperature > 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        shape = (*self.log_probs.shape[:-1], n, self.log_probs.shape[-1])
        gumbel = (
            -torch.empty(shape, dtype=self.log_probs.dtype, device=self.log_probs.device).exponential_().log()
        )
        mask = self.mask.unsqueeze(-2).expand(shape)
        scores = self.log_probs.unsqueeze(-2).masked_fill(~self.mask.unsqueeze(-2), 0.0) + gumbel
        z = masked_log_softmax(scores / temperature, mask).exp()
        if straight_through:
            hard = F.one_hot(z.argmax(-1), z.shape[-1]).to(z.dtype).masked_fill(~mask, 0.0)
            z = z + (hard - z).detach()
        return Mixed.draws(z, self.mask)

    def kl(self, other: AlignmentDistribution) -> Float[Tensor, "*batch"]:
        """KL[self || other]; +inf, without gradient, where other has no mass on a member that self uses.

        Small changes of the scores leave such a divergence infinite, so its gradient is zero.
        """
        # Cut out members of zero mass before the product: 0 * inf has a NaN gradient.
        probs = self.log_probs.exp()
        used = probs > 0
        log_other = other.enumerate().log_weight
        impossible = used & (log_other == NEG_INF)
        ours, theirs = (x.masked_fill(~used | impossible, 0.0) for x in (self.log_probs, log_other))
        return (probs * (ours - theirs)).sum(-1).masked_fill(impossible.any(-1), float("inf"))
