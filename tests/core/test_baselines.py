"""Baselines see the weighted draws of queries that exist, on any device and in any precision."""

import math

import pytest
import torch
from problems import gradients, problem
from test_support import masked

from latentalign import (
    OBJECTIVES,
    Hard,
    LearnedBaseline,
    RunningMean,
    ScoreFunction,
    SumAndSample,
    Variational,
)
from latentalign.core.baselines import leave_one_out


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
    query_mask = torch.zeros(2, 3).bool()
    query_mask[1, 2] = True
    query = p.query.detach().masked_fill(~query_mask.unsqueeze(-1), math.nan)
    running, learned = RunningMean(), LearnedBaseline(4)
    value = Hard(ScoreFunction(2, running))(masked(p, query_mask, query=query)).value
    assert (running.mean / running.seen).item() == pytest.approx(value[1, 2].item())
    estimate = Hard(ScoreFunction(2, learned))(masked(p, query_mask, query=query))
    assert (estimate.surrogate[~query_mask] == 0).all()
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
    elsewhere.update(torch.zeros(3, device="meta"))
    assert elsewhere.mean.device.type == "meta"

    def to_device_without_float64(state):
        if state.dtype == torch.float64:
            raise TypeError("no float64 here")
        return state

    narrow = RunningMean()
    narrow._apply(to_device_without_float64)
    narrow.update(torch.full((3,), -2.0))
    assert narrow.mean.dtype == torch.float32
    assert (narrow.mean / narrow.seen).item() == pytest.approx(-2.0)


def test_sum_and_sample_refuses_the_baseline_that_would_bias_it():
    with pytest.raises(ValueError, match="biased"):
        SumAndSample(3, leave_one_out)
    with pytest.raises(ValueError, match="biased"):
        OBJECTIVES["sum-and-sample"](baseline="leave-one-out")
