"""Properties that an unbiased mean cannot show: variance, and what is reported beside the gradient."""

import pytest
import torch
from problems import all_draws, gradients, probability_of, problem

from latentalign import OBJECTIVES, Hard, ScoreFunction
from latentalign.core.baselines import leave_one_out, no_baseline, soft_baseline


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
