"""Objectives that are exact given q, against a loop over z."""

import pytest
import torch

from latentalign import OBJECTIVES, Categorical, Latent, elbo_gap, exact_posterior, posterior_divergence
from support.problems import brute_force, gradients, problem

EXACT = ["soft", "marginal", "hard-enum", "variational-enum"]


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("batch", [(2, 3), (4,), (2, 2, 2)])
@pytest.mark.parametrize("max_logits", [1, 12, 2**22])
@pytest.mark.parametrize("uniform", [True, False])
def test_value_and_gradient_equal_a_loop_over_z(name, batch, max_logits, uniform):
    p = problem(batch, max_logits=max_logits)
    estimate = OBJECTIVES[name]()(p.latent())
    expected = brute_force(p)[name]
    torch.testing.assert_close(estimate.value, expected, rtol=1e-10, atol=1e-10)
    # A loss in which queries count differently must not take the path that assumes they count alike.
    weight = None if uniform else torch.rand(batch, dtype=torch.float64)
    ours = gradients(estimate.surrogate, p.leaves, weight)
    theirs = gradients(expected, p.leaves, weight)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", EXACT)
def test_a_plain_module_gives_what_a_factored_head_gives(name):
    p = problem()
    head = p.head
    factored = gradients(OBJECTIVES[name]()(p.latent()).surrogate, p.leaves)
    p.head = Opaque(head)
    plain = gradients(OBJECTIVES[name]()(p.latent()).surrogate, p.leaves)
    for a, b in zip(factored, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


class Opaque(torch.nn.Module):
    """Hides that the head is factored."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, query, context):
        return self.inner(query, context)


def test_a_query_without_members_contributes_nothing():
    p = problem()
    for name in EXACT:
        estimate = OBJECTIVES[name]()(p.latent())
        assert estimate.value.flatten()[-1] == 0
        grads = gradients(estimate.surrogate.flatten()[-1], p.leaves)
        assert all((g == 0).all() for g in grads), name


def test_elbo_is_tight_at_the_exact_posterior():
    p = problem()
    latent = p.latent()
    posterior = exact_posterior(latent)
    at_posterior = Latent(latent.prior, latent.log_likelihood, posterior)
    elbo = OBJECTIVES["variational-enum"]()(at_posterior).value
    torch.testing.assert_close(elbo, OBJECTIVES["marginal"]()(latent).value, rtol=1e-10, atol=1e-10)


def test_elbo_gap_is_the_divergence_from_the_exact_posterior():
    latent = problem().latent()
    torch.testing.assert_close(elbo_gap(latent), posterior_divergence(latent), rtol=1e-9, atol=1e-10)


def test_hard_attention_is_the_elbo_at_the_prior():
    latent = problem().latent()
    at_prior = Latent(latent.prior, latent.log_likelihood, latent.prior)
    torch.testing.assert_close(
        OBJECTIVES["variational-enum"]()(at_prior).value, OBJECTIVES["hard-enum"]()(latent).value
    )


def test_marginal_is_soft_attention_when_the_prior_is_one_hot():
    p = problem(ragged=False)
    scores = torch.full_like(p.prior_scores, float("-inf"))
    scores[..., 1] = 0.0
    p.prior_scores = scores
    latent = p.latent()
    torch.testing.assert_close(OBJECTIVES["marginal"]()(latent).value, latent.soft(), rtol=1e-12, atol=1e-12)


def test_the_posterior_is_bayes_rule():
    latent = problem(ragged=False).latent()
    joint = latent.prior.mean * latent.log_likelihood(latent.prior.enumerate()).exp()
    torch.testing.assert_close(exact_posterior(latent).mean, joint / joint.sum(-1, keepdim=True))


@pytest.mark.parametrize("name", ["variational-enum", "variational-sample", "gumbel", "sum-and-sample"])
def test_kl_weight_scales_the_gradient_of_the_divergence_alone(name):
    p = problem()
    q = Categorical.from_scores(p.inferred_scores, exists=p.mask)
    kl = gradients(q.kl(Categorical.from_scores(p.prior_scores, exists=p.mask)), p.leaves)
    with_kl, without = (
        seeded(lambda w=w: gradients(OBJECTIVES[name](kl_weight=w)(p.latent()).surrogate, p.leaves))
        for w in (1.0, 0.0)
    )
    for a, b, c in zip(with_kl, without, kl, strict=True):
        torch.testing.assert_close(a, b - c, rtol=1e-9, atol=1e-10)


def seeded(function):
    torch.manual_seed(3)
    return function()
