"""Variance, which an unbiased mean cannot show; what is reported beside a gradient; many chunks; sums of nothing."""

import pytest
import torch
from problems import all_draws, brute_force, gradients, probability_of, problem

from latentalign import (
    OBJECTIVES,
    Hard,
    LearnedBaseline,
    RunningMean,
    ScoreFunction,
    SumAndSample,
    Variational,
)
from latentalign.core.baselines import leave_one_out, no_baseline, soft_baseline
from latentalign.core.kernels import fused_softmax
from latentalign.core.numerics import log_sum_exp


def spread(p, baseline, n):
    """The exact variance of the prior's gradient, over all draws."""
    mean, square = torch.zeros_like(p.prior_scores), 0.0
    for draws in all_draws(p, n):
        weight = probability_of(p.latent().prior, draws).item()
        grad = gradients(Hard(ScoreFunction(n, baseline))(p.latent(), draws).surrogate, [p.prior_scores])[0]
        mean, square = mean + weight * grad, square + weight * float((grad**2).sum())
    return square - float((mean**2).sum())


@pytest.mark.parametrize(("baseline", "n"), [(soft_baseline, 1), (leave_one_out, 2)])
def test_baselines_reduce_the_variance_of_the_score_function(baseline, n):
    for seed in range(3):
        p = problem((1,), 3, outputs=50, ragged=False, seed=seed)
        with (
            torch.no_grad()
        ):  # many outputs, a head that hardly tells them apart: every reward is near -log 50
            p.head.output.weight.mul_(0.1)
            p.head.output.bias.mul_(0.1)
        assert spread(p, baseline, n) < 0.1 * spread(p, no_baseline, n)


def test_running_mean_knows_nothing_of_the_draws_it_answers_for():
    objective = Hard(ScoreFunction(1, RunningMean(0.5)))
    first, second = (objective(problem(ragged=False, seed=seed).latent()) for seed in (0, 1))
    torch.testing.assert_close(first.terms["advantage"], -first.value)  # the baseline has seen nothing: B = 0
    expected = (second.value - first.value.mean()).abs()  # B is the first batch's mean reward
    torch.testing.assert_close(second.terms["advantage"], expected)


def test_a_learned_baseline_is_fitted_without_touching_the_model():
    p = problem(ragged=False)
    baseline = LearnedBaseline(8).double()
    fit = baseline.fit(p.latent(), p.latent().soft())
    learned = list(baseline.parameters())
    found = gradients(fit, [*p.leaves, *learned])
    assert all((grad == 0).all() for grad in found[: -len(learned)])
    assert all((grad != 0).any() for grad in found[-len(learned) :])


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


@pytest.mark.parametrize("name", ["marginal", "hard-enum", "variational-enum"])
@pytest.mark.parametrize("uniform", [True, False])
def test_fused_averages_of_many_chunks_equal_a_loop_over_z(name, uniform, monkeypatch):
    pieces = []
    original = fused_softmax.FusedAverage.apply
    monkeypatch.setattr(
        fused_softmax.FusedAverage, "apply", lambda *a: pieces.append(len(a[-2]) - 1) or original(*a)
    )
    p = problem((4, 3), 4, 5, max_logits=45)  # two whole queries of 4 x 5 logits to a chunk
    weight = None if uniform else torch.rand(4, 3, dtype=torch.float64)
    estimate, expected = OBJECTIVES[name]()(p.latent()), brute_force(p)[name]
    assert max(pieces) > 3
    torch.testing.assert_close(estimate.value, expected, rtol=1e-10, atol=1e-10)
    ours, theirs = (gradients(v, p.leaves, weight) for v in (estimate.surrogate, expected))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_a_sum_over_nothing_is_minus_infinity_without_gradient():
    value = torch.tensor([[0.5, 1.0], [0.0, 0.0]], requires_grad=True)
    total = log_sum_exp(value.masked_fill(torch.tensor([[False], [True]]), float("-inf")))
    torch.testing.assert_close(total[0], value[0].logsumexp(0))
    assert total[1] == float("-inf")
    (grad,) = torch.autograd.grad(total.masked_fill(total == float("-inf"), 0.0).sum(), value)
    assert grad[0].sum().item() == pytest.approx(1.0)
    assert (grad[1] == 0).all()
