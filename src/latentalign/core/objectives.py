"""The objectives of the paper's tables, and the table that names them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast, get_args, runtime_checkable

from jaxtyping import Int
from torch import Tensor, nn

from latentalign.core.baselines import build_baseline
from latentalign.core.distributions import Categorical, Dirichlet, LogisticNormal, require_count
from latentalign.core.expectations import Enumerate, GumbelSoftmax, Pathwise, ScoreFunction, SumAndSample
from latentalign.core.kernels.certified import SHORTLIST, Tail, certified_marginal
from latentalign.core.latent import Estimate, Latent
from latentalign.core.multisample import RWS, VIMCO
from latentalign.core.svi import SVI

FAMILIES: dict[str, type] = {
    "categorical": Categorical,
    "dirichlet": Dirichlet,
    "logistic-normal": LogisticNormal,
}


@runtime_checkable
class Objective(Protocol):
    """Latent -> Estimate; its attributes say what model it needs and how that model predicts."""

    @property
    def family(self) -> str:
        """Which distribution the model must build: a key of FAMILIES."""

    @property
    def needs_inferred(self) -> bool:
        """Whether the model must have an inference network."""

    @property
    def predict(self) -> str:
        """The predictive inference under which the model's own perplexity is honest."""

    def __call__(self, latent: Latent[Any]) -> Estimate: ...


@dataclass(frozen=True)
class Soft:
    """log f(x, E_p[z]): soft attention."""

    family = "categorical"
    needs_inferred = False
    predict = "soft"

    def __call__(self, latent: Latent[Any]) -> Estimate:
        value = latent.soft()
        return Estimate(value, value)


@dataclass(frozen=True)
class Marginal:
    """log E_p[f(x, z)]: by enumeration, or with a `tolerance` from the members that can matter."""

    tolerance: float = 0.0
    """What is left out is at most this share of what was found; at 0 nothing is left out."""
    tail: str = "enumerate"
    """With "sample", a query that needs more than `members` draws one of the rest."""
    members: int = 2
    shortlist: int = SHORTLIST
    """Outputs in the screened bound of the unvisited; 0 for the bound f <= 1."""

    family = "categorical"
    needs_inferred = False
    predict = "exact"

    def __post_init__(self) -> None:
        if not self.tolerance >= 0:
            raise ValueError(f"tolerance must not be negative, got {self.tolerance}")
        if self.tail not in get_args(Tail):
            raise ValueError(f"tail must be one of {', '.join(get_args(Tail))}, got {self.tail!r}")
        require_count("members", self.members)

    def __call__(self, latent: Latent[Any], draws: Int[Tensor, "*batch 1"] | None = None) -> Estimate:
        prior = latent.categorical("marginal").prior
        if self.tolerance == 0 and self.tail == "enumerate":
            value = latent.log_marginal(prior.enumerate())
            return Estimate(value, value)
        found = certified_marginal(
            latent,
            self.tolerance,
            tail=cast(Tail, self.tail),
            members=self.members,
            shortlist=self.shortlist,
            draws=draws,
        )
        return Estimate(found.value, found.surrogate, {"visited": found.visited, "gap": found.gap})


@dataclass(frozen=True)
class Hard:
    """E_p[log f(x, z)], the Jensen bound (hard attention; Xu et al. 2015)."""

    expectation: Any
    family: str = ""
    """A key of FAMILIES; when empty, the first that the expectation works with."""

    needs_inferred = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "family", resolve_family("Hard", self.expectation, self.family))

    @property
    def predict(self) -> str:
        return "exact" if self.family == "categorical" else "sample:100"

    def __call__(self, latent: Latent[Any], draws: Int[Tensor, "*batch n"] | None = None) -> Estimate:
        check_latent("hard attention", latent, self.family)
        return with_draws(self.expectation, latent, latent.prior, draws)


@dataclass(frozen=True)
class Variational:
    """E_q[log f(x, z)] - KL[q || p], the ELBO; `value` is the bound, `kl_weight` acts on the gradient alone."""

    expectation: Any
    family: str = ""
    """A key of FAMILIES; when empty, the first that the expectation works with."""
    kl_weight: float = 1.0

    needs_inferred = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "family", resolve_family("Variational", self.expectation, self.family))

    @property
    def predict(self) -> str:
        return "exact" if self.family == "categorical" else "sample:100"

    def __call__(self, latent: Latent[Any], draws: Int[Tensor, "*batch n"] | None = None) -> Estimate:
        check_latent("variational attention", latent, self.family)
        inferred = latent.require_inferred("variational attention")
        fit = with_draws(self.expectation, latent, inferred, draws)
        kl = inferred.kl(latent.prior)
        terms = {**fit.terms, "log_likelihood": fit.value, "kl": kl}
        # An infinite divergence of weight zero counts nothing, and 0 * inf is NaN.
        surrogate = fit.surrogate - self.kl_weight * kl if self.kl_weight else fit.surrogate
        return Estimate(fit.value - kl, surrogate, terms)


def with_draws(expectation: Any, latent: Latent[Any], over: Any, draws: Tensor | None) -> Estimate:
    """The expectation, with its draws when they are given."""
    if draws is not None and not getattr(expectation, "takes_draws", True):
        raise TypeError(f"{type(expectation).__name__} samples no members, so it takes no draws")
    estimate: Estimate = expectation(latent, over) if draws is None else expectation(latent, over, draws)
    return estimate


def resolve_family(who: str, expectation: Any, family: str) -> str:
    """The family, or the expectation's first when it is empty; an error when the two do not go together."""
    known: tuple[str, ...] = getattr(expectation, "families", tuple(FAMILIES))
    family = family or known[0]
    if family not in FAMILIES:
        raise ValueError(f"unknown family {family!r}; choose one of {', '.join(FAMILIES)}")
    if family not in known:
        raise ValueError(
            f"{who}({type(expectation).__name__}) works with the families {', '.join(known)}, got {family!r}"
        )
    return family


def check_latent(who: str, latent: Latent[Any], family: str) -> None:
    """Raise when the model built another distribution than the objective needs."""
    if not isinstance(latent.prior, FAMILIES[family]):
        raise TypeError(
            f"{who} with family {family!r} needs a {FAMILIES[family].__name__} prior, "
            f"got {type(latent.prior).__name__}"
        )


soft = Soft()
marginal = Marginal()


def _hard_sample(n: int = 1, baseline: str = "soft") -> Objective:
    return Hard(ScoreFunction(n, build_baseline(baseline)))


def _variational_enum(kl_weight: float = 1.0) -> Objective:
    return Variational(Enumerate(), kl_weight=kl_weight)


def _variational_sample(n: int = 1, baseline: str = "soft", kl_weight: float = 1.0) -> Objective:
    return Variational(ScoreFunction(n, build_baseline(baseline)), kl_weight=kl_weight)


def _sum_and_sample(k: int = 5, baseline: str = "soft", kl_weight: float = 1.0) -> Objective:
    return Variational(SumAndSample(k, build_baseline(baseline)), kl_weight=kl_weight)


def _gumbel(
    n: int = 1, temperature: float = 0.1, straight_through: bool = False, kl_weight: float = 1.0
) -> Objective:
    return Variational(GumbelSoftmax(n, temperature, straight_through), kl_weight=kl_weight)


def _relaxed(n: int = 1, kl_weight: float = 1.0) -> Objective:
    return Variational(Pathwise(n), "dirichlet", kl_weight)


def _relaxed_logistic_normal(n: int = 1, kl_weight: float = 1.0) -> Objective:
    return Variational(Pathwise(n), "logistic-normal", kl_weight)


def _relaxed_hard(n: int = 1) -> Objective:
    return Hard(Pathwise(n), "dirichlet")


def _svi(steps: int = 10, rate: float = 1.0, n: int = 1, kl_weight: float = 1.0) -> Objective:
    return SVI(steps, rate, n, amortized=False, kl_weight=kl_weight)


def _semi_amortized(steps: int = 5, rate: float = 1.0, n: int = 1, kl_weight: float = 1.0) -> Objective:
    return SVI(steps, rate, n, amortized=True, kl_weight=kl_weight)


OBJECTIVES: dict[str, Callable[..., Objective]] = {
    "soft": Soft,
    "marginal": Marginal,
    "hard-enum": lambda: Hard(Enumerate()),
    "hard-sample": _hard_sample,
    "variational-enum": _variational_enum,
    "variational-sample": _variational_sample,
    "relaxed": _relaxed,
    "relaxed-logistic-normal": _relaxed_logistic_normal,
    "relaxed-hard": _relaxed_hard,
    "gumbel": _gumbel,
    "rws": RWS,
    "vimco": VIMCO,
    "svi": _svi,
    "semi-amortized": _semi_amortized,
    "sum-and-sample": _sum_and_sample,
}


def trainable_parts(objective: Objective) -> nn.ModuleList:
    """The parts of an objective that learn or keep a state: baselines that are modules."""
    baseline = getattr(getattr(objective, "expectation", None), "baseline", None)
    return nn.ModuleList([baseline] if isinstance(baseline, nn.Module) else [])
