"""Predictive inference: which alignments stand for the prior at test time."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from jaxtyping import Float
from torch import Tensor

from latentalign.core.alignments import Alignments
from latentalign.core.devices import prefers_static_shapes
from latentalign.core.distributions import AlignmentDistribution
from latentalign.core.kernels.beam import Beam, certified_log_probs
from latentalign.core.kernels.certified import certified_marginal
from latentalign.core.kernels.pairs import is_factored
from latentalign.core.latent import Latent
from latentalign.core.registry import Registry

if TYPE_CHECKING:
    from latentalign.core.choice import LatentChoice


class Predictive(ABC):
    """A way to predict: the weighted alignments that stand for a prior.

    `NAME` or `NAME:ARGUMENT` on the command line becomes `PREDICTIVES[NAME].parse(ARGUMENT)`.
    """

    usage: ClassVar[str] = ""
    """How it is written, such as kmax:K."""
    abilities: ClassVar[tuple[str, ...]] = ()
    """What it asks of the prior."""
    deterministic: ClassVar[bool] = True
    """Whether it draws no random numbers, so that batches may be computed in any order."""
    selects_members: ClassVar[bool] = True
    """Whether it averages over what single members predict, so that an output tells which member generated it."""

    @classmethod
    def parse(cls, argument: str) -> Predictive:
        """The predictive with the argument that follows its name; raises ValueError if the argument is wrong."""
        if argument:
            raise ValueError(f"it takes no argument, got {argument!r}")
        return cls()

    @abstractmethod
    def alignments(self, prior: AlignmentDistribution) -> Alignments:
        """The weighted alignments that stand for a prior."""

    @property
    def draws(self) -> int:
        """How many random alignments a query needs."""
        return 0

    def log_prob(self, latent: Latent) -> Float[Tensor, "*batch"]:
        """log p(y | x, x~) of the observed output; for a chain, given the outputs before it."""
        predicted = latent.prior.predicted(latent)
        self.check(predicted)
        return latent.log_marginal(self.alignments(predicted))

    def log_probs(self, choice: LatentChoice, beam: Beam | None = None) -> Float[Tensor, "*batch V"]:
        """log p(y | x, x~) of every output; in a beam search, `beam` is what the search knows."""
        self.check(choice.prior)
        return choice.average(self.alignments(choice.prior))

    def check(self, prior: AlignmentDistribution | type[AlignmentDistribution]) -> None:
        """Raise if a distribution lacks an ability that this predictive needs."""
        prior.require(*self.abilities, by=f"predicting with {self.usage}")


PREDICTIVES: Registry[type[Predictive]] = Registry("predictive")
"""Predictives by name."""


@PREDICTIVES.register("exact")
@dataclass(frozen=True)
class ExactPredictive(Predictive):
    """All members."""

    usage = "exact"
    abilities = ("enumerate",)

    def alignments(self, prior: AlignmentDistribution) -> Alignments:
        return prior.enumerate()

    def log_prob(self, latent: Latent) -> Float[Tensor, "*batch"]:
        if not latent.prior.dependent_queries:
            self.check(latent.prior)
        return latent.prior.log_evidence(latent)


@PREDICTIVES.register("certified")
@dataclass(frozen=True)
class CertifiedPredictive(ExactPredictive):
    """All members, except those that provably cannot change the result by more than the tolerance.

    On a device that prefers static shapes, such as a GPU, really all: how many matter would depend on values.
    """

    tolerance: float

    usage = "certified:TOLERANCE"

    @classmethod
    def parse(cls, argument: str) -> Predictive:
        return cls(positive_number(argument))

    def log_prob(self, latent: Latent) -> Float[Tensor, "*batch"]:
        self.check(latent.prior)
        return certified_marginal(latent, self.tolerance).value

    def log_probs(self, choice: LatentChoice, beam: Beam | None = None) -> Float[Tensor, "*batch V"]:
        if beam is None or choice.source is None or not is_factored(choice.head):
            return super().log_probs(choice)
        if prefers_static_shapes(choice.query.device):
            return super().log_probs(choice)
        self.check(choice.prior)
        return certified_log_probs(
            choice.head,
            choice.query,
            choice.memory,
            choice.prior.enumerate(),
            source=choice.source,
            beam=beam,
            tolerance=self.tolerance,
            max_logits=choice.max_logits,
        )


@PREDICTIVES.register("kmax")
@dataclass(frozen=True)
class KMaxPredictive(Predictive):
    """The k most probable members, renormalised (all of them if there are fewer)."""

    k: int

    usage = "kmax:K"
    abilities = ("top",)

    @classmethod
    def parse(cls, argument: str) -> Predictive:
        return cls(positive_count(argument))

    def alignments(self, prior: AlignmentDistribution) -> Alignments:
        return prior.top(min(self.k, prior.mask.shape[-1]))


@PREDICTIVES.register("soft")
@dataclass(frozen=True)
class SoftPredictive(Predictive):
    """The mean alone: soft attention."""

    usage = "soft"
    selects_members = False

    def alignments(self, prior: AlignmentDistribution) -> Alignments:
        return prior.point()

    def log_prob(self, latent: Latent) -> Float[Tensor, "*batch"]:
        return latent.soft()

    def log_probs(self, choice: LatentChoice, beam: Beam | None = None) -> Float[Tensor, "*batch V"]:
        return choice.soft()


@PREDICTIVES.register("sample")
@dataclass(frozen=True)
class SamplePredictive(Predictive):
    """n samples of the prior."""

    n: int

    usage = "sample:N"
    abilities = ("sample",)
    deterministic = False

    @classmethod
    def parse(cls, argument: str) -> Predictive:
        return cls(positive_count(argument))

    @property
    def draws(self) -> int:
        return self.n

    def alignments(self, prior: AlignmentDistribution) -> Alignments:
        return prior.sample(self.n)


def parse_predict(text: str) -> Predictive:
    """A predictive from NAME or NAME:ARGUMENT, such as exact or kmax:5."""
    name, _, argument = text.partition(":")
    if name not in PREDICTIVES:
        known = ", ".join(kind.usage or name for name, kind in PREDICTIVES.items())
        raise ValueError(f"predict must be one of {known}; got {text!r}")
    try:
        return PREDICTIVES[name].parse(argument)
    except ValueError as error:
        raise ValueError(
            f"predict must be {PREDICTIVES[name].usage or name}; got {text!r}: {error}"
        ) from None


def positive_count(text: str) -> int:
    """A whole number of at least 1."""
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise ValueError(f"expected a positive whole number, got {text!r}")


def positive_number(text: str) -> float:
    """A finite number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if 0 < value < math.inf:
        return value
    raise ValueError(f"expected a positive number, got {text!r}")


def exact_posterior(latent: Latent) -> AlignmentDistribution:
    """p(z | x, x~, y) by Bayes' rule over all members."""
    if not isinstance(latent, Latent):
        raise TypeError(
            f"a posterior needs the outputs: pass `choice.observe(target)`, got a {type(latent).__name__}"
        )
    return latent.prior.exact_posterior(latent)
