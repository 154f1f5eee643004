"""Baselines see the weighted draws of queries that exist, on any device and in any precision."""

import math

import pytest
import torch

from latentalign import (
    OBJECTIVES,
    Hard,
    LearnedBaseline,
    RunningMean,
    ScoreFunction,
    SumAndSample,
    Variational,
)
from latentalign.core.baselines import build_baseline, leave_one_out, no_baseline, soft_baseline
from support.problems import all_draws, gradients, masked, probability_of, problem


class Recorder:
    """A baseline of a user's own: answers with zero, and remembers what it was to be fitted to."""

    def __call__(self, latent, reward):
        return torch.zeros_like(reward[..., :1]).detach()

    def fit(self, latent, reward):
        self.reward = reward
        return torch.zeros_like(reward)


@pytest.mark.parametrize("k", [4, 9])
def test_baselines_are_fitted_to_the_mean_over_weighted_draws(k):
    p = problem()
    recorder, running = Recorder(), RunningMean()
    Variational(SumAndSample(k, recorder))(p.latent())
    Variational(SumAndSample(k, running))(p.latent())
    latent = p.latent()
    expected = latent.mean_log_likelihood(latent.inferred.enumerate()).detach()
    torch.testing.assert_close(recorder.reward, expected)
    torch.testing.assert_close(running.mean / running.seen, expected[p.mask.any(-1)].mean())


def test_masked_queries_never_reach_a_baseline():
    p = problem(ragged=False)
    query_exists = torch.zeros(2, 3).bool()
    query_exists[1, 2] = True
    query = p.query.detach().masked_fill(~query_exists.unsqueeze(-1), math.nan)
    running, learned = RunningMean(), LearnedBaseline(4)
    value = Hard(ScoreFunction(2, running))(masked(p, query_exists, query=query)).value
    assert (running.mean / running.seen).item() == pytest.approx(value[1, 2].item())
    estimate = Hard(ScoreFunction(2, learned))(masked(p, query_exists, query=query))
    assert (estimate.surrogate[~query_exists] == 0).all()
    assert all(g.isfinite().all() for g in gradients(estimate.surrogate, list(learned.parameters())))


def test_nothing_is_taken_in_where_no_query_exists_or_nothing_is_trained():
    p = problem(ragged=False)
    running = RunningMean()
    Hard(ScoreFunction(1, running))(masked(p, torch.zeros(2, 3).bool()))
    Hard(ScoreFunction(1, running.eval()))(p.latent())
    assert running.seen == 0
    assert running.mean == 0


def test_a_learned_baseline_takes_the_precision_of_the_query_but_never_sixteen_bits():
    objective = OBJECTIVES["variational-sample"](baseline="learned")
    p = problem()
    assert objective(p.latent()).surrogate.isfinite().all()
    assert {x.dtype for x in objective.expectation.baseline.parameters()} == {torch.float64}
    latent = p.latent()
    latent.query = latent.query.detach().bfloat16()
    learned = LearnedBaseline(4)
    learned(latent, torch.zeros(2, 3, 1))
    assert {x.dtype for x in learned.parameters()} == {torch.float32}


def test_a_running_mean_lives_on_its_own_device_with_or_without_float64():
    elsewhere = RunningMean().to("meta")
    elsewhere.update(torch.zeros(3, device="meta"), torch.ones(3, device="meta").bool())
    assert elsewhere.mean.device.type == "meta"
    assert elsewhere.mean.dtype == elsewhere.seen.dtype == torch.float64

    def to_device_without_float64(state):
        if state.dtype == torch.float64:
            raise TypeError("no float64 here")
        return state

    narrow = RunningMean()
    narrow._apply(to_device_without_float64)
    narrow.update(torch.full((3,), -2.0), torch.ones(3).bool())
    assert narrow.mean.dtype == torch.float32
    assert (narrow.mean / narrow.seen).item() == pytest.approx(-2.0)


def test_sum_and_sample_refuses_the_baseline_that_would_bias_it():
    with pytest.raises(ValueError, match="biased"):
        SumAndSample(3, leave_one_out)
    with pytest.raises(ValueError, match="biased"):
        OBJECTIVES["sum-and-sample"](baseline="leave-one-out")


def spread(p, baseline, n):
    """The exact variance of the prior's gradient, over all draws."""
    mean, square = torch.zeros_like(p.prior_scores), 0.0
    for draws in all_draws(p, n):
        weight = probability_of(p.latent().prior, draws).item()
        grad = gradients(Hard(ScoreFunction(n, baseline))(p.latent(), draws).surrogate, [p.prior_scores])[0]
        mean, square = mean + weight * grad, square + weight * float((grad**2).sum())
    return square - float((mean**2).sum())


@pytest.mark.slow
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


def test_a_running_mean_counts_the_rewards_of_all_processes():
    here, both = RunningMean(0.0), RunningMean(0.0)
    both.all_reduce = lambda total: total + torch.tensor([6.0, 2.0], dtype=total.dtype)  # rewards 2 and 4
    for running in (here, both):
        running.update(torch.tensor([0.0, 9.0, 3.0]), torch.tensor([True, False, True]))
    assert (here.mean.item(), both.mean.item()) == (1.5, 2.25)


def test_baselines_are_found_by_name():
    assert build_baseline("soft") is soft_baseline
    assert build_baseline("none") is no_baseline
    assert build_baseline("leave-one-out") is leave_one_out
    assert isinstance(build_baseline("running-mean"), RunningMean)
    assert isinstance(build_baseline("learned"), LearnedBaseline)
