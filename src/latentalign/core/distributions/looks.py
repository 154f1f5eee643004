"""Several looks at the source: a mixture of looks, each at one member, and two looks that depend on each other."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from latentalign.core.alignments import Mixed
from latentalign.core.distributions.base import AlignmentDistribution, check_scores, refuse_positional
from latentalign.core.distributions.categorical import Categorical
from latentalign.core.numerics import NEG_INF, log_sum_exp, masked_log_softmax

if TYPE_CHECKING:
    from latentalign.core.latent import Latent


@dataclass(frozen=True, eq=False)
class LookMixture(Categorical):
    """z = (h, i): look h and a member i, p(h, i) = w_h p_h(i); one categorical over H*T members.

    The source has the T members as look 1 sees them, then as look 2 sees them, and so on. With `null`, one more member
    stands for NULL, which no look is needed for.
    """

    looks: int = 1
    null: bool = False

    @classmethod
    def from_looks(
        cls,
        weights: Float[Tensor, "*batch H"],
        scores: Float[Tensor, "*batch H T"],
        *,
        exists: Bool[Tensor, "*batch T"],
    ) -> LookMixture:
        """Scores of the looks, and of the members for each look."""
        looks = weights.shape[-1]
        scores, mask = check_scores(scores, exists.unsqueeze(-2))
        log_weights, _ = check_scores(weights, exists.any(-1, keepdim=True), "weights")
        # A look without members gets no weight.
        usable = mask.any(-1)
        log_weights = masked_log_softmax(log_weights, usable).masked_fill(~usable, 0.0)
        members = masked_log_softmax(scores, mask) + log_weights.unsqueeze(-1)
        return cls(members.flatten(-2), mask=mask.flatten(-2), looks=looks, check=False)

    @classmethod
    def of(cls, members: Categorical, *, looks: int, null: bool = False) -> LookMixture:
        """A categorical over H*T members, and NULL, whose looks are to be told apart."""
        return cls(members.log_probs, mask=members.mask, looks=looks, null=null, check=False)

    def exact_posterior(self, latent: Latent) -> LookMixture:
        return keep_looks(self, super().exact_posterior(latent))

    def parts(self, mass: Float[Tensor, "*batch K"]) -> tuple[Tensor, Tensor]:
        """Mass by look and member, (*batch, H, T), and that of NULL, (*batch, 0 or 1)."""
        count = mass.shape[-1] - self.null
        each = mass[..., :count].unflatten(-1, (self.looks, count // self.looks))
        return each, mass[..., count:]

    def over_members(self, mass: Float[Tensor, "*batch K"]) -> Float[Tensor, "*batch T"]:
        each, null = self.parts(mass)
        return torch.cat([each.sum(-2), null], -1)

    @property
    def shown(self) -> Float[Tensor, "*batch T"]:
        """sum_h p(h, i), and NULL at the end if there is one."""
        return self.over_members(self.mean)

    @property
    def by_look(self) -> Float[Tensor, "*batch H T"]:
        """p(h, i); the sum over members is the weight of a look."""
        return self.parts(self.mean)[0]

    @property
    def merged(self) -> Categorical:
        """sum_h w_h p_h(i): the same prior if every look sees the members in the same way."""
        if self.null:
            raise ValueError("looks with NULL cannot be merged; add NULL afterwards")
        mask = self.mask.unflatten(-1, (self.looks, -1))
        log_probs = log_sum_exp(self.log_probs.unflatten(-1, (self.looks, -1)).transpose(-1, -2))
        return Categorical(log_probs, mask=mask.any(-2), check=False)


@dataclass(frozen=True, eq=False)
class LookPairs(Categorical):
    """z = (z_1, z_2): two looks, the second of which depends on what the first found; T^2 alignments.

    p(z_1 = i, z_2 = j) = p(i | x, x~) p(j | x, x~, x_i), in the order (0, 0), (0, 1), ... The source has the T members
    as look 1 sees them, then as look 2 sees them, and X z is the sum of both.
    """

    members_per_alignment = 2
    mean_is_softmax = False

    @classmethod
    def from_scores(
        cls,
        scores: Float[Tensor, "*batch T"],
        *more: Any,
        exists: Bool[Tensor, "..."] | None = None,
        second: Float[Tensor, "..."] | None = None,
    ) -> LookPairs:
        """Scores of the first look, and of the second look (last dimension) after each first one."""
        refuse_positional(cls, more)
        if second is None:
            raise TypeError(
                "LookPairs.from_scores needs second=, the scores (*batch, T, T) of the second look"
            )
        if second.shape != (*scores.shape, scores.shape[-1]):
            raise ValueError(
                f"second must be (*batch, T, T) for scores (*batch, T) {tuple(scores.shape)}, got {tuple(second.shape)}"
            )
        scores, mask = check_scores(scores, exists)
        second, pairs = check_scores(second, mask.unsqueeze(-1) & mask.unsqueeze(-2), "second")
        # A member after which nothing can be seen is no first look.
        mask = mask & pairs.any(-1)
        first = masked_log_softmax(scores, mask).masked_fill(~mask, 0.0)
        joint = (masked_log_softmax(second, pairs) + first.unsqueeze(-1)).masked_fill(~pairs, NEG_INF)
        return cls(joint.flatten(-2), mask=pairs.flatten(-2), check=False)

    @property
    def count(self) -> int:
        """T, the members that each look chooses from."""
        return math.isqrt(self.mask.shape[-1])

    @property
    def source_size(self) -> int:
        return 2 * self.count

    def exact_posterior(self, latent: Latent) -> LookPairs:
        return keep_looks(self, super().exact_posterior(latent))

    def both(self, mass: Tensor) -> tuple[Tensor, Tensor]:
        """What T^2 numbers say about each look: their sums over the other, (*batch, T) each."""
        square = mass.unflatten(-1, (self.count, self.count))
        return square.sum(-1), square.sum(-2)

    @property
    def mean(self) -> Float[Tensor, "*batch twice_T"]:
        """E[z]: the marginal of look 1, then that of look 2."""
        return torch.cat(self.both(self.log_probs.exp()), -1)

    @property
    def probs(self) -> Float[Tensor, "*batch K"]:
        """The probabilities of all pairs."""
        return self.log_probs.exp()

    def point(self) -> Mixed:
        """z = E[z]: both looks are soft, and independent of each other."""
        exists = torch.cat(self.both(self.mask.long()), -1) > 0
        return Mixed.point(self.mean, exists=exists)

    def over_members(self, mass: Float[Tensor, "*batch K"]) -> Float[Tensor, "*batch T"]:
        first, second = self.both(mass)
        return (first + second) / 2

    @property
    def shown(self) -> Float[Tensor, "*batch T"]:
        """The mean of both marginals."""
        return self.over_members(self.log_probs.exp())

    @property
    def by_look(self) -> Float[Tensor, "*batch 2 T"]:
        """p(z_1 = i) and p(z_2 = i)."""
        return torch.stack(self.both(self.log_probs.exp()), -2)

    # A relaxed pair is no pair of members.
    relaxed_sample = AlignmentDistribution.relaxed_sample


L = TypeVar("L", bound=Categorical)


def keep_looks(like: L, found: AlignmentDistribution) -> L:
    """Another distribution over the same looks."""
    assert isinstance(found, Categorical)
    return replace(like, log_probs=found.log_probs, mask=found.mask, check=False)
