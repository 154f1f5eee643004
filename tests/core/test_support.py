"""Members without mass: in the prior where q has some, in scores of -inf, and as whole queries."""

import math

import pytest
import torch

from latentalign import (
    OBJECTIVES,
    RWS,
    VIMCO,
    Categorical,
    Dirichlet,
    Latent,
    LogisticNormal,
    Mixed,
)
from latentalign.core.numerics import log_sum_exp
from support.problems import gradients, masked, problem

INF = math.inf


def one_sided(kind=Categorical):
    """A prior with mass on the first of three members alone, a q with mass on all."""
    prior_scores, inferred_scores = (torch.zeros(1, 3, dtype=torch.float64, requires_grad=True) for _ in "pq")
    log_f = torch.tensor([[-1.0, -2.0, -3.0]], dtype=torch.float64, requires_grad=True)
    cut = prior_scores.masked_fill(torch.tensor([[False, True, True]]), -INF)

    def likelihood(a):
        return log_f.gather(-1, a.index) if hasattr(a, "index") else (a.z * log_f.unsqueeze(-2)).sum(-1)

    latent = Latent(kind.from_scores(cut), likelihood, kind.from_scores(inferred_scores))
    return latent, [prior_scores, inferred_scores, log_f]


ELBO = ["variational-enum", "variational-sample", "gumbel", "sum-and-sample"]


@pytest.mark.parametrize("name", [*ELBO, "rws", "vimco", "svi", "semi-amortized"])
@pytest.mark.parametrize("seed", range(3))
def test_a_prior_without_mass_where_q_has_some_gives_finite_gradients(name, seed):
    latent, leaves = one_sided()
    torch.manual_seed(seed)
    estimate = OBJECTIVES[name]()(latent)
    assert not estimate.value.isnan().any()
    assert not estimate.surrogate.isnan().any()
    assert all(g.isfinite().all() for g in gradients(estimate.surrogate, leaves))
    if name in ELBO:
        assert estimate.value.item() == -INF
        assert estimate.terms["kl"].item() == INF
        assert not OBJECTIVES[name](kl_weight=0.0)(latent).surrogate.isnan().any()


def test_an_infinite_divergence_has_no_gradient_and_its_neighbours_keep_theirs():
    a, b = (torch.randn(2, 3, dtype=torch.float64, requires_grad=True) for _ in "ab")
    cut = b.masked_fill(torch.tensor([[False, False, True], [False, False, False]]), -INF)
    kl = Categorical.from_scores(a).kl(Categorical.from_scores(cut))
    assert kl[0] == INF
    whole = Categorical.from_scores(a).kl(Categorical.from_scores(b))
    torch.testing.assert_close(kl[1], whole[1])
    for ours, exact in zip(gradients(kl, [a, b]), gradients(whole, [a, b]), strict=True):
        assert (ours[0] == 0).all()
        torch.testing.assert_close(ours[1], exact[1])


def test_reweighted_wake_sleep_learns_from_the_possible_draws_alone():
    latent, leaves = one_sided()
    ours = gradients(RWS(3)(latent, torch.tensor([[0, 1, 2]])).surrogate, leaves)
    latent, leaves = one_sided()
    alone = gradients(RWS(1)(latent, torch.tensor([[0]])).surrogate, leaves)
    for a, b in zip(ours, alone, strict=True):
        torch.testing.assert_close(a, b)


def test_vimco_compares_a_possible_draw_with_the_possible_others():
    latent, _ = one_sided()
    signal = VIMCO(3)(latent, torch.tensor([[0, 0, 1]])).terms["signal"]
    w = -1.0 + math.log(3)  # log weight of a possible draw; the bound is log 2/3 + w
    # without either possible draw: the other's weight stands in for it; without the impossible one: three
    expected = (0 + 0 + math.log(3 / 2)) / 3
    assert signal.item() == pytest.approx(expected)
    only = VIMCO(2)(latent, torch.tensor([[0, 1]])).terms["signal"]
    # nothing to compare the one possible draw with; the impossible one is compared with it
    assert only.item() == pytest.approx((abs(w - math.log(2)) + math.log(2)) / 2)
    assert VIMCO(2)(latent, torch.tensor([[1, 2]])).terms["signal"].item() == 0


@pytest.mark.parametrize("kind", [Dirichlet, LogisticNormal])
def test_a_relaxed_score_of_minus_infinity_is_a_member_that_does_not_exist(kind):
    scores, other = torch.randn(2, 3, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64)
    gone = torch.tensor([False, True, False])
    p, q = (kind.from_scores(s.masked_fill(gone, -INF)) for s in (scores, other))
    short, short_q = (kind.from_scores(s[:, ~gone]) for s in (scores, other))
    torch.testing.assert_close(p.kl(q), short.kl(short_q))
    torch.testing.assert_close(p.entropy, short.entropy)
    assert (p.mean[:, 1] == 0).all()
    assert (p.rsample(4).z[..., 1] == 0).all()
    with pytest.raises(ValueError, match="same members"):
        OBJECTIVES["relaxed" if kind is Dirichlet else "relaxed-logistic-normal"]()(one_sided(kind)[0])


@pytest.mark.parametrize("name", [n for n in OBJECTIVES if OBJECTIVES[n]().distribution == "categorical"])
def test_a_masked_query_counts_nothing(name):
    p = problem(ragged=False)
    query_exists = torch.tensor([[True, False, True], [True, True, False]])
    query = p.query.detach().masked_fill(~query_exists.unsqueeze(-1), math.nan)
    target = p.target.masked_fill(~query_exists, 99)  # no such output
    estimate = OBJECTIVES[name]()(masked(p, query_exists, query=query, target=target))
    assert (estimate.value[~query_exists] == 0).all()
    assert (estimate.value[query_exists] != 0).all()
    assert all((term[~query_exists] == 0).all() for term in estimate.terms.values())
    assert all(g.isfinite().all() for g in gradients(estimate.surrogate, p.leaves))


@pytest.mark.parametrize("max_logits", [1, 64])
def test_averages_leave_out_masked_queries_whatever_alignments_are_given(max_logits):
    p = problem(ragged=False, max_logits=max_logits)
    query_exists = torch.tensor([[True, False, True], [True, True, False]])
    target = p.target.masked_fill(~query_exists, 99)
    everything = Categorical.from_scores(p.prior_scores).enumerate()
    for average in ("log_marginal", "mean_log_likelihood"):
        whole = getattr(p.latent(), average)(everything)
        value = getattr(masked(p, query_exists, target=target), average)(everything)
        torch.testing.assert_close(value, whole.masked_fill(~query_exists, 0.0))


@pytest.mark.parametrize("shared", [True, False])
def test_mixtures_never_read_padding(shared):
    memory = torch.randn(2, 1 if shared else 3, 4, 5)
    mask = torch.ones(2, 3, 4).bool()
    mask[..., 3] = False
    mask[0, 1, 2] = False  # padding for one query only: still read by the others
    z = torch.randn(2, 3, 4).masked_fill(~mask, -INF).softmax(-1)
    clean = Mixed.point(z, exists=mask).contexts(memory)
    torch.testing.assert_close(clean, z.unsqueeze(-2) @ memory)
    dirty = memory.clone()
    dirty[:, :, 3] = math.nan
    dirty.requires_grad_()
    contexts = Mixed.point(z, exists=mask).contexts(dirty)
    assert torch.equal(contexts, clean)
    assert torch.autograd.grad(contexts.sum(), dirty)[0].isfinite().all()


def test_a_weight_that_is_nan_stays_to_be_seen():
    broken = Categorical(torch.full((1, 3), math.nan), mask=torch.ones(1, 3).bool(), check=False)
    assert OBJECTIVES["marginal"]()(Latent(broken, lambda a: -torch.ones(1, 3))).value.isnan().all()


def test_a_sum_over_nothing_is_minus_infinity_without_gradient():
    value = torch.tensor([[0.5, 1.0], [0.0, 0.0]], requires_grad=True)
    total = log_sum_exp(value.masked_fill(torch.tensor([[False], [True]]), float("-inf")))
    torch.testing.assert_close(total[0], value[0].logsumexp(0))
    assert total[1] == float("-inf")
    (grad,) = torch.autograd.grad(total.masked_fill(total == float("-inf"), 0.0).sum(), value)
    assert grad[0].sum().item() == pytest.approx(1.0)
    assert (grad[1] == 0).all()
