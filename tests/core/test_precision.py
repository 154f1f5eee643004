"""Sixteen bits come in, thirty-two go out; sums that cancel are taken in sixty-four."""

import functools
import math

import pytest
import torch

from latentalign import (
    OBJECTIVES,
    Categorical,
    Dirichlet,
    Latent,
    LatentAttention,
    LogisticNormal,
    target_log_prob,
)
from latentalign.core.distributions import DISTRIBUTIONS
from latentalign.core.kernels.borders import Borders
from latentalign.core.kernels.fused_softmax import fused_average, linear_log_prob
from support.problems import gradients


@functools.cache
def run(name, dtype, autocast):
    """Value and the gradient by all parameters, with draws from one seed."""
    torch.manual_seed(0)
    family = OBJECTIVES[name]().distribution
    attention = LatentAttention(16, 16, 50, hidden=32, distribution=family, inference=family == "categorical")
    query, memory, target = torch.randn(4, 3, 16), torch.randn(4, 5, 16), torch.randint(50, (4, 3))
    scores = torch.randn(4, 3, 5)
    attention, query, memory, scores = (x.to(dtype) for x in (attention, query, memory, scores))
    inferred = None if family == "categorical" else DISTRIBUTIONS[family].from_scores(scores)
    torch.manual_seed(1)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        estimate = OBJECTIVES[name]()(attention(query, memory).observe(target, inferred))
    found = gradients(estimate.surrogate, list(attention.parameters()))
    return estimate.value, torch.cat([g.float().flatten() for g in found])


@pytest.mark.parametrize("name", list(OBJECTIVES))
@pytest.mark.parametrize("autocast", [True, False])
def test_objectives_run_in_bfloat16_and_answer_in_float32(name, autocast):
    value, gradient = run(name, torch.float32, False)
    low, low_gradient = run(name, torch.float32 if autocast else torch.bfloat16, autocast)
    assert low.dtype == torch.float32
    assert (low - value).abs().max() < 0.03 * value.abs().max() + 0.03
    assert torch.cosine_similarity(gradient, low_gradient, 0) > 0.99


@pytest.mark.parametrize("build", [f.from_scores for f in DISTRIBUTIONS.values()])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_distributions_of_sixteen_bit_scores_are_float32(build, dtype):
    scores = torch.randn(3, 40).to(dtype)
    ours, wide = build(scores), build(scores.float())
    assert ours.mean.dtype == torch.float32
    assert torch.equal(ours.mean, wide.mean)
    assert torch.equal(ours.entropy, wide.entropy)
    draws = ours.relaxed_sample(50, 0.1) if isinstance(ours, Categorical) else ours.rsample(50)
    assert draws.z.isfinite().all()
    if build == LogisticNormal.from_scores:
        assert LogisticNormal.from_scores(scores, scale_scores=scores).scale.dtype == torch.float32


def test_the_predictive_distribution_sums_to_one_under_autocast():
    attention = LatentAttention(8, 8, 3000, hidden=16, inference=False)
    with torch.autocast("cpu", torch.bfloat16):
        for how in ("exact", "soft"):
            log_p = attention(torch.randn(2, 3, 8), torch.randn(2, 4, 8)).predict(how)
            assert log_p.dtype == torch.float32
            assert (log_p.exp().sum(-1) - 1).abs().max() < 1e-5


def test_hidden_layers_of_sixteen_bits_meet_weights_of_thirty_two():
    hidden, weight, bias = torch.randn(6, 8).bfloat16(), torch.randn(5, 8), torch.randn(5)
    target, owner = torch.randint(5, (6,)), torch.tensor([0, 0, 1, 1, 2, 2])
    log_weight = torch.full((6,), -math.log(2)).bfloat16()

    def both(hidden, weight, bias):
        leaves = [x.clone().requires_grad_() for x in (hidden, weight, bias)]
        each = linear_log_prob(*leaves, target, max_logits=10)
        mean = fused_average(
            *leaves,
            target,
            log_weight=log_weight,
            owner=owner,
            borders=Borders([0, 2, 4, 6], [0, 1, 2, 3]),
            marginal=True,
        )
        found = gradients(torch.cat([each, mean]), leaves, torch.arange(9.0))
        return each, mean, *found

    ours = both(hidden, weight, bias)
    rounded = both(hidden.float(), weight.bfloat16().float(), bias)
    assert [x.dtype for x in ours] == [torch.float32] * 2 + [torch.bfloat16] + [torch.float32] * 2
    for a, b in zip(ours, rounded, strict=True):
        torch.testing.assert_close(a.float(), b.float(), rtol=0.03, atol=0.1)


@pytest.mark.parametrize("alpha", [1e2, 1e3, 1e4])
def test_dirichlet_divergence_and_entropy_keep_their_digits_in_float32(alpha):
    a, b = (math.log(alpha) + 0.01 * torch.randn(20, 50) for _ in range(2))
    z = Dirichlet.from_scores(a).mean
    for narrow, wide in (
        [Dirichlet.from_scores(a).kl(Dirichlet.from_scores(b)), wide_of(a).kl(wide_of(b))],
        [Dirichlet.from_scores(a).entropy, wide_of(a).entropy],
        [Dirichlet.from_scores(a).log_prob(z), wide_of(a).log_prob(z.double())],
    ):
        assert narrow.dtype == torch.float32
        torch.testing.assert_close(narrow.double(), wide, rtol=1e-4, atol=1e-3)


def wide_of(scores):
    return Dirichlet.from_scores(scores.double())


def test_any_head_is_normalised_in_float32():
    query, memory, target = torch.randn(3, 8), torch.randn(3, 4, 8), torch.randint(50, (3,))
    matrix = torch.randn(50, 8).bfloat16()

    def emit(query, context):
        return (query + context).bfloat16() @ matrix.t()

    a = Categorical.from_scores(torch.randn(3, 4)).enumerate()
    ours = target_log_prob(emit, query, memory, target, a)
    logits = emit(query.unsqueeze(1), memory).float().log_softmax(-1)
    expected = logits.gather(-1, target[:, None, None].expand(3, 4, 1)).squeeze(-1)
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)


def test_refinement_takes_likelihoods_of_another_precision():
    prior = Categorical.from_scores(torch.zeros(2, 3))
    latent = Latent(prior, lambda a: torch.full(a.log_weight.shape, -1.0, dtype=torch.float64), prior)
    for name in ("svi", "semi-amortized"):
        assert OBJECTIVES[name]()(latent).value.isfinite().all()
