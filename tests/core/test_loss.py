"""Padding does not count in a loss, and every query that exists counts once."""

import math

import pytest
import torch

from latentalign import OBJECTIVES, Estimate, LatentAttention


def estimate_of(name="marginal", padded=3):
    """An estimate of two examples with 4 and 2 queries, and the same examples without padding."""
    torch.manual_seed(0)
    attention = LatentAttention(3, 2, 5, hidden=4, inference=OBJECTIVES[name].needs_inferred)
    query, memory = torch.randn(2, 4 + padded, 3), torch.randn(2, 3, 2)
    target, lengths = torch.randint(5, (2, 4 + padded)), torch.tensor([4, 2])
    padding = torch.arange(4 + padded) >= lengths.unsqueeze(1)
    choice = attention(query, memory, query_padding_mask=padding)
    return OBJECTIVES[name]()(choice.observe(target)), attention, padding


@pytest.mark.parametrize("name", ["marginal", "variational-enum", "soft"])
@pytest.mark.parametrize("padded", [0, 3])
def test_padding_does_not_count_in_the_loss(name, padded):
    estimate, attention, padding = estimate_of(name, padded)
    assert torch.equal(estimate.exists, ~padding)
    surrogate, value = estimate.surrogate[~padding], estimate.value[~padding]
    assert surrogate.shape == (6,)
    torch.testing.assert_close(estimate.loss(), -surrogate.mean())
    torch.testing.assert_close(estimate.loss(per="query"), -surrogate.mean())
    torch.testing.assert_close(estimate.loss(per="example"), -surrogate.sum() / 2)
    torch.testing.assert_close(estimate.mean(), value.mean())
    torch.testing.assert_close(estimate.mean(per="example"), value.sum() / 2)
    assert (estimate.loss() == -estimate.surrogate.mean()) == (padding.sum() == 0)
    ours = torch.autograd.grad(estimate.loss(), list(attention.parameters()), retain_graph=True)
    theirs = torch.autograd.grad(-surrogate.mean(), list(attention.parameters()))
    torch.testing.assert_close(ours, theirs)


def test_whatever_stands_in_padding_stays_there():
    value = torch.tensor([1.0, math.nan], requires_grad=True)
    estimate = Estimate(value, value, exists=torch.tensor([True, False]))
    estimate.loss().backward()
    assert estimate.loss() == -1
    assert value.grad.tolist() == [-1.0, 0.0]


def test_an_estimate_of_ones_own_counts_every_query():
    value = torch.tensor([[1.0, 3.0], [5.0, 7.0]])
    assert Estimate(value, value).loss() == -4
    assert Estimate(value, value).loss(per="example") == -8
    assert Estimate(value[0], value[0]).loss(per="example") == -2  # one query per example
    assert Estimate(value[0, 0], value[0, 0]).loss() == -1


def test_a_batch_of_padding_alone_has_the_loss_zero():
    value = torch.ones(2, 3, requires_grad=True)
    loss = Estimate(value, value, exists=torch.zeros(2, 3).bool()).loss()
    loss.backward()
    assert loss == 0
    assert (value.grad == 0).all()


@pytest.mark.usefixtures("unchecked")
def test_an_unknown_average_is_refused():
    with pytest.raises(ValueError, match="query, example, got 'token'"):
        Estimate(torch.ones(1), torch.ones(1)).loss(per="token")
