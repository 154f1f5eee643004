"""Distributions over alignments: categorical, Dirichlet, logistic normal; all with masks."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.distributions import Gamma

from latentalign.core.alignments import Mixed, OneHot, equal_weights
from latentalign.core.numerics import (
    NEG_INF,
    at_least_float32,
    in_float64,
    masked_log_softmax,
    require_finite_scores,
    weighted_sum,
)


def members(scores: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Scores in float32 at least, and the mask of the members that exist and whose score is not -inf."""
    if scores.dim() == 0 or scores.shape[-1] == 0:
        raise ValueError(f"scores must be (*batch, T) with T >= 1 members, got {tuple(scores.shape)}")
    mask = full_mask(scores, mask)
    require_finite_scores("scores", scores, mask)
    return at_least_float32(scores), mask & (scores.detach() != NEG_INF)


def full_mask(scores: Tensor, mask: Tensor | None) -> Tensor:
    """The mask broadcast to the scores' shape; all True when none is given."""
    if mask is None:
        return torch.ones_like(scores, dtype=torch.bool)
    if mask.dtype != torch.bool:
        raise TypeError(f"mask must be boolean (True where a member exists), got {mask.dtype}")
    try:
        return mask.expand(scores.shape)
    except RuntimeError:
        raise ValueError(
            f"mask of shape {tuple(mask.shape)} does not broadcast to scores {tuple(scores.shape)}"
        ) from None


def require_count(name: str, n: int) -> None:
    """Raise unless there is at least one sample or member to take."""
    if n < 1:
        raise ValueError(f"{name} must be at least 1, got {n}")


@dataclass(frozen=True, eq=False)
class Categorical:
    """z is one member: p(z_i = 1) = softmax(scores)_i."""

    log_probs: Float[Tensor, "*batch T"]
    mask: Bool[Tensor, "*batch T"]

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
        """Given draws, as if they had been sampled: weight 1/n each, without gradient; none if impossible."""
        log_prob = self.log_prob_of(index)
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

    def kl(self, other: Categorical) -> Float[Tensor, "*batch"]:
        """KL[self || other]; +inf, without gradient, where other has no mass on a member that self uses.

        Such a divergence stays infinite however the scores move a little: a constant, whose gradient is zero.
        """
        # Members of zero mass are cut out before the product: 0 * inf has a NaN gradient.
        used = self.mean > 0
        impossible = used & (other.log_probs == NEG_INF)
        ours, theirs = (d.log_probs.masked_fill(~used | impossible, 0.0) for d in (self, other))
        return (self.mean * (ours - theirs)).sum(-1).masked_fill(impossible.any(-1), float("inf"))


@dataclass(frozen=True, eq=False)
class Dirichlet:
    """z is a mixture of members: Dirichlet(alpha), alpha = exp(scores) as in the paper's section 4."""

    concentration: Float[Tensor, "*batch T"]
    mask: Bool[Tensor, "*batch T"]

    @classmethod
    def from_scores(
        cls, scores: Float[Tensor, "*batch T"], mask: Bool[Tensor, "..."] | None = None
    ) -> Dirichlet:
        """alpha = exp(scores), kept between 1e-4 and 1e4, where lgamma and its derivatives are exact.

        A score of -inf is a member that does not exist.
        """
        scores, mask = members(scores, mask)
        limit = math.log(1e4)
        return cls(scores.masked_fill(~mask, 0.0).clamp(-limit, limit).exp(), mask)

    def where(self, exists: Bool[Tensor, "*batch"]) -> Dirichlet:
        """The same distribution with no member where a query does not exist."""
        return replace(self, mask=self.mask & exists.unsqueeze(-1))

    def _wide(self) -> Dirichlet:
        """In float64: sums of lgamma are differences of large numbers, of which float32 keeps few digits."""
        return replace(self, concentration=in_float64(self.concentration))

    @property
    def _safe(self) -> Float[Tensor, "*batch T"]:
        """Concentrations with 1 in the place of members that do not exist."""
        return self.concentration.masked_fill(~self.mask, 1.0)

    def _total(self) -> Float[Tensor, "*batch 1"]:
        total = self.concentration.masked_fill(~self.mask, 0.0).sum(-1, keepdim=True)
        return total.masked_fill(~self.mask.any(-1, keepdim=True), 1.0)

    @property
    def mean(self) -> Float[Tensor, "*batch T"]:
        """E[z] = alpha / sum of alpha."""
        return self.concentration.masked_fill(~self.mask, 0.0) / self._total()

    @property
    def entropy(self) -> Float[Tensor, "*batch"]:
        """Differential entropy -E[log p(z)] in nats (negative when concentrated)."""
        wide = self._wide()
        alpha, total = wide._safe, wide._total()
        each = alpha.lgamma() + (alpha - 1) * (total.digamma() - alpha.digamma())
        value = each.masked_fill(~self.mask, 0.0).sum(-1, keepdim=True) - total.lgamma()
        return value.squeeze(-1).masked_fill(~self.mask.any(-1), 0.0).to(self.concentration.dtype)

    def log_prob(self, z: Float[Tensor, "*batch T"]) -> Float[Tensor, "*batch"]:
        """log density of a mixture (with respect to the members that exist)."""
        wide = self._wide()
        alpha = wide._safe
        log_z = in_float64(z).masked_fill(~self.mask, 1.0).log()
        each = (alpha - 1) * log_z - alpha.lgamma()
        value = each.masked_fill(~self.mask, 0.0).sum(-1) + wide._total().lgamma().squeeze(-1)
        return value.masked_fill(~self.mask.any(-1), 0.0).to(self.concentration.dtype)

    def rsample(self, n: int) -> Mixed:
        """n differentiable draws: implicit reparameterisation of gamma variates (Figurnov et al. 2018).

        log g = log Gamma(alpha + 1) + log(U) / alpha below alpha = 1, all in log space, so that tiny
        concentrations do not underflow.
        """
        require_count("n", n)
        alpha = self._safe.unsqueeze(-2).expand(*self.mask.shape[:-1], n, self.mask.shape[-1])
        small = (alpha < 1).to(alpha.dtype).detach()
        log_u = -torch.empty_like(alpha).exponential_()
        gamma = Gamma(alpha + small, torch.ones_like(alpha), validate_args=False).rsample()
        log_gamma = gamma.clamp_min(torch.finfo(alpha.dtype).tiny).log() + small * log_u / alpha
        z = masked_log_softmax(log_gamma, self.mask.unsqueeze(-2).expand_as(alpha)).exp()
        return Mixed(z, equal_weights(z[..., 0], self.mask), self.mask)

    def kl(self, other: Dirichlet) -> Float[Tensor, "*batch"]:
        """KL[self || other]; members that do not exist are absent from every lgamma sum."""
        p, q = self._wide(), other._wide()
        ours, theirs, total, other_total = p._safe, q._safe, p._total(), q._total()
        each = theirs.lgamma() - ours.lgamma() + (ours - theirs) * (ours.digamma() - total.digamma())
        value = (
            each.masked_fill(~self.mask, 0.0).sum(-1, keepdim=True) + total.lgamma() - other_total.lgamma()
        )
        return value.squeeze(-1).masked_fill(~self.mask.any(-1), 0.0).to(self.concentration.dtype)


@dataclass(frozen=True, eq=False)
class LogisticNormal:
    """z = softmax(mu + sigma * eps): a Gaussian in score space, independent over members."""

    loc: Float[Tensor, "*batch T"]
    scale: Float[Tensor, "*batch T"]
    mask: Bool[Tensor, "*batch T"]

    @classmethod
    def from_scores(
        cls,
        scores: Float[Tensor, "*batch T"],
        mask: Bool[Tensor, "..."] | None = None,
        *,
        scale_scores: Float[Tensor, "*batch T"] | None = None,
    ) -> LogisticNormal:
        """mu = scores, sigma = softplus(scale_scores) (1 when none are given); -inf is a member that is absent."""
        scores, mask = members(scores, mask)
        if scale_scores is None:
            scale = torch.ones_like(scores)
        else:
            require_finite_scores("scale_scores", scale_scores, mask)
            scale = F.softplus(at_least_float32(scale_scores).masked_fill(~mask, 0.0)).clamp_min(1e-4)
        return cls(scores.masked_fill(~mask, 0.0), scale, mask)

    def where(self, exists: Bool[Tensor, "*batch"]) -> LogisticNormal:
        """The same distribution with no member where a query does not exist."""
        return replace(self, mask=self.mask & exists.unsqueeze(-1))

    @property
    def mean(self) -> Float[Tensor, "*batch T"]:
        """softmax(mu): the centre, by convention; E[z] has no closed form."""
        return masked_log_softmax(self.loc, self.mask).exp()

    @property
    def entropy(self) -> Float[Tensor, "*batch"]:
        """Entropy of the Gaussian in score space, in nats."""
        each = 0.5 * math.log(2 * math.pi * math.e) + self.scale.log()
        return each.masked_fill(~self.mask, 0.0).sum(-1)

    def rsample(self, n: int) -> Mixed:
        """n differentiable draws, z = softmax(mu + sigma * eps)."""
        require_count("n", n)
        shape = (*self.mask.shape[:-1], n, self.mask.shape[-1])
        noise = torch.randn(shape, dtype=self.loc.dtype, device=self.loc.device)
        scores = self.loc.unsqueeze(-2) + self.scale.unsqueeze(-2) * noise
        z = masked_log_softmax(scores, self.mask.unsqueeze(-2).expand(shape)).exp()
        return Mixed(z, equal_weights(z[..., 0], self.mask), self.mask)

    def log_prob(self, z: Float[Tensor, "*batch T"]) -> Float[Tensor, "*batch"]:
        """log density of a mixture, by the same measure as Dirichlet's; -inf on the border of the simplex.

        softmax forgets a shift c of all scores: with d_i = log z_i - mu_i and 1/prod z_i for the change of
        variables, the density is 1/prod z_i times the integral over c of prod_i N(d_i + c; 0, sigma_i^2), a
        Gaussian in c around minus the mean of d by precision.
        """
        inside = (z > 0) | ~self.mask
        log_z = at_least_float32(z).masked_fill(~self.mask | ~inside, 1.0).log()
        precision = (self.scale**-2).masked_fill(~self.mask, 0.0)
        total = precision.sum(-1, keepdim=True).masked_fill(~self.mask.any(-1, keepdim=True), 1.0)
        d = log_z - self.loc
        centred = d - (precision * d).sum(-1, keepdim=True) / total
        each = -log_z - self.scale.log() - 0.5 * precision * centred**2 - 0.5 * math.log(2 * math.pi)
        value = each.masked_fill(~self.mask, 0.0).sum(-1) - 0.5 * (total / (2 * math.pi)).log().squeeze(-1)
        return value.masked_fill(~inside.all(-1), NEG_INF).masked_fill(~self.mask.any(-1), 0.0)

    def kl(self, other: LogisticNormal) -> Float[Tensor, "*batch"]:
        """KL between the Gaussians in score space, an upper bound of the KL between the mixtures."""
        ratio = self.scale / other.scale
        each = 0.5 * (ratio**2 + ((self.loc - other.loc) / other.scale) ** 2 - 1) - ratio.log()
        return each.masked_fill(~self.mask, 0.0).sum(-1)
