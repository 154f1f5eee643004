"""z selects one member of the source."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentalign.core.alignments import Mixed, OneHot, equal_weights
from latentalign.core.distributions.base import (
    DISTRIBUTIONS,
    AlignmentDistribution,
    members,
    require_count,
)
from latentalign.core.numerics import NEG_INF, masked_log_softmax, weighted_sum


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
        scores, mask = members(scores, mask)
        return cls(masked_log_softmax(scores, mask), mask)

    def where(self, exists: Bool[Tensor, "*batch"]) -> Categorical:
        """The same distribution with no member where a query does not exist."""
        keep = exists.unsqueeze(-1)
        return Categorical(self.log_probs.masked_fill(~keep, NEG_INF), self.mask & keep)

    @property
    def mean(self) -> Float[Tensor, "*batch T"]:
        """E[z], the probabilities."""
        return self.log_probs.exp()

    @property
    def entropy(self) -> Float[Tensor, "*batch"]:
        """-E[log p(z)] in nats."""
        return -weighted_sum(self.mean, self.log_probs)

    def detach(self) -> Categorical:
        """The same distribution without gradient."""
        return Categorical(self.log_probs.detach(), self.mask)

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

    def sample_index(self, n: int) -> Int[Tensor, "*batch n"]:
        """n independent draws (member 0 where there is none)."""
        require_count("n", n)
        probs = self.log_probs.detach().exp()
        if probs.numel() == 0:
            return torch.zeros(*probs.shape[:-1], n, dtype=torch.long, device=probs.device)
        flat = probs.masked_fill(~self.mask.any(-1, keepdim=True), 1.0).reshape(-1, probs.shape[-1])
        return torch.multinomial(flat, n, replacement=True).view(*probs.shape[:-1], n)

    def sample(self, n: int) -> OneHot:
        """n draws of weight 1/n."""
        return self.at(self.sample_index(n))

    def at(self, index: Int[Tensor, "*batch n"]) -> OneHot:
        """Given draws, as if they had been sampled: weight 1/n each, without gradient; no weight if impossible."""
        log_prob = self.log_probs.gather(-1, index)
        log_weight = equal_weights(log_prob, self.mask).masked_fill(log_prob == NEG_INF, NEG_INF)
        return OneHot(index, log_weight, log_prob)

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
        return Mixed(z, equal_weights(z[..., 0], self.mask), self.mask)

    def kl(self, other: AlignmentDistribution) -> Float[Tensor, "*batch"]:
        """KL[self || other]; +inf, without gradient, where other has no mass on a member that self uses.

        Small changes of the scores leave such a divergence infinite, so its gradient is zero.
        """
        # Cut out members of zero mass before the product: 0 * inf has a NaN gradient.
        used = self.mean > 0
        log_other = other.enumerate().log_weight
        impossible = used & (log_other == NEG_INF)
        ours, theirs = (x.masked_fill(~used | impossible, 0.0) for x in (self.log_probs, log_other))
        return (self.mean * (ours - theirs)).sum(-1).masked_fill(impossible.any(-1), float("inf"))
