"""Bounds are ordered, whatever the model."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import all_draws, probability_of, problem

from latentalign import OBJECTIVES, Categorical, Latent, certified_marginal, iwae_bound, jensen_gap


def table_latent(log_f, prior_scores, inferred_scores):
    """A latent choice whose log-likelihoods are given directly."""
    prior = Categorical.from_scores(prior_scores)
    return Latent(
        prior,
        lambda a: log_f.gather(-1, a.index) if hasattr(a, "index") else soft(log_f, a),
        inferred_of(inferred_scores),
    )


def soft(log_f, a):
    """Any likelihood will do at a mixture: the mean in log space."""
    return (a.z * log_f.unsqueeze(-2)).sum(-1)


def inferred_of(scores):
    return Categorical.from_scores(scores)


def numbers(low, high):
    return st.floats(low, high, allow_nan=False, width=32)


@st.composite
def latents(draw, lowest=-30.0, scores=30.0, dtypes=(torch.float64,)):
    members = draw(st.integers(1, 5))
    ranges = [(lowest, 0.0), (-scores, scores), (-scores, scores)]
    rows = [draw(st.lists(numbers(*r), min_size=members, max_size=members)) for r in ranges]
    dtype = draw(st.sampled_from(dtypes))
    return table_latent(*(torch.tensor([row], dtype=dtype) for row in rows))


@settings(max_examples=50, deadline=None)
@given(latents())
def test_elbo_and_jensen_are_below_the_marginal(latent):
    exact = OBJECTIVES["marginal"]()(latent).value
    assert (OBJECTIVES["variational-enum"]()(latent).value <= exact + 1e-9).all()
    assert (jensen_gap(latent) >= -1e-9).all()


@settings(max_examples=12, deadline=None)
@given(latents())
def test_importance_weighted_bounds_tighten_with_samples(latent):
    """ELBO <= IWAE(2) <= IWAE(3) <= marginal, each as the mean over all draws."""
    bounds = [OBJECTIVES["variational-enum"]()(latent).value]
    members = latent.prior.log_probs.shape[-1]
    for n in (2, 3):
        total = torch.zeros(1, dtype=torch.float64)
        for draws in itertools.product(range(members), repeat=n):
            index = torch.tensor([draws])
            weight = latent.inferred.log_prob_of(index).sum(-1).exp()
            if weight > 0:
                total += weight * iwae_bound(latent, n, index)
        bounds.append(total)
    bounds.append(OBJECTIVES["marginal"]()(latent).value)
    for lower, upper in itertools.pairwise(bounds):
        assert lower <= upper + 1e-7 * (1 + upper.abs())


def test_iwae_with_one_sample_is_the_elbo_in_expectation():
    p = problem()
    latent = p.latent()
    mean = sum(probability_of(latent.inferred, d) * iwae_bound(latent, 1, d) for d in all_draws(p, 1))
    torch.testing.assert_close(mean, OBJECTIVES["variational-enum"]()(latent).value, rtol=1e-10, atol=1e-10)


FAR = latents(-1e4, 1e3, (torch.float64, torch.float32))


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(st.one_of(latents(), FAR), st.sampled_from([0.0, 1e-3, 1e-2, 0.1, 0.5]))
def test_certified_marginal_keeps_its_promise(latent, tolerance):
    exact = OBJECTIVES["marginal"]()(latent).value
    answer = certified_marginal(latent, tolerance)
    digits = 1e-9 if exact.dtype == torch.float64 else 1e-5
    slack = digits * (1 + exact.abs())
    assert (answer.value <= exact + slack).all()
    assert (exact <= answer.value + answer.gap + slack).all()
    assert (answer.gap <= math.log1p(tolerance) + digits).all()
    assert (answer.visited >= 1).all()


@pytest.mark.parametrize(
    ("dtype", "score", "log_f"), [(torch.float64, -800.0, -1e4), (torch.float32, -110.0, -200.0)]
)
def test_certified_marginal_counts_mass_too_small_to_be_written_down(dtype, score, log_f):
    prior, log_f = torch.tensor([[0.0, score, -math.inf]], dtype=dtype), torch.tensor([[log_f, 0.0, 0.0]])
    answer = certified_marginal(table_latent(log_f.to(dtype), prior, prior), 0.01)
    assert answer.value.item() == pytest.approx(score)
    assert answer.visited.item() == 2
    assert answer.gap.item() == 0


def test_certified_marginal_visits_fewer_members_when_the_prior_is_sharp():
    p = problem((200,), 10, 5, sharp=4.0, ragged=False)
    latent = p.latent()
    visited = [certified_marginal(latent, t).visited.double().mean() for t in (0.0, 0.01, 0.1)]
    assert visited[0] == 10
    assert visited[2] < visited[1] < 8


def test_certified_marginal_of_an_empty_query_is_zero_with_nothing_visited():
    answer = certified_marginal(problem().latent(), 0.1)
    assert answer.value.flatten()[-1] == 0
    assert answer.gap.flatten()[-1] == 0
    assert answer.visited.flatten()[-1] == 0


def test_certified_marginal_has_the_exact_gradient_at_tolerance_zero():
    p = problem()
    ours = torch.autograd.grad(certified_marginal(p.latent(), 0.0).value.sum(), p.prior_scores)[0]
    exact = torch.autograd.grad(OBJECTIVES["marginal"]()(p.latent()).value.sum(), p.prior_scores)[0]
    torch.testing.assert_close(ours, exact, rtol=1e-10, atol=1e-10)
