"""Copying: the pointer mixture is summed out exactly, for every way to train and to predict."""

import pytest
import torch

from latentalign import OBJECTIVES, ChainPrior, CopyHead, LatentAttention, exact_posterior

B, S, T, V = 2, 3, 4, 7
COPIES = torch.tensor([[1, 2, 2, -1], [5, -1, -1, -1]])
KEY_PADDING = torch.tensor([[0, 0, 0, 0], [0, 0, 1, 1]]).bool()
TARGET = torch.tensor([[2, 1, 0], [5, 4, 2]])


@pytest.fixture
def problem():
    torch.manual_seed(0)
    attention = LatentAttention(5, 6, V, hidden=8, inference=True).double()
    head = CopyHead(5, 6).double()
    query, memory = torch.randn(B, S, 5).double(), torch.randn(B, T, 6).double().requires_grad_()
    return head, attention(query, memory, key_padding_mask=KEY_PADDING), [memory, *head.parameters()]


def member_probabilities(head, choice):
    """p(y | x~, z = i) of every output and member, written as a loop."""
    found = torch.zeros(B, S, T, V, dtype=torch.float64)
    for b in range(B):
        for s in range(S):
            for i in range(T):
                query, context = choice.query[b, s], choice.memory[b, 0, i]
                p = choice.head(query[None], context[None]).softmax(-1)[0]
                copy = int(COPIES[b, i])
                if copy >= 0:
                    g = torch.sigmoid(head.from_memory(context) + head.from_query(query))
                    p = (1 - g) * p + g * torch.nn.functional.one_hot(torch.tensor(copy), V)
                found[b, s, i] = p
    return found


def test_the_marginal_equals_a_loop_over_members_and_copying_with_gradients(problem):
    head, choice, leaves = problem
    value = OBJECTIVES["marginal"]()(head(choice, COPIES.unsqueeze(1)).observe(TARGET)).value
    each = (
        member_probabilities(head, choice).gather(-1, TARGET[..., None, None].expand(B, S, T, 1)).squeeze(-1)
    )
    expected = (choice.prior.mean * each).sum(-1).log()
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-10)
    ours, theirs = (torch.autograd.grad(x.sum(), leaves, retain_graph=True) for x in (value, expected))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("how", ["exact", "kmax:2", "soft"])
def test_predictions_sum_to_one_and_agree_with_the_likelihood_of_an_output(problem, how):
    head, choice, _ = problem
    mixed = head(choice, COPIES.unsqueeze(1))
    with torch.no_grad():
        log_probs = mixed.predict(how)
        torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(B, S).double())
        if how == "exact":
            expected = torch.einsum(
                "bst,bstv->bsv", choice.prior.mean, member_probabilities(head, choice)
            ).log()
            torch.testing.assert_close(log_probs, expected, rtol=1e-10, atol=1e-10)
        if how == "soft":
            chosen = log_probs.gather(-1, TARGET.unsqueeze(-1)).squeeze(-1)
            torch.testing.assert_close(chosen, mixed.observe(TARGET).soft(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "name", ["soft", "hard-enum", "hard-sample", "variational-enum", "variational-sample", "rws"]
)
def test_every_objective_trains_the_gate(problem, name):
    head, choice, _ = problem
    OBJECTIVES[name]()(head(choice, COPIES.unsqueeze(1)).observe(TARGET)).loss().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in head.parameters())


def test_an_output_that_only_one_member_can_copy_points_there(problem):
    head, choice, _ = problem
    with torch.no_grad():
        head.from_query.bias += 20.0  # always copy where it is possible
        posterior = exact_posterior(head(choice, COPIES.unsqueeze(1)).observe(TARGET))
    assert posterior.mean[1, 0, 0] > 0.9


def test_copies_need_one_output_per_member(problem):
    head, choice, _ = problem
    with pytest.raises(ValueError, match="one output for every member"):
        head(choice, COPIES)


def test_a_chain_copies_too():
    attention = LatentAttention(5, 6, V, hidden=8, prior=ChainPrior("jump", 5, 6, null=True))
    choice = attention(torch.randn(B, S, 5), torch.randn(B, T, 6), key_padding_mask=KEY_PADDING)
    copies = torch.cat([COPIES, torch.full((B, 1), -1)], 1).unsqueeze(1)  # NULL cannot be copied
    estimate = OBJECTIVES["marginal"]()(CopyHead(5, 6)(choice, copies).observe(TARGET))
    assert (estimate.value < 0).all()
