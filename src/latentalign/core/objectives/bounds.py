"""The objectives of the paper's first table: soft, marginal, hard and variational attention."""

from __future__ import annotations

from typing import cast, get_args

from jaxtyping import Int
from torch import Tensor

from latentalign.core.baselines import build_baseline
from latentalign.core.distributions import DISTRIBUTIONS, AlignmentDistribution, require_count
from latentalign.core.errors import MissingAbilityError
from latentalign.core.expectations import (
    Enumerate,
    Expectation,
    GumbelSoftmax,
    Pathwise,
    ScoreFunction,
    SumAndSample,
)
from latentalign.core.kernels.certified import SHORTLIST, Tail, certified_marginal
from latentalign.core.latent import Estimate, Latent
from latentalign.core.objectives.base import Objective, objective

NO_BASELINE = {"baseline": "none"}


@objective(
    "soft",
    maximises="log f(E_p[z])",
    gradient="exact",
    remark=", of another model",
    table=1,
)
class Soft(Objective):
    """log f(x, E_p[z]): soft attention.

    Options: `distribution`, a name in DISTRIBUTIONS.
    """

    predict = "soft"
    accepts_chains = True

    def __init__(self, distribution: str = "categorical") -> None:
        super().__init__()
        self.distribution = distribution

    def forward(self, latent: Latent) -> Estimate:
        value = latent.soft()
        return Estimate(value, value)


@objective("marginal", maximises="log E_p[f(z)]", gradient="exact, all members", table=1, truth="marginal")
class Marginal(Objective):
    """log E_p[f(x, z)], by enumeration; with a `tolerance`, from the members that can matter.

    The mass left out is at most `tolerance` times the mass found; at 0 nothing is left out. If `tail` is "sample", a
    query that needs more than `members` of them draws one of the rest. `shortlist` is the number of outputs in the
    bound on unvisited members; 0 uses the bound f <= 1. `distribution` is a name in DISTRIBUTIONS.
    """

    def __init__(
        self,
        tolerance: float = 0.0,
        tail: str = "enumerate",
        members: int = 2,
        shortlist: int = SHORTLIST,
        distribution: str = "categorical",
    ) -> None:
        super().__init__()
        if not tolerance >= 0:
            raise ValueError(f"tolerance must not be negative, got {tolerance}")
        if tail not in get_args(Tail):
            raise ValueError(f"tail must be one of {', '.join(get_args(Tail))}, got {tail!r}")
        require_count("members", members)
        self.tolerance, self.tail, self.members, self.shortlist = tolerance, tail, members, shortlist
        self.accepts_chains = tolerance == 0 and tail == "enumerate"
        self.distribution = distribution

    def forward(self, latent: Latent, draws: Int[Tensor, "*batch 1"] | None = None) -> Estimate:
        if self.tolerance == 0 and self.tail == "enumerate":
            value = latent.prior.log_evidence(latent)
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


class ExpectedLikelihood(Objective):
    """An objective whose likelihood term is E[log f], estimated by an `Expectation`.

    The distribution is the expectation's own unless another is named.
    """

    def __init__(self, expectation: Expectation, distribution: str = "") -> None:
        super().__init__()
        self.expectation = expectation
        self.distribution = distribution or expectation.distribution
        self.abilities = frozenset(expectation.abilities)
        self.accepts_chains = expectation.accepts_marginals
        kind = DISTRIBUTIONS[self.distribution]
        self.check(kind)
        self.predict = "exact" if kind.supports("enumerate") else "sample:100"

    def check(self, kind: AlignmentDistribution | type[AlignmentDistribution]) -> None:
        """Raise if a distribution lacks an ability that the expectation needs."""
        by = f"{type(self).__name__}({type(self.expectation).__name__})"
        kind.require(*self.expectation.abilities, by=by)

    def expect(self, latent: Latent, over: AlignmentDistribution, draws: Tensor | None) -> Estimate:
        """E[log f] under a distribution, from given draws if there are any.

        The likelihood of an output depends on its own alignment alone. So the marginals of a chain are all that is
        needed, and draws of single alignments have less variance than draws of paths.
        """
        if latent.prior.dependent_queries and not self.accepts_chains:
            raise MissingAbilityError(
                f"{type(self.expectation).__name__} is not defined for {type(latent.prior).__name__}, whose queries "
                "depend on each other; use soft, marginal, hard-enum, hard-sample, variational-enum or "
                "variational-sample"
            )
        single = over.per_query
        if not self.abilities <= single.abilities:
            self.check(single)
        if draws is None:
            return self.expectation(latent, single)
        if not self.expectation.takes_draws:
            raise TypeError(f"{type(self.expectation).__name__} samples no members, so it takes no draws")
        return self.expectation(latent, single, draws)


class Hard(ExpectedLikelihood):
    """E_p[log f(x, z)], the Jensen bound (hard attention; Xu et al. 2015)."""

    def forward(self, latent: Latent, draws: Int[Tensor, "*batch n"] | None = None) -> Estimate:
        return self.expect(latent, latent.prior, draws)


class Variational(ExpectedLikelihood):
    """E_q[log f(x, z)] - KL[q || p], the ELBO; `value` is the bound, `kl_weight` changes only the gradient."""

    needs_inferred = True

    def __init__(self, expectation: Expectation, distribution: str = "", kl_weight: float = 1.0) -> None:
        super().__init__(expectation, distribution)
        self.kl_weight = kl_weight

    def forward(self, latent: Latent, draws: Int[Tensor, "*batch n"] | None = None) -> Estimate:
        q = latent.require_inferred("variational attention")
        fit = self.expect(latent, q, draws)
        kl = q.kl(latent.prior)
        terms = {**fit.terms, "log_likelihood": fit.value, "kl": kl}
        # An infinite divergence of weight zero must not count, and 0 * inf is NaN.
        surrogate = fit.surrogate - self.kl_weight * kl if self.kl_weight else fit.surrogate
        return Estimate(fit.value - kl, surrogate, terms)


soft = Soft()
marginal = Marginal()


@objective("hard-enum", maximises="E_p[log f(z)]", gradient="exact, all members", table=1, truth="hard-enum")
def hard_enum() -> Objective:
    """E_p[log f], summed over all members; no options."""
    return Hard(Enumerate())


@objective(
    "hard-sample",
    maximises="E_p[log f(z)]",
    gradient="score function, n draws, baseline",
    table=1,
    truth="hard-enum",
    variants={"hard-sample": {}, "hard-sample, no baseline": NO_BASELINE},
)
def hard_sample(n: int = 1, baseline: str = "soft") -> Objective:
    """E_p[log f] from n draws of the prior.

    Options: `n` draws per query; `baseline`, a name in BASELINES (soft, none, leave-one-out, running-mean, learned).
    """
    return Hard(ScoreFunction(n, build_baseline(baseline)))


@objective(
    "variational-enum",
    maximises="E_q[log f(z)] - KL[q, p]",
    gradient="exact, all members",
    needs_inferred=True,
    table=1,
    truth="variational-enum",
)
def variational_enum(kl_weight: float = 1.0) -> Objective:
    """The ELBO, summed over all members.

    Options: `kl_weight`, the weight of the divergence in the gradient.
    """
    return Variational(Enumerate(), kl_weight=kl_weight)


@objective(
    "variational-sample",
    maximises="E_q[log f(z)] - KL[q, p]",
    gradient="score function, n draws, baseline",
    needs_inferred=True,
    table=1,
    truth="variational-enum",
    variants={
        "variational-sample": {},
        "variational-sample, no baseline": NO_BASELINE,
        "variational-sample, 5 draws": {"n": 5},
    },
)
def variational_sample(n: int = 1, baseline: str = "soft", kl_weight: float = 1.0) -> Objective:
    """The ELBO from n draws of q.

    Options: `n` draws per query; `baseline`, a name in BASELINES (soft, none, leave-one-out, running-mean, learned);
    `kl_weight`, the weight of the divergence in the gradient.
    """
    return Variational(ScoreFunction(n, build_baseline(baseline)), kl_weight=kl_weight)


@objective(
    "sum-and-sample",
    maximises="E_q[log f(z)] - KL[q, p]",
    gradient="k most probable members exact, one of the rest drawn",
    needs_inferred=True,
    table=3,
    truth="variational-enum",
)
def sum_and_sample(k: int = 5, baseline: str = "soft", kl_weight: float = 1.0) -> Objective:
    """The ELBO with the k most probable members of q summed exactly and one of the rest drawn.

    Options: `k` members; `baseline`, a name in BASELINES, except leave-one-out; `kl_weight`, the weight of the
    divergence in the gradient.
    """
    return Variational(SumAndSample(k, build_baseline(baseline)), kl_weight=kl_weight)


@objective(
    "gumbel",
    maximises="E_q[log f(z)] - KL[q, p]",
    gradient="through n relaxed draws (optionally straight-through)",
    unbiased=False,
    remark=", less biased at low temperature",
    needs_inferred=True,
    table=3,
    truth="variational-enum",
    variants={
        "gumbel, temperature 0.1": {"temperature": 0.1},
        "gumbel, temperature 0.5": {"temperature": 0.5},
        "gumbel, temperature 1": {"temperature": 1.0},
    },
)
def gumbel(
    n: int = 1, temperature: float = 0.1, straight_through: bool = False, kl_weight: float = 1.0
) -> Objective:
    """The ELBO with n relaxed draws of q (Gumbel-Softmax).

    Options: `n` draws per query; `temperature` of the relaxation; `straight_through` evaluates f at members and uses
    the gradient of the relaxation; `kl_weight`, the weight of the divergence in the gradient.
    """
    return Variational(GumbelSoftmax(n, temperature, straight_through), kl_weight=kl_weight)


@objective(
    "relaxed",
    maximises="E_q[log f(z)] - KL[q, p], p and q Dirichlet",
    gradient="through n draws, implicit reparameterisation",
    needs_inferred=True,
    table=1,
)
def relaxed(n: int = 1, kl_weight: float = 1.0) -> Objective:
    """The ELBO of Dirichlet alignments from n reparameterised draws of q.

    Options: `n` draws per query; `kl_weight`, the weight of the divergence in the gradient.
    """
    return Variational(Pathwise(n), "dirichlet", kl_weight)


@objective(
    "relaxed-logistic-normal",
    maximises="E_q[log f(z)] - KL[q, p], p and q logistic normal",
    gradient="through n draws",
    needs_inferred=True,
)
def relaxed_logistic_normal(n: int = 1, kl_weight: float = 1.0) -> Objective:
    """The ELBO of logistic normal alignments from n reparameterised draws of q.

    Options: `n` draws per query; `kl_weight`, the weight of the divergence in the gradient.
    """
    return Variational(Pathwise(n), "logistic-normal", kl_weight)


@objective("relaxed-hard", maximises="E_p[log f(z)], p Dirichlet", gradient="through n draws")
def relaxed_hard(n: int = 1) -> Objective:
    """E_p[log f] of Dirichlet alignments from n reparameterised draws of the prior.

    Options: `n` draws per query.
    """
    return Hard(Pathwise(n), "dirichlet")
