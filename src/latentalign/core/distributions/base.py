"""Base class of distributions over alignments, and their registry.

A new distribution is one file: a subclass of `AlignmentDistribution` with a `@DISTRIBUTIONS.register(name)` line. It
implements the abilities that it has. Objectives, estimators and predictives ask for abilities, never for a class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentalign.core.alignments import Alignments, Mixed, OneHot
from latentalign.core.checks import may_check
from latentalign.core.errors import MissingAbilityError, NonFiniteScoresError, NotNormalisedError
from latentalign.core.numerics import NEG_INF, at_least_float32
from latentalign.core.registry import Registry

if TYPE_CHECKING:
    from latentalign.core.latent import Latent

ABILITIES = ("enumerate", "top", "sample", "at", "log_prob_of", "rsample", "relaxed_sample")
"""Methods that a distribution may implement or leave out."""


class AlignmentDistribution(ABC):
    """A distribution of the alignment z of every query over the T members of its source.

    A query without members has mean 0, entropy 0, divergence 0 and alignments of weight -inf. Padding must affect
    neither values nor gradients: apply `masked_fill` before any arithmetic.
    """

    mask: Bool[Tensor, "*batch T"]
    """True where a member exists."""

    abilities: ClassVar[frozenset[str]] = frozenset()
    """The optional abilities that the class implements."""
    extra_scores: ClassVar[tuple[str, ...]] = ()
    """Names of the score tensors that `from_scores` takes after the scores; models build one score for each."""
    mean_is_softmax: ClassVar[bool] = False
    """Whether `mean` is the softmax of the (first) scores, which a recurrent decoder computes anyway."""
    same_members: ClassVar[bool] = True
    """Whether a divergence is defined only between distributions over the same members."""
    sparse: ClassVar[bool] = False
    """Whether members that exist may have a probability of zero; `mask` is then the support."""
    dependent_queries: ClassVar[bool] = False
    """Whether the queries of an example depend on each other, as in a chain."""
    members_per_alignment: ClassVar[int] = 1
    """How many members an alignment selects; more than 1 if several looks depend on each other."""

    @classmethod
    @abstractmethod
    def from_scores(cls, scores: Tensor, *more: Any, **options: Any) -> AlignmentDistribution:
        """The distribution that scores (*batch, T) describe; `more` has one tensor for each of `extra_scores`.

        The option `exists` is True where a member exists, the opposite of PyTorch's `key_padding_mask`.
        """

    @property
    @abstractmethod
    def mean(self) -> Float[Tensor, "*batch T"]:
        """E[z]."""

    @property
    @abstractmethod
    def entropy(self) -> Float[Tensor, "*batch"]:
        """-E[log p(z)] in nats."""

    @abstractmethod
    def kl(self, other: Any) -> Float[Tensor, "*batch"]:
        """KL[self || other]."""

    @abstractmethod
    def where(self, exists: Bool[Tensor, "*batch"]) -> AlignmentDistribution:
        """The same distribution with no member where a query does not exist."""

    @abstractmethod
    def detach(self) -> AlignmentDistribution:
        """The same distribution without gradient."""

    @property
    def source_size(self) -> int:
        """How many members the memory has that this distribution selects from: T, as the head sees them."""
        return self.mask.shape[-1]

    def point(self) -> Mixed:
        """The single alignment z = E[z]: soft attention."""
        return Mixed.point(self.mean, exists=self.mask)

    def over_members(self, mass: Float[Tensor, "*batch K"]) -> Float[Tensor, "*batch T"]:
        """The mass of every alignment, given to the positions of the source; with several looks, their mean."""
        return mass

    @property
    def shown(self) -> Float[Tensor, "*batch T"]:
        """E[z] over the positions of the source, for people: several looks are not told apart."""
        return self.mean

    @property
    def by_look(self) -> Float[Tensor, "*batch looks T"]:
        """E[z] over the positions of the source for every look."""
        return self.shown.unsqueeze(-2)

    def to(self, device: Any = None, dtype: torch.dtype | None = None) -> AlignmentDistribution:
        """The same distribution on another device, or in another floating-point type (also as first argument)."""
        device, dtype = (None, device) if isinstance(device, torch.dtype) else (device, dtype)
        if not is_dataclass(self):
            raise NotImplementedError(f"{type(self).__name__} is not a dataclass; implement `to`")
        tensors = {f.name: value for f in fields(self) if isinstance(value := getattr(self, f.name), Tensor)}
        return replace(
            self,
            **{
                name: value.to(device=device, dtype=dtype if value.is_floating_point() else value.dtype)
                for name, value in tensors.items()
            },
        )

    # Where the queries of an example depend on each other, a distribution overrides the next seven.

    @property
    def per_query(self) -> AlignmentDistribution:
        """The distribution of each query's alignment by itself."""
        return self

    def predicted(self, latent: Latent, log_f: Tensor | None = None) -> AlignmentDistribution:
        """The distribution of each query's alignment given the outputs of earlier queries.

        `log_f` are the `log_likelihoods`, if they are known already.
        """
        return self

    def log_likelihoods(self, latent: Latent) -> Float[Tensor, "*batch T"]:
        """log p(y | x, x~, z = i) of every member."""
        self.require("enumerate", by="the likelihood of every member")
        return latent.log_likelihood(self.enumerate())

    def log_evidence(self, latent: Latent) -> Float[Tensor, "*batch"]:
        """log p(y | x, x~) of every query, with all alignments summed out."""
        self.require("enumerate", by="a sum over all alignments")
        return latent.log_marginal(self.enumerate())

    def exact_posterior(self, latent: Latent) -> AlignmentDistribution:
        """p(z | x, x~, y) by Bayes' rule over all members."""
        from latentalign.core.distributions.categorical import Categorical  # it needs this module

        self.require("enumerate", by="the exact posterior")
        log_prior = self.enumerate().log_weight.masked_fill(~self.mask, 0.0)
        return Categorical.from_scores(log_prior + self.log_likelihoods(latent), exists=self.mask)

    @property
    def mode(self) -> Int[Tensor, "*batch"]:
        """The most probable alignments; 0 for queries without members."""
        raise self.lacks("mode")

    def kl_from(self, q: AlignmentDistribution) -> Float[Tensor, "*batch"]:
        """KL[q || self] for a q whose queries are independent."""
        raise self.lacks("kl_from")

    # Optional abilities: a subclass implements those that it has.

    def enumerate(self) -> OneHot:
        """Every member, in order, with its probability as weight."""
        raise self.lacks("enumerate")

    def top(self, k: int) -> OneHot:
        """The k most probable members, renormalised."""
        raise self.lacks("top")

    def sample(self, n: int = 1) -> Alignments:
        """n draws of weight 1/n."""
        raise self.lacks("sample")

    def at(self, index: Int[Tensor, "*batch n"]) -> OneHot:
        """Given draws, as if they had been sampled: weight 1/n each, without gradient."""
        raise self.lacks("at")

    def log_prob_of(self, index: Int[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        """log p(z = index)."""
        raise self.lacks("log_prob_of")

    def rsample(self, n: int = 1) -> Mixed:
        """n draws of weight 1/n that carry a gradient."""
        raise self.lacks("rsample")

    def relaxed_sample(self, n: int, temperature: float, *, straight_through: bool = False) -> Mixed:
        """n draws of a continuous relaxation."""
        raise self.lacks("relaxed_sample")

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        base = AlignmentDistribution
        cls.abilities = frozenset(n for n in ABILITIES if getattr(cls, n) is not getattr(base, n))

    @classmethod
    def supports(cls, *abilities: str) -> bool:
        """Whether the distribution implements all of these abilities."""
        return cls.abilities.issuperset(abilities)

    @classmethod
    def require(cls, *abilities: str, by: str) -> None:
        """Raise if the distribution lacks an ability that `by` needs."""
        for ability in abilities:
            if ability not in cls.abilities:
                raise cls.lacks(ability, by)

    @classmethod
    def lacks(cls, ability: str, by: str = "this call") -> MissingAbilityError:
        """The error for an ability that the distribution does not implement."""
        able = [name for name, kind in DISTRIBUTIONS.items() if kind.supports(ability)]
        return MissingAbilityError(
            f"{by} needs `{ability}`, which {cls.__name__} does not implement; use a distribution that does "
            f"({', '.join(able) or 'none is registered'}), or a method that samples (predict with sample:N)"
        )

    def check_divergence(self, prior: AlignmentDistribution, by: str) -> None:
        """Raise unless KL[self || prior] is defined."""
        independent = prior.dependent_queries and self.supports("enumerate")
        if not (isinstance(prior, type(self)) or independent):
            raise TypeError(
                f"{by} needs prior and q of one distribution, got {type(prior).__name__} and {type(self).__name__}"
            )
        if self.mask.shape != prior.mask.shape:
            raise ValueError(
                f"{by} needs prior and q of one shape (*batch, T), got {tuple(prior.mask.shape)} and "
                f"{tuple(self.mask.shape)}"
            )
        if prior.sparse and may_check(self.mask) and (self.mask & ~prior.mask).any():
            raise ValueError(
                f"{by} needs a q without mass outside of the support of a sparse prior, because its divergence is "
                "infinite there; use marginal, which sums over the support, or build q with exists=prior.mask"
            )
        if self.same_members and may_check(self.mask) and not torch.equal(self.mask, prior.mask):
            raise ValueError(f"{by} needs prior and q over the same members: build both with one `exists`")


DISTRIBUTIONS: Registry[type[AlignmentDistribution]] = Registry("distribution")
"""Distributions by name; models build any of them from scores."""


MASKS_BY_NAME = (
    "masks are passed by name, because their meaning differs: exists= is True where a member exists; PyTorch's "
    "key_padding_mask is True at padding, so pass exists=~key_padding_mask"
)


def check_scores(scores: Tensor, exists: Tensor | None, name: str = "scores") -> tuple[Tensor, Tensor]:
    """Scores in float32 at least, and the mask of the members that exist and whose score is not -inf.

    Raises if shapes do not fit, or if a score of an existing member is NaN or +inf.
    """
    if scores.dim() == 0 or scores.shape[-1] == 0:
        raise ValueError(f"{name} must be (*batch, T) with T >= 1 members, got {tuple(scores.shape)}")
    if scores.dtype == torch.bool:
        raise TypeError(f"{name} must be floating point, got torch.bool; {MASKS_BY_NAME}")
    if exists is None:
        exists = torch.ones_like(scores, dtype=torch.bool)
    if exists.dtype != torch.bool:
        raise TypeError(f"exists must be boolean (True where a member exists), got {exists.dtype}")
    try:
        exists = exists.expand(scores.shape)
    except RuntimeError:
        raise ValueError(
            f"exists of shape {tuple(exists.shape)} does not broadcast to {name} {tuple(scores.shape)}"
        ) from None
    if may_check(scores):
        bad = (scores.isnan() | (scores == float("inf"))) & exists
        if bad.any():
            where = tuple(bad.nonzero()[0].tolist())
            raise NonFiniteScoresError(
                f"{name} must be finite or -inf where a member exists, got {scores[where].item()} at {where} "
                f"({int(bad.sum())} such of {bad.numel()})"
            )
    return at_least_float32(scores), exists & (scores.detach() != NEG_INF)


def refuse_positional(kind: type, more: tuple[Any, ...]) -> None:
    """Raise for arguments after the scores of a distribution that takes nothing else; they are usually masks."""
    if more:
        raise TypeError(f"{kind.__name__}.from_scores takes one tensor of scores; {MASKS_BY_NAME}")


def require_count(name: str, n: int) -> None:
    """Raise unless n is a number of at least 1; PyTorch's shapes, such as (5,), are refused."""
    if not isinstance(n, int):
        raise TypeError(f"{name} must be a whole number, not a shape, got {n!r}")
    if n < 1:
        raise ValueError(f"{name} must be at least 1, got {n}")


def require_positive(name: str, value: Tensor, mask: Tensor) -> None:
    """Raise unless the parameters of existing members are finite and above 0."""
    if may_check(value):
        wrong = mask & ~((value > 0) & value.isfinite())
        if wrong.any():
            raise NotNormalisedError(
                f"{name} must be finite and above 0 where a member exists, got {float(value[wrong][0]):.6g}"
            )
