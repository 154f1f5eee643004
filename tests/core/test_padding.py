"""Padding never matters, neighbours never matter, extreme likelihoods stay finite."""

import functools

import pytest
import torch

from latentalign import (
    OBJECTIVES,
    BilinearScore,
    Categorical,
    Dirichlet,
    DotScore,
    EmissionLatent,
    Latent,
    LatentAttention,
    LogisticNormal,
    MLPScore,
)
from latentalign.core.distributions import DISTRIBUTIONS
from support.problems import gradients, problem

POISON = [float("nan"), float("inf"), 1e30]


def run(name, poison):
    """Value and gradients of an objective through scores, head and posterior, with padding filled in."""
    torch.manual_seed(0)
    family = OBJECTIVES[name]().distribution
    attention = LatentAttention(
        5, 4, 7, hidden=6, distribution=family, inference=family == "categorical"
    ).double()
    g = torch.Generator().manual_seed(1)
    query = torch.randn(2, 3, 5, generator=g, dtype=torch.float64)
    memory = torch.randn(2, 4, 4, generator=g, dtype=torch.float64)
    target = torch.randint(7, (2, 3), generator=g)
    key_padding = torch.tensor([[0, 0, 1, 1], [0, 0, 0, 1]]).bool()
    query_padding = torch.tensor([[0, 0, 1], [0, 0, 0]]).bool()
    memory[key_padding], query[query_padding] = poison, poison
    query.requires_grad_()
    memory.requires_grad_()
    inferred = None
    if family != "categorical":
        mask = ~key_padding.unsqueeze(1) & ~query_padding.unsqueeze(-1)
        build = {"dirichlet": Dirichlet.from_scores, "logistic-normal": LogisticNormal.from_scores}[family]
        inferred = build(torch.randn(2, 3, 4, generator=g, dtype=torch.float64), exists=mask)
    choice = attention(query, memory, key_padding_mask=key_padding, query_padding_mask=query_padding)
    latent = choice.observe(target, inferred)
    torch.manual_seed(2)
    estimate = OBJECTIVES[name]()(latent)
    leaves = [query, memory, *attention.parameters()]
    return [estimate.value, *estimate.terms.values(), *gradients(estimate.surrogate, leaves)]


@functools.cache
def clean_run(name):
    return run(name, 0.0)


@pytest.mark.parametrize("name", list(OBJECTIVES))
@pytest.mark.parametrize("poison", POISON)
def test_padding_never_matters_bit_for_bit(name, poison):
    clean, dirty = clean_run(name), run(name, poison)
    for a, b in zip(clean, dirty, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("score", [MLPScore(5, 5, 6), BilinearScore(5, 5), DotScore()])
def test_scores_agree_for_shared_and_expanded_sources(score):
    query, memory = torch.randn(2, 3, 5), torch.randn(2, 1, 4, 5)
    shared, expanded = score(query, memory), score(query, memory.expand(2, 3, 4, 5))
    torch.testing.assert_close(shared, expanded)
    torch.testing.assert_close(score(query[:, 0], memory[:, 0]), shared[:, 0])


@pytest.mark.parametrize("name", ["soft", "marginal", "hard-enum", "variational-enum"])
def test_results_do_not_depend_on_the_rest_of_the_batch(name):
    p = problem((4, 3), 5)
    whole = OBJECTIVES[name]()(p.latent()).value
    for row in range(4):
        prior = Categorical.from_scores(p.prior_scores[row : row + 1], exists=p.mask[row : row + 1])
        inferred = Categorical.from_scores(p.inferred_scores[row : row + 1], exists=p.mask[row : row + 1])
        alone = EmissionLatent(
            prior,
            p.head,
            p.query[row : row + 1],
            memory=p.memory[row : row + 1],
            target=p.target[row : row + 1],
            inferred=inferred,
        )
        torch.testing.assert_close(OBJECTIVES[name]()(alone).value[0], whole[row], rtol=1e-12, atol=1e-12)


def extreme(low, sharp, name):
    """A problem whose log-likelihoods reach from `low` to 0, under a prior that is nearly one-hot."""
    family = OBJECTIVES[name]().distribution
    scores = torch.tensor([[0.0, sharp, -sharp], [sharp, 0, 0]], dtype=torch.float64, requires_grad=True)
    log_f = torch.tensor([[low, 0.0, low / 2], [low, low, low]], dtype=torch.float64, requires_grad=True)
    build = DISTRIBUTIONS[family].from_scores

    def likelihood(a):
        return log_f.gather(-1, a.index) if hasattr(a, "index") else (a.z * log_f.unsqueeze(-2)).sum(-1)

    return Latent(build(scores), likelihood, build(scores.flip(-1))), [scores, log_f]


@pytest.mark.parametrize("name", list(OBJECTIVES))
@pytest.mark.parametrize("low", [-1e4, -1.0])
@pytest.mark.parametrize("sharp", [0.0, 6.0, 800.0])
def test_extreme_likelihoods_and_priors_stay_finite(name, low, sharp):
    latent, leaves = extreme(low, sharp, name)
    estimate = OBJECTIVES[name]()(latent)
    assert estimate.value.isfinite().all()
    for grad in gradients(estimate.surrogate, leaves):
        assert grad.isfinite().all()


def test_a_query_without_source_never_matters():
    attention = LatentAttention(5, 4, 7, hidden=6, inference=True)
    query, target = torch.randn(2, 3, 5), torch.zeros(2, 3, dtype=torch.long)
    query[0] = float("nan")
    padding = torch.tensor([[True, True, True], [False, False, False]])
    latent = attention(query, torch.randn(2, 3, 4), key_padding_mask=padding).observe(target)
    estimate = OBJECTIVES["variational-enum"]()(latent)
    estimate.surrogate.sum().backward()
    assert (estimate.value[0] == 0).all()
    assert all(p.grad.isfinite().all() for p in attention.parameters() if p.grad is not None)


@pytest.mark.parametrize("anything", [-100, 10**6])
def test_targets_at_padding_may_be_any_number(anything):
    attention = LatentAttention(5, 4, 7, hidden=6, inference=True)
    query, memory = torch.randn(2, 3, 5), torch.randn(2, 4, 4)
    padding = torch.tensor([[False, False, True], [False, True, True]])
    found = []
    for filler in (0, anything):
        target = torch.tensor([[1, 6, filler], [3, filler, filler]])
        latent = attention(query, memory, query_padding_mask=padding).observe(target)
        estimate = OBJECTIVES["variational-enum"]()(latent)
        found.append([estimate.value, *gradients(estimate.surrogate, list(attention.parameters()))])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
