"""Bounds are ordered, whatever the model."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from latentalign import OBJECTIVES, Categorical, Latent, certified_marginal, iwae_bound, jensen_gap
from latentalign.core.kernels.beam import Beam, beam_predictive
from support.problems import all_draws, probability_of, problem


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


@settings(max_examples=6, deadline=None)
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
    assert answer.visited.item() == 1, "the likeliest member a priori is evaluated and found to be negligible"
    assert answer.gap.item() < 1e-30


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


def found_and_exact(log_p, f, beam, tolerance):
    """log p(y) of every output, as a beam search asks for it and by enumeration, and pairs that were computed."""
    visited = []

    def add(out, owner, member, log_weight):
        visited.append(len(owner))
        out.index_add_(0, owner, log_weight.exp().unsqueeze(-1) * f[owner, member])

    found = beam_predictive(
        Categorical.from_scores(log_p).log_probs, add, outputs=f.shape[-1], beam=beam, tolerance=tolerance
    )
    return found, (log_p.exp().unsqueeze(-1) * f).sum(1).log(), sum(visited)


def beam_of(log_prob, sentence, places, last=False):
    last = torch.full(log_prob.shape, last)
    return Beam(log_prob, sentence, torch.full_like(sentence, places), last, end=0, never=(0,))


@pytest.mark.parametrize("tolerance", [1e-3, 0.1, 1.0])
@pytest.mark.parametrize("places", [1, 3])
def test_every_continuation_worth_a_place_is_known_to_the_tolerance(tolerance, places):
    fewer = 0
    for trial in range(15):
        g = torch.Generator().manual_seed(trial)
        sharp = 10 ** (trial % 3)
        n, members, outputs = 7, 12, 9
        log_p = (sharp * torch.randn(n, members, generator=g).double()).log_softmax(-1)
        f = (3 * torch.randn(n, members, outputs, generator=g).double()).softmax(-1)
        sentence = torch.tensor([0, 0, 0, 1, 2, 2, 2])
        beam = beam_of(torch.randn(n, generator=g).double(), sentence, places)
        found, exact, visited = found_and_exact(log_p, f, beam, tolerance)
        fewer += visited < n * members
        assert (found <= exact + 1e-12).all()
        worth = exact[:, 1:] + beam.log_prob.unsqueeze(-1)  # all but the end
        for number in range(3):
            own = sentence == number
            kept = worth[own] >= worth[own].flatten().topk(places).values[-1]
            missing = (exact - found)[own, 1:][kept]
            assert (missing <= math.log1p(tolerance) + 1e-12).all()
        ending = beam_of(beam.log_prob, sentence, places, last=True)
        found, exact, _ = found_and_exact(log_p, f, ending, tolerance)
        assert ((exact - found)[:, 0] <= math.log1p(tolerance) + 1e-12).all()
    assert fewer > 5


def test_what_is_left_out_counts_against_the_output_that_it_would_lift_above_all_others():
    """b stands at half of a, and is above it with what is left: then not all of that may be left out."""
    log_p = torch.tensor([[0.96, 0.01, 0.01, 0.01, 0.01]], dtype=torch.float64).log()
    f = torch.full((1, 5, 30), 0.0, dtype=torch.float64)
    a, b = 1, 2
    f[0, 0] = (0.96 - 0.09) / 28 / 0.96
    f[0, 0, a], f[0, 0, b] = 0.06 / 0.96, 0.03 / 0.96
    f[0, 1:, b] = 1.0
    beam = beam_of(torch.zeros(1).double(), torch.tensor([0]), 1)
    found, exact, visited = found_and_exact(log_p, f, beam, 1.0)
    assert exact[0, b] > exact[0, a]
    assert exact[0, b] - found[0, b] <= math.log(2)
    assert visited < 5
