"""No probability is above 1, however large the biases of the output layer are."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from latentalign import (
    Categorical,
    EmissionLatent,
    LinearHead,
    certified_marginal,
    marginal,
    predictive_log_prob,
)
from latentalign.core.kernels.borders import Borders
from latentalign.core.kernels.fused_softmax import (
    Outputs,
    fused_average,
    largest_bias,
    linear_log_prob,
    safe_sums,
)
from latentalign.core.kernels.mixture import add_mixture, single_log_prob
from latentalign.core.kernels.screening import log_sum_of_logits

FLOATS = {torch.float32: 2e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2}
"""Relative error allowed in gradients of sums."""


def head_of(weights, biases, dtype=torch.float32):
    head = LinearHead(1, len(weights)).to(dtype)
    with torch.no_grad():
        head.output.weight.copy_(torch.as_tensor(weights).unsqueeze(1))
        head.output.bias.copy_(torch.as_tensor(biases))
    return head


def latent_of(head, memory, target, scores=None):
    """One query, its members the rows of memory."""
    scores = torch.zeros(1, len(memory)) if scores is None else scores
    query = torch.zeros(1, 1, dtype=memory.dtype)
    prior = Categorical.from_scores(scores)
    return EmissionLatent(prior, head, query, memory=memory.unsqueeze(0), target=torch.tensor([target]))


def every_log_prob(latent):
    """log p of the target by every path that computes it."""
    everything = latent.prior.enumerate()
    outputs = predictive_log_prob(latent.emit, latent.query, latent.memory, everything)
    with torch.no_grad():
        decoded = predictive_log_prob(latent.emit, latent.query, latent.memory, everything)
    return {
        "marginal": marginal(latent).value,
        "likelihood": everything.log_expect_exp(latent.log_likelihood(everything)),
        "certified": certified_marginal(latent, 0.0).value,
        "predictive": outputs[:, latent.target].squeeze(-1),
        "decoded": decoded[:, latent.target].squeeze(-1),
    }


@pytest.mark.parametrize("members", [1, 2])
def test_a_bias_that_hides_an_underflow_gives_no_probability_above_one(members):
    head = head_of([0.0, -104.0, 0.0, -300.0], [-55.0, 55.0, -55.0, 55.0])
    truth = torch.tensor([-55.0, -49.0, -55.0, -245.0]).double().log_softmax(0)[1]
    assert -0.01 < truth < 0
    for path, log_prob in every_log_prob(latent_of(head, torch.ones(members, 1), 1)).items():
        torch.testing.assert_close(log_prob.double(), truth.view(1), atol=2e-5, rtol=0, msg=path)


def sizes(outputs, dtype):
    """Biases just inside and just outside of the limit, and far from it."""
    limit = largest_bias(outputs, torch.float64 if dtype == torch.float64 else torch.float32)
    return {"inside": 0.99 * limit, "outside": 1.01 * limit, "small": 1.0, "reported": 55.0, "far": 3 * limit}


@pytest.mark.parametrize("dtype", list(FLOATS), ids=str)
@pytest.mark.parametrize("lift", [0.0, 20.0, -20.0])
@pytest.mark.parametrize("where", ["inside", "outside", "small", "reported", "far"])
def test_both_sides_of_the_largest_bias_agree_with_float64(where, lift, dtype):
    size = sizes(4, dtype)[where]
    # The last two logits win by their bias alone, and only just: the worst case for an underflow.
    weight = torch.tensor([0.0, 0.5 - 2 * size, 0.0, 1.0 - 2 * size]).add(lift).to(dtype).unsqueeze(1)
    bias = torch.tensor([-size, size, -size, size]).to(dtype)
    hidden, target = torch.ones(4, 1, dtype=dtype), torch.arange(4)
    uses_boost = Outputs(weight, bias, like=hidden, rows=4).boost is not None
    assert uses_boost == (where in ("inside", "small") or (where == "reported" and dtype == torch.float64))

    def leaves(*tensors):
        return [x.detach().clone().requires_grad_() for x in tensors]

    true = leaves(*(x.double() for x in (hidden, weight, bias)))
    logits = true[0] @ true[1].t()
    if dtype == torch.bfloat16:  # logits are rounded there, with the gradient of the exact ones
        logits = logits + ((hidden @ weight.t()).double() - logits).detach()
    expected = (logits + true[2]).log_softmax(-1).diagonal()
    ours = leaves(hidden, weight, bias)
    found = linear_log_prob(*ours, target, max_logits=8)
    rounding = 8 * torch.finfo(found.dtype).eps * max(1.0, size + abs(lift))
    torch.testing.assert_close(found.double(), expected, atol=rounding, rtol=0)
    assert (found <= rounding).all()
    share = torch.rand(4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gradients = torch.autograd.grad((found * share).sum(), ours)
    truth = torch.autograd.grad((expected * share).sum(), true)
    # The gradient of the hidden layer is a difference of weights.
    largest = float(weight.abs().max()), 1.0, 1.0
    for one, other, terms in zip(gradients, truth, largest, strict=True):
        close = max(FLOATS[dtype], rounding)
        torch.testing.assert_close(one.double(), other, atol=close * terms, rtol=close)
    owner, log_weight = torch.tensor([0, 0, 1, 1]), torch.full((4,), math.log(0.5), dtype=found.dtype)
    rows = {"log_weight": log_weight, "owner": owner}
    average = fused_average(*ours, target, **rows, borders=Borders([0, 2, 4], [0, 1, 2]), marginal=True)
    truth = (expected.detach().view(2, 2) + math.log(0.5)).logsumexp(1)
    torch.testing.assert_close(average.double(), truth, atol=rounding, rtol=0)
    whole = (logits.detach() + true[2].detach()).softmax(-1)
    mixed = torch.zeros(2, 4, dtype=found.dtype)
    add_mixture(mixed, hidden, weight, bias, **rows, max_logits=8)
    torch.testing.assert_close(mixed.double(), whole.view(2, 2, 4).mean(1), atol=rounding, rtol=0)
    single = torch.empty(4, 4, dtype=found.dtype)
    single_log_prob(single, hidden, weight, bias, log_weight=log_weight - log_weight)
    torch.testing.assert_close(single.double(), whole.log(), atol=rounding, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_limits_keep_lost_terms_below_a_rounding_error(dtype):
    info, outputs = torch.finfo(dtype), 10_000
    size = largest_bias(outputs, dtype)
    assert math.log(outputs * info.tiny) + 2 * size <= math.log(info.eps) + 1e-9
    for bias in (0.0, size):
        low, high = safe_sums(outputs, bias, dtype)
        assert outputs * info.tiny * math.exp(bias) <= info.eps * low * (1 + 1e-9)
        assert high * math.exp(bias) < info.max
        assert low < high
    assert largest_bias(outputs, torch.float16) < 0  # the products of half precision have no room for it


def test_the_screen_never_underestimates_a_likelihood():
    """exp(-103) is rounded up by a third in float32; a bias of 60 must not make that count."""
    logits, bias = torch.full((1, 2), -103.6), torch.tensor([60.0, 60.0])
    truth = (logits.double() + bias.double()).logsumexp(-1)
    assert (logits.exp().double().log() - logits.double()).abs().max() > 0.01
    torch.testing.assert_close(log_sum_of_logits(logits, bias).double(), truth, atol=1e-5, rtol=0)


numbers = st.floats(-150, 150, width=32)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(1, 5), st.integers(1, 3), st.sampled_from([1.0, 30.0, 52.0, 60.0, 150.0]))
def test_no_log_probability_is_above_zero(data, outputs, members, size):
    def draw(n, most):
        return torch.tensor(data.draw(st.lists(numbers, min_size=n, max_size=n))) * (most / 150)

    head = head_of(draw(outputs, 150.0), draw(outputs, size))
    if data.draw(st.booleans()):  # the worst case: biases of one size, and logits that undo them
        signs = torch.tensor(
            data.draw(st.lists(st.sampled_from([-1.0, 1.0]), min_size=outputs, max_size=outputs))
        )
        head = head_of(-2 * size * (signs > 0) + draw(outputs, 8.0), size * signs)
    memory, scores = draw(members, 2.0).unsqueeze(1), draw(members, 20.0).unsqueeze(0)
    memory = torch.ones_like(memory) if data.draw(st.booleans()) else memory
    target = data.draw(st.integers(0, outputs - 1))
    latent = latent_of(head, memory, target, scores)
    wide = latent_of(
        head_of(*(p.double().flatten() for p in head.parameters()), torch.float64),
        memory.double(),
        target,
        scores.double(),
    )
    everything = wide.prior.enumerate()
    log_f = (memory.double() @ wide.emit.output.weight.t() + wide.emit.output.bias).log_softmax(-1)
    truth = everything.log_expect_exp(log_f[:, target].unsqueeze(0)).detach()
    for path, log_prob in every_log_prob(latent).items():
        assert (log_prob <= 1e-4).all(), path
        torch.testing.assert_close(log_prob.detach().double(), truth, atol=1e-3, rtol=1e-3, msg=path)
