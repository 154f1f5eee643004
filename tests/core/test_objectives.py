"""What the table's options do, and the lines of code that each row stands for."""

import pytest
import torch

import latentalign
from latentalign import (
    OBJECTIVES,
    SVI,
    Categorical,
    Dirichlet,
    GumbelSoftmax,
    Hard,
    Latent,
    LogisticNormal,
    Objective,
    Pathwise,
    ScoreFunction,
    SumAndSample,
    Variational,
)
from latentalign.core.distributions import DISTRIBUTIONS
from latentalign.core.objectives import bounds
from support.problems import gradients, problem


def test_an_expectation_brings_its_own_distribution():
    assert Hard(Pathwise()).distribution == "dirichlet"
    assert OBJECTIVES["relaxed"]().distribution == "dirichlet"
    assert Variational(Pathwise(n=1)).predict == "sample:100"
    assert Hard(latentalign.Enumerate()).distribution == "categorical"
    prior = Dirichlet.from_scores(torch.zeros(2, 3))
    latent = Latent(prior, lambda a: -(a.z**2).sum(-1), prior)
    assert Hard(Pathwise())(latent).value.shape == (2,)
    values = []
    for objective in (Variational(Pathwise(n=1)), OBJECTIVES["relaxed"]()):
        torch.manual_seed(0)
        values.append(objective(latent).value)
    assert values[0].shape == (2,)
    assert torch.equal(*values)


def test_everything_of_the_design_is_exported():
    names = [
        "Step",
        "BeamSearch",
        "Hypothesis",
        "Baseline",
        "Predictive",
        "dense_probability",
        "FactoredHead",
    ]
    assert set(names) <= set(latentalign.__all__)
    for name in latentalign.__all__:
        assert getattr(latentalign, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        latentalign.nothing  # noqa: B018


@pytest.mark.parametrize("name", ["relaxed", "relaxed-logistic-normal"])
def test_kl_weight_scales_the_relaxed_divergence(name):
    build = DISTRIBUTIONS[OBJECTIVES[name]().distribution].from_scores
    scores = [torch.randn(2, 3, dtype=torch.float64, requires_grad=True) for _ in "pq"]

    def found(weight):
        torch.manual_seed(0)
        latent = Latent(build(scores[0]), lambda a: -(a.z**2).sum(-1), build(scores[1]))
        return gradients(OBJECTIVES[name](kl_weight=weight)(latent).surrogate, scores)

    kl = gradients(build(scores[1]).kl(build(scores[0])), scores)
    for full, none, exact in zip(found(2.0), found(0.0), kl, strict=True):
        torch.testing.assert_close(full, none - 2 * exact)


@pytest.mark.parametrize("straight_through", [True, False])
def test_straight_through_gumbel_is_evaluated_at_members(straight_through):
    p = problem((3,), ragged=False)
    latent = p.latent()
    each = latent.log_likelihood(latent.prior.enumerate())
    objective = OBJECTIVES["gumbel"](straight_through=straight_through, temperature=1.0)
    reward = objective(latent).terms["log_likelihood"]
    assert ((each - reward.unsqueeze(-1)).abs().amin(-1) < 1e-9).all() == straight_through


@pytest.mark.parametrize("name", ["svi", "semi-amortized"])
def test_kl_weight_scales_the_divergence_of_a_refined_q(name):
    p = problem()

    def found(weight):
        torch.manual_seed(0)
        objective = OBJECTIVES[name](steps=0, kl_weight=weight)
        return gradients(objective(p.latent()).surrogate, [p.prior_scores])[0]

    latent = p.latent()
    q = SVI(0, amortized=name == "semi-amortized").refine(latent)
    torch.testing.assert_close(
        found(2.0), found(0.0) - 2 * gradients(q.kl(latent.prior), [p.prior_scores])[0]
    )


def test_kl_weight_scales_the_divergence_while_refining():
    p = problem((2,), ragged=False)
    latent, scores = p.latent(), p.inferred_scores.detach().requires_grad_()
    q = Categorical.from_scores(scores)

    def step(weight):
        torch.manual_seed(0)
        return SVI(kl_weight=weight).gradient(latent, q, latent.soft().unsqueeze(-1)).detach()

    exact = gradients(q.kl(latent.prior), [scores])[0]
    torch.testing.assert_close(step(2.0), step(0.0) - 2 * exact)


def test_refinement_starts_at_the_network_or_at_zero():
    p = problem()
    latent = p.latent()
    torch.testing.assert_close(SVI(0, amortized=True).refine(latent).mean, latent.inferred.mean)
    uniform = Categorical.from_scores(torch.zeros_like(p.prior_scores), exists=p.mask)
    torch.testing.assert_close(SVI(0, amortized=False).refine(latent).mean, uniform.mean)


def test_where_takes_the_members_of_absent_queries_away():
    scores, exists = torch.randn(3, 4), torch.tensor([True, False, True])
    for kind in (Categorical, Dirichlet, LogisticNormal):
        whole = kind.from_scores(scores)
        part = whole.where(exists)
        assert torch.equal(part.mask.any(-1), exists)
        assert torch.equal(part.mean[exists], whole.mean[exists])
        assert (part.mean[1] == 0).all()
        assert part.entropy[1] == 0
        assert part.kl(whole.where(exists))[1] == 0


def test_sum_and_sample_looks_for_the_most_probable_members_once(monkeypatch):
    asked = []
    original = SumAndSample.top
    monkeypatch.setattr(SumAndSample, "top", lambda *a: asked.append(1) or original(*a))
    OBJECTIVES["sum-and-sample"](k=2)(problem().latent())
    assert len(asked) == 1


@pytest.mark.parametrize("name", ["variational-enum", "sum-and-sample", "svi"])
def test_kl_weight_leaves_the_reported_bound_alone(name):
    p = problem()
    values = []
    for kl_weight in (1.0, 0.0):
        torch.manual_seed(0)
        options = {"steps": 0} if name == "svi" else {}
        values.append(OBJECTIVES[name](kl_weight=kl_weight, **options)(p.latent()).value)
    assert values[0].abs().sum() > 0
    torch.testing.assert_close(*values)


def test_an_objective_of_ones_own_predicts_exactly_and_needs_nothing():
    class Plain(Objective):
        def forward(self, latent):
            raise NotImplementedError

    assert (Plain.needs_inferred, Plain.accepts_chains, Plain.predict) == (False, False, "exact")


def test_estimators_draw_once_unless_asked():
    assert ScoreFunction().n == GumbelSoftmax().n == Pathwise().n == 1


def test_the_numbers_of_draws_and_members_by_default():
    assert OBJECTIVES["variational-sample"]().expectation.n == 1
    assert OBJECTIVES["sum-and-sample"]().expectation.k == 5
    assert OBJECTIVES["rws"]().n == 5


def test_the_terms_of_a_bound_have_the_same_names_for_every_objective():
    for name in ("variational-enum", "variational-sample", "svi"):
        terms = OBJECTIVES[name]()(problem().latent()).terms
        assert {"kl", "log_likelihood"} <= terms.keys(), name


def test_ready_made_objectives_are_those_of_the_table():
    latent = problem().latent()
    for ready in ("soft", "marginal"):
        assert torch.equal(getattr(bounds, ready)(latent).value, OBJECTIVES[ready]()(latent).value)
