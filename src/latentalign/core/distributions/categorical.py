"""z selects one member of the source."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, InitVar, dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentalign.core.alignments import Mixed, OneHot
from latentalign.core.checks import may_check
from latentalign.core.distributions.base import (
    DISTRIBUTIONS,
    AlignmentDistribution,
    check_scores,
    refuse_positional,
    require_count,
)
from latentalign.core.errors import NotNormalisedError
from latentalign.core.numerics import NEG_INF, draw_members, masked_log_softmax


@DISTRIBUTIONS.register("categorical")
@dataclass(frozen=True, eq=False)
class Categorical(AlignmentDistribution):
    """z is one member: p(z_i = 1) = softmax(scores)_i."""

    log_probs: Float[Tensor, "*batch T"]
    _: KW_ONLY
    mask: Bool[Tensor, "*batch T"]
    """True where a member exists."""
    check: InitVar[bool] = True
    """Whether to check that the probabilities of every query sum to one."""

    mean_is_softmax = True
    same_members = False  # elsewhere the divergence is +inf

    def __post_init__(self, check: bool) -> None:
        if not check or not may_check(self.log_probs):
            return
        total = self.log_probs.detach().masked_fill(~self.mask, NEG_INF).exp().sum(-1)
        outside = (self.log_probs.detach() > NEG_INF) & ~self.mask
        wrong = ((total - 1).abs() > 1e-3) & self.mask.any(-1) | total.isnan() | outside.any(-1)
        if wrong.any():
            raise NotNormalisedError(
                f"the probabilities of a query must sum to 1 over the members that exist and be 0 elsewhere, got a "
                f"sum of {float(total[wrong][0]):.6g}; Categorical.from_scores normalises scores"
            )

    @classmethod
    def from_scores(
        cls, scores: Float[Tensor, "*batch T"], *more: Any, exists: Bool[Tensor, "..."] | None = None
    ) -> Categorical:
        """Normalise scores over the members that exist; a score of -inf is a member of probability zero."""
        refuse_positional(cls, more)
        scores, mask = check_scores(scores, exists)
        return cls(masked_log_softmax(scores, mask), mask=mask, check=False)

    @classmethod
    def from_probs(cls, probs: Float[Tensor, "*batch T"], *, check: bool = True) -> Categorical:
        """Probabilities that sum to one, or to zero for a query without members; a probability of 0 is no member."""
        used = probs > 0
        return cls(probs.masked_fill(~used, 1.0).log().masked_fill(~used, NEG_INF), mask=used, check=check)

    def where(self, exists: Bool[Tensor, "*batch"]) -> Categorical:
        """The same distribution with no member where a query does not exist."""
        keep = exists.unsqueeze(-1)
        log_probs = self.log_probs.masked_fill(~keep, NEG_INF)
        return replace(self, log_probs=log_probs, mask=self.mask & keep, check=False)

    @property
    def mean(self) -> Float[Tensor, "*batch T"]:
        """E[z], the probabilities."""
        return self.log_probs.exp()

    @property
    def probs(self) -> Float[Tensor, "*batch T"]:
        """The probabilities, as in `torch.distributions`; the same as `mean`."""
        return self.mean

    @property
    def logits(self) -> Float[Tensor, "*batch T"]:
        """The normalised log-probabilities, as in `torch.distributions`; the same as `log_probs`."""
        return self.log_probs

    @property
    def mode(self) -> Int[Tensor, "*batch"]:
        """The most probable member; 0 for queries without members."""
        return self.log_probs.argmax(-1)

    def log_prob(self, value: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """log p(z = value), for one member per query."""
        return self.log_probs.gather(-1, value.unsqueeze(-1)).squeeze(-1)

    @property
    def entropy(self) -> Float[Tensor, "*batch"]:
        """-E[log p(z)] in nats."""
        probs = self.log_probs.exp()
        return -(probs * self.log_probs.masked_fill(probs == 0, 0.0)).sum(-1)

    def detach(self) -> Categorical:
        """The same distribution without gradient."""
        return replace(self, log_probs=self.log_probs.detach(), check=False)

    def one_hot(self, index: Tensor, log_weight: Tensor, log_prob: Tensor) -> OneHot:
        """Some alignments with their weights."""
        return OneHot(index, log_weight, log_prob, self.members_per_alignment)

    def enumerate(self) -> OneHot:
        """Every member with its probability."""
        index = torch.arange(self.log_probs.shape[-1], device=self.log_probs.device)
        return self.one_hot(index.expand(self.log_probs.shape), self.log_probs, self.log_probs)

    def top(self, k: int) -> OneHot:
        """The k most probable members, renormalised."""
        require_count("k", k)
        if k > self.log_probs.shape[-1]:
            raise ValueError(f"k must be at most T = {self.log_probs.shape[-1]}, got {k}")
        log_prob, index = self.log_probs.topk(k, dim=-1)
        return self.one_hot(index, masked_log_softmax(log_prob, log_prob > NEG_INF), log_prob)

    def sample(self, n: int = 1) -> OneHot:
        """n independent draws of weight 1/n; member 0, without weight, for queries without members."""
        require_count("n", n)
        if self.log_probs.numel() == 0:  # multinomial refuses an empty batch
            return self.at(
                torch.zeros(*self.mask.shape[:-1], n, dtype=torch.long, device=self.log_probs.device)
            )
        probs = self.log_probs.detach().exp().masked_fill(~self.mask.any(-1, keepdim=True), 1.0)
        return self.at(draw_members(probs, n))

    def at(self, index: Int[Tensor, "*batch n"]) -> OneHot:
        """Given draws, as if they had been sampled: weight 1/n each, without gradient; no weight if impossible."""
        log_prob = self.log_probs.gather(-1, index)
        log_weight = torch.full_like(log_prob, -math.log(log_prob.shape[-1])).detach()
        return self.one_hot(index, log_weight.masked_fill(log_prob == NEG_INF, NEG_INF), log_prob)

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
            hard = torch.zeros_like(z).scatter(-1, z.argmax(-1, keepdim=True), 1.0).masked_fill(~mask, 0.0)
            z = z + (hard - z).detach()
        return Mixed.draws(z, exists=self.mask)

    def kl(self, other: AlignmentDistribution) -> Float[Tensor, "*batch"]:
        """KL[self || other]; +inf, without gradient, where other has no mass on a member that self uses.

        Small changes of the scores leave such a divergence infinite, so its gradient is zero.
        """
        if other.dependent_queries:
            return other.kl_from(self)
        # Cut out members of zero mass before the product: 0 * inf has a NaN gradient.
        probs = self.log_probs.exp()
        used = probs > 0
        log_other = other.enumerate().log_weight
        impossible = used & (log_other == NEG_INF)
        ours, theirs = (x.masked_fill(~used | impossible, 0.0) for x in (self.log_probs, log_other))
        return (probs * (ours - theirs)).sum(-1).masked_fill(impossible.any(-1), float("inf"))
