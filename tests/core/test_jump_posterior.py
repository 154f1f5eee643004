"""The fast posterior of jump chains, compared with the same model as a `Chain` of the core."""

import pytest
import torch

from latentalign import Chain, Jump
from latentalign.core.kernels import jump_posterior as module
from latentalign.core.kernels.jump_posterior import jump_posterior, uniform_posterior

LENGTHS = [(7, 6), (4, 3), (1, 1), (2, 6)]
NULL = 0.2


@pytest.fixture
def problem():
    """Emissions of four sentence pairs, with NaN where nothing exists."""
    torch.manual_seed(0)
    emission, null = torch.rand(4, 6, 7), torch.rand(4, 6)
    members = torch.arange(7) < torch.tensor([[t] for t, _ in LENGTHS])
    exists = torch.arange(6) < torch.tensor([[s] for _, s in LENGTHS])
    emission[~(members[:, None] & exists[..., None])] = float("nan")
    null[~exists] = float("nan")
    return emission, null, members, exists


def as_chain(emission, null, weights, row):
    """One sentence pair as a chain with an end: one more member and one more query."""
    t, s = LENGTHS[row]
    log_f = torch.full((1, s + 1, t + 2), float("-inf"), dtype=torch.float64)
    log_f[0, :s, :t] = emission[row, :s, :t].double().log()
    log_f[0, :s, -1] = null[row, :s].double().log()
    log_f[0, s, t] = 0.0
    table = weights.double().log()
    scores = torch.zeros(1, s + 1, t + 1, dtype=torch.float64)
    widest = len(table) // 2
    scores[:, 0] = table[(torch.arange(t + 1) + 1).clamp_max(widest) + widest]
    scores[:, 0, t] = float("-inf")
    null_scores = torch.full((1, s + 1), NULL, dtype=torch.float64).logit()
    null_scores[:, -1] = -1e4
    return Chain.from_scores(scores, transition=Jump(table), null_scores=null_scores), log_f


@pytest.mark.parametrize("longest", [384, 0], ids=["matrix", "convolution"])
def test_it_equals_the_posterior_of_a_chain(problem, monkeypatch, longest):
    monkeypatch.setattr(module, "LONGEST_MATRIX", longest)
    emission, null, members, exists = problem
    weights = torch.rand(7) + 0.1
    found = jump_posterior(emission, null, members, exists, weights=weights, null=NULL)
    for row, (t, s) in enumerate(LENGTHS):
        chain, log_f = as_chain(emission, null, weights, row)
        expected = chain.posterior(log_f).mean[0, :s]
        torch.testing.assert_close(found.links[row, :s, :t].double(), expected[:, :t], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(found.null[row, :s].double(), expected[:, -1], atol=1e-6, rtol=1e-5)
        sums = found.links[row].sum(-1) + found.null[row]
        torch.testing.assert_close(sums, exists[row].float())
        assert (found.log_likelihood[row, s:] == 0).all()


def test_the_likelihood_is_that_of_the_chain_up_to_its_start(problem):
    emission, null, members, exists = problem
    weights = torch.rand(7) + 0.1
    found = jump_posterior(emission, null, members, exists, weights=weights, null=NULL)
    for row, (_, s) in enumerate(LENGTHS):
        chain, log_f = as_chain(emission, null, weights, row)
        expected = chain.filter(log_f)[0].sum()
        assert float(found.log_likelihood[row, :s].double().sum()) == pytest.approx(float(expected), abs=1e-4)


@pytest.mark.parametrize("longest", [384, 0], ids=["matrix", "convolution"])
def test_expected_jumps_include_the_first_and_the_last(problem, monkeypatch, longest):
    monkeypatch.setattr(module, "LONGEST_MATRIX", longest)
    emission, null, members, exists = problem
    weights = torch.rand(7) + 0.1
    found = jump_posterior(emission, null, members, exists, weights=weights, null=NULL, count_jumps=True)
    total = torch.zeros(7, dtype=torch.float64)
    for row in range(len(LENGTHS)):
        chain, log_f = as_chain(emission, null, weights, row)
        posterior = chain.posterior(log_f)
        total += posterior.jump_counts(3)[0]
        first = posterior.mean[0, 0, :-2]
        total.index_add_(0, (torch.arange(len(first)) + 1).clamp_max(3) + 3, first)
    torch.testing.assert_close(found.jumps.double(), total, atol=1e-5, rtol=1e-4)


def test_without_jumps_every_member_is_equally_likely(problem):
    emission, null, members, exists = problem
    found = uniform_posterior(emission, null, members, exists, null=NULL)
    t, s = LENGTHS[1]
    prior = torch.cat([emission[1, :s, :t] * (1 - NULL) / t, NULL * null[1, :s, None]], -1)
    torch.testing.assert_close(found.links[1, :s, :t], (prior / prior.sum(-1, keepdim=True))[:, :t])
    torch.testing.assert_close(found.log_likelihood[1, :s], prior.sum(-1).log())
    assert not found.links.isnan().any()
