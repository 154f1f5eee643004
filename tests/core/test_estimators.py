"""Unbiased estimators, averaged over all their draws, equal enumeration; biased ones tend to their limits."""

import itertools
import math

import pytest
import torch

from latentalign import (
    OBJECTIVES,
    RWS,
    SVI,
    VIMCO,
    Categorical,
    GumbelSoftmax,
    Hard,
    Latent,
    LearnedBaseline,
    RunningMean,
    ScoreFunction,
    SumAndSample,
    Variational,
    exact_posterior,
)
from latentalign.core.baselines import leave_one_out, no_baseline, soft_baseline
from support.problems import all_draws, gradients, probability_of, problem

CASES = [
    ("none", 1, lambda: no_baseline),
    ("soft", 1, lambda: soft_baseline),
    ("soft", 2, lambda: soft_baseline),
    ("leave-one-out", 2, lambda: leave_one_out),
    ("leave-one-out", 3, lambda: leave_one_out),
    ("running-mean", 1, lambda: primed_running_mean()),
    ("learned", 1, lambda: LearnedBaseline(8).double()),
]


def primed_running_mean():
    baseline = RunningMean(0.5)
    baseline.mean.fill_(-1.5)
    baseline.seen.fill_(1.0)
    return baseline.eval()


def averaged(p, objective, over, n):
    """Value and gradients of an objective averaged over all draws with their probabilities."""
    value, grads = 0.0, [torch.zeros_like(x) for x in p.leaves]
    for draws in all_draws(p, n):
        weight = probability_of(over(p.latent()), draws)
        estimate = objective(p.latent(), draws)
        value = value + weight * estimate.value.detach()
        for total, g in zip(grads, gradients(estimate.surrogate, p.leaves, weight), strict=True):
            total += g
    return value, grads


def assert_equal(ours, exact):
    for a, b in zip(ours, exact, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("name", "n", "baseline"), CASES)
@pytest.mark.parametrize("kind", ["hard", "variational"])
def test_score_function_gradient_is_unbiased(name, n, baseline, kind):
    p = problem((2, 2), members=3 if n == 3 else 4)
    expectation = ScoreFunction(n, baseline())
    objective, over = {
        "hard": (Hard(expectation), lambda latent: latent.prior),
        "variational": (Variational(expectation), lambda latent: latent.inferred),
    }[kind]
    value, grads = averaged(p, objective, over, n)
    exact = OBJECTIVES[f"{kind}-enum"]()(p.latent())
    torch.testing.assert_close(value, exact.value.detach(), rtol=1e-10, atol=1e-10)
    assert_equal(grads, gradients(exact.surrogate, p.leaves))


@pytest.mark.parametrize("k", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("baseline", ["soft", "none", "running-mean", "learned"])
def test_sum_and_sample_gradient_is_unbiased_for_every_k(k, baseline):
    p = problem((2, 2))
    objective = Variational(SumAndSample(k, {name: b for name, _, b in CASES}[baseline]()))
    over = lambda latent: objective.expectation.rest(latent.inferred)  # noqa: E731
    value, grads = averaged(p, objective, over, 1)
    exact = OBJECTIVES["variational-enum"]()(p.latent())
    torch.testing.assert_close(value, exact.value.detach(), rtol=1e-10, atol=1e-10)
    assert_equal(grads, gradients(exact.surrogate, p.leaves))


def test_sum_and_sample_variance_falls_with_k_and_vanishes_at_all_members():
    p = problem((1,), 5, ragged=False, seed=3)
    spread = []
    for k in (1, 2, 3, 4, 5):
        objective = Variational(SumAndSample(k))
        rest = objective.expectation.rest(p.latent().inferred)
        mean, square = 0.0, 0.0
        for draws in all_draws(p, 1):
            (weight,) = probability_of(rest, draws) if rest.mask.any() else (draws == 0).double().squeeze(-1)
            g = gradients(objective(p.latent(), draws).surrogate, [p.inferred_scores])[0]
            mean, square = mean + weight * g, square + weight * (g**2).sum()
        spread.append(float(square - (mean**2).sum()))
    assert all(a > b - 1e-14 for a, b in itertools.pairwise(spread)), spread
    assert spread[0] > 1e-6
    assert abs(spread[-1]) < 1e-12


@pytest.mark.parametrize("n", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_vimco_gradient_is_unbiased_for_its_own_bound(n):
    p = problem((2, 2))
    value, grads = averaged(p, VIMCO(n), lambda latent: latent.inferred, n)
    total = torch.zeros((), dtype=torch.float64)
    for draws in all_draws(p, n):  # the bound itself, differentiated through the probabilities of the draws
        latent = p.latent()
        present = latent.inferred.mask.gather(-1, draws).all(-1) | ~latent.inferred.mask.any(-1)
        log_q = latent.inferred.log_prob_of(draws).masked_fill(~latent.inferred.mask.gather(-1, draws), 0.0)
        bound = VIMCO(n)(latent, draws).value.masked_fill(~present, 0.0)
        total = total + (present * log_q.sum(-1).exp() * bound)[latent.inferred.mask.any(-1)].sum()
    torch.testing.assert_close(value.sum(), total.detach(), rtol=1e-10, atol=1e-10)
    assert_equal(grads, gradients(total, p.leaves))


@pytest.mark.slow
def test_rws_tends_to_the_marginal_gradient_with_many_samples():
    """Biased for few samples; the bias falls as their number grows."""
    p = problem((1,), 3, ragged=False, seed=5)
    exact = gradients(OBJECTIVES["marginal"]()(p.latent()).surrogate, [p.prior_scores, p.memory])
    bias = []
    for n in (1, 2, 4):
        _, grads = averaged(p, RWS(n), lambda latent: latent.inferred, n)
        ours = [grads[0], grads[3]]
        bias.append(float(sum(((a - b) ** 2).sum() for a, b in zip(ours, exact, strict=True))))
    assert bias == sorted(bias, reverse=True)
    assert bias[-1] < bias[0] / 2


@pytest.mark.slow
def test_rws_moves_q_towards_the_exact_posterior():
    p = problem((1,), 3, ragged=False, seed=5)
    latent = p.latent()
    goal = gradients(-exact_posterior(latent).detach().kl(latent.inferred), [p.inferred_scores])[0]
    _, grads = averaged(p, RWS(4), lambda latent: latent.inferred, 4)
    cosine = torch.cosine_similarity(grads[1].flatten(), goal.flatten(), dim=0)
    assert cosine > 0.97


@pytest.mark.slow
def test_gumbel_value_tends_to_the_elbo_as_the_temperature_falls():
    p = problem((1,), 3, ragged=False, seed=1)
    exact = OBJECTIVES["variational-enum"]()(p.latent()).value.item()
    errors = {}
    for temperature in (2.0, 0.01):
        torch.manual_seed(0)
        values = Variational(GumbelSoftmax(20_000, temperature))(p.latent()).value
        errors[temperature] = abs(values.item() - exact)
    assert errors[0.01] < 0.03
    assert errors[2.0] > 5 * errors[0.01]


def test_straight_through_gumbel_has_the_value_of_members():
    p = problem((1,), 3, ragged=False, seed=1)
    z = p.latent().inferred.relaxed_sample(50, 0.5, straight_through=True).z
    assert ((z - z.round()).abs() < 1e-12).all()
    (grad,) = torch.autograd.grad((z * torch.rand_like(z)).sum(), p.inferred_scores)
    assert grad.abs().max() > 0


@pytest.mark.slow
@pytest.mark.parametrize("amortized", [False, True])
def test_svi_approaches_the_marginal_as_it_refines(amortized):
    p = problem((6,), 4, ragged=False, seed=2)
    latent = p.latent()
    exact = OBJECTIVES["marginal"]()(latent).value
    gaps = []
    for steps in (0, 10, 500):
        torch.manual_seed(1)
        refined = SVI(steps, rate=0.5, n=4, amortized=amortized).refine(latent)
        elbo = OBJECTIVES["variational-enum"]()(Latent(latent.prior, latent.log_likelihood, refined)).value
        gaps.append(float((exact - elbo).detach().mean()))
    assert gaps[0] > gaps[1] > gaps[2] > -1e-9
    assert gaps[2] < 0.05, gaps


def test_svi_step_is_the_gradient_of_the_elbo_in_expectation():
    p = problem((2,), 3, ragged=False)
    latent = p.latent()
    q = Categorical.from_scores(p.inferred_scores.detach(), exists=p.mask)
    svi = SVI()
    mean = torch.zeros_like(p.inferred_scores)
    for draws in all_draws(p, 1):
        fixed = Categorical(q.log_probs, mask=q.mask)
        object.__setattr__(fixed, "sample", lambda n, draws=draws: q.at(draws))
        step = svi.gradient(latent, fixed, latent.soft().unsqueeze(-1))
        mean = mean + probability_of(q, draws).unsqueeze(-1) * step.detach()
    exact = gradients(OBJECTIVES["variational-enum"]()(latent).value, [p.inferred_scores])[0]
    torch.testing.assert_close(mean, exact, rtol=1e-10, atol=1e-10)


def test_semi_amortized_teaches_the_network_where_refinement_ends():
    p = problem((2,), 3, ragged=False)
    torch.manual_seed(0)
    estimate = OBJECTIVES["semi-amortized"](steps=3)(p.latent())
    ours = gradients(estimate.surrogate, [p.inferred_scores])[0]
    torch.manual_seed(0)
    refined = SVI(3, amortized=True).refine(p.latent())
    expected = gradients(-refined.kl(p.latent().inferred), [p.inferred_scores])[0]
    torch.testing.assert_close(ours, expected)


def test_running_mean_answers_before_it_looks():
    baseline = RunningMean(0.9)
    seen = []
    for log_f in (-4.0, -8.0, -4.0):
        latent = Latent(problem().latent().prior, lambda a, v=log_f: torch.full_like(a.log_weight, v))
        estimate = Hard(ScoreFunction(1, baseline))(latent)
        seen.append(log_f - estimate.terms["advantage"][0, 0].item())
    # |r - B| of the three: B is 0, then the first reward, then the mean of both
    assert seen == pytest.approx([-8.0, -12.0, -4 - abs(-4 + (4 * 0.9 + 8) / 1.9)])


def test_learned_baseline_fits_the_reward_and_touches_nothing_else():
    p = problem(ragged=False)
    baseline = LearnedBaseline(16).double()
    objective = Variational(ScoreFunction(1, baseline))
    objective(p.latent())  # lazy layers take their shape
    optimizer = torch.optim.Adam(baseline.parameters(), 0.05)
    latent, reward = p.latent(), p.latent().soft().detach()
    for _ in range(300):
        optimizer.zero_grad()
        fit = baseline.fit(latent, reward)
        (-fit.sum()).backward(inputs=list(baseline.parameters()))
        optimizer.step()
    assert fit.detach().abs().max() < 0.05
    assert all((g == 0).all() for g in gradients(baseline.fit(p.latent(), p.latent().soft()), p.leaves))


@pytest.mark.slow
def test_chi_square_of_the_sampler():
    stats = pytest.importorskip("scipy.stats")
    dist = Categorical.from_scores(
        torch.tensor([0.3, -1.0, 2.0, 0.0, 9.9]), exists=torch.tensor([1, 1, 1, 1, 0]).bool()
    )
    n = 40_000
    expected = dist.mean[:4].double() / dist.mean[:4].double().sum() * n
    for counts in (
        dist.sample(n).index.bincount(minlength=5),
        dist.relaxed_sample(n, 1e-3).z.argmax(-1).bincount(minlength=5),
    ):
        assert counts[4] == 0
        assert stats.chisquare(counts[:4], expected).pvalue > 1e-4


def test_vimco_refuses_a_single_sample():
    with pytest.raises(ValueError, match="n >= 2"):
        VIMCO(1)


def test_rws_weights_survive_likelihoods_far_below_zero():
    prior = Categorical.from_scores(torch.zeros(1, 3, requires_grad=True))
    log_f = torch.tensor([[-9000.0, -9001.0, -9e3 - 700]], requires_grad=True)
    latent = Latent(prior, lambda a: log_f.gather(-1, a.index), prior)
    for objective in (RWS(5), VIMCO(5)):
        estimate = objective(latent)
        (grad,) = torch.autograd.grad(estimate.surrogate.sum(), log_f)
        assert grad.isfinite().all()
        assert math.isfinite(estimate.value.item())


def test_merging_equal_draws_keeps_every_average():
    p = problem((2, 3), 4, 5)
    latent = p.latent()
    drawn = latent.inferred.at(torch.tensor([0, 1, 0, 0]).expand(2, 3, 4))
    merged = drawn.merged()
    assert (merged.present.sum(-1) <= 2).all()
    torch.testing.assert_close(latent.log_marginal(merged), latent.log_marginal(drawn))
    torch.testing.assert_close(latent.mean_log_likelihood(merged), latent.mean_log_likelihood(drawn))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_sum_and_sample_is_unbiased_where_several_members_are_left(k):
    p = problem((2,), 4, ragged=False)
    objective = Variational(SumAndSample(k))
    value, total = 0.0, [torch.zeros_like(x) for x in p.leaves]
    for draws in all_draws(p, 1):
        weight = probability_of(objective.expectation.rest(p.latent().inferred), draws)
        estimate = objective(p.latent(), draws)
        value = value + weight * estimate.value.detach()
        total = [t + g for t, g in zip(total, gradients(estimate.surrogate, p.leaves, weight), strict=True)]
    exact = OBJECTIVES["variational-enum"]()(p.latent())
    torch.testing.assert_close(value, exact.value.detach(), rtol=1e-10, atol=1e-10)
    for a, b in zip(total, gradients(exact.surrogate, p.leaves), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
