"""Emission in bounded memory equals the dense computation."""

import math

import pytest
import torch
from torch import nn

from latentalign import (
    Categorical,
    Dirichlet,
    LatentAttention,
    LinearHead,
    Mixed,
    OneHot,
    parse_predict,
    predictive_log_prob,
    target_log_prob,
)
from latentalign.core.kernels import fused_softmax
from latentalign.core.kernels.borders import Borders
from latentalign.core.kernels.pairs import Pairs
from support.problems import gradients, problem


def dense(p, alignments):
    """log softmax of all logits of all alignments at once."""
    contexts = alignments.contexts(p.memory)
    query = p.query.unsqueeze(-2).expand(*contexts.shape[:-1], p.query.shape[-1])
    return p.head(query, contexts).log_softmax(-1)


class Opaque(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, query, context):
        return self.inner(query, context)


def some_alignments(p, kind):
    prior = Categorical.from_scores(p.prior_scores, exists=p.mask)
    torch.manual_seed(0)
    return {
        "enumerate": prior.enumerate,
        "top": lambda: prior.top(2),
        "sample": lambda: prior.sample(3),
        "soft": lambda: Mixed.point(prior.mean, exists=prior.mask),
        "relaxed": lambda: Dirichlet.from_scores(p.prior_scores, exists=p.mask).rsample(2),
    }[kind]()


@pytest.mark.parametrize("kind", ["enumerate", "top", "sample", "soft", "relaxed"])
@pytest.mark.parametrize("max_logits", [13, 2**20])
@pytest.mark.parametrize("factored", [True, False])
@pytest.mark.parametrize("batch", [(2, 3), (4,)])
def test_chunked_emission_matches_dense(kind, max_logits, factored, batch):
    p = problem(batch)
    emit = p.head if factored else Opaque(p.head)
    a = some_alignments(p, kind)
    ours = target_log_prob(emit, p.query, p.memory, p.target, a, max_logits=max_logits)
    a = some_alignments(p, kind)
    index = p.target[..., None, None].expand(*a.log_weight.shape, 1)
    expected = dense(p, a).gather(-1, index).squeeze(-1).masked_fill(~a.present, 0.0)
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-10)
    weight = torch.rand(ours.shape, dtype=torch.float64)
    for g, h in zip(gradients(ours, p.leaves, weight), gradients(expected, p.leaves, weight), strict=True):
        torch.testing.assert_close(g, h, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("how", ["exact", "kmax:2", "soft"])
@pytest.mark.parametrize("max_logits", [1, 13, 2**20])
@pytest.mark.parametrize("factored", [True, False])
def test_predictive_distribution_matches_dense_and_sums_to_one(how, max_logits, factored):
    p = problem()
    emit = p.head if factored else Opaque(p.head)
    a = parse_predict(how).alignments(Categorical.from_scores(p.prior_scores, exists=p.mask))
    ours = predictive_log_prob(emit, p.query, p.memory, a, max_logits=max_logits)
    a = parse_predict(how).alignments(Categorical.from_scores(p.prior_scores, exists=p.mask))
    weights = a.log_weight.exp().unsqueeze(-1)
    mixture = (weights * dense(p, a).exp()).sum(-2)
    exists = p.mask.any(-1)
    torch.testing.assert_close(ours[exists].exp(), mixture[exists], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(ours[exists].exp().sum(-1), torch.ones_like(ours[exists][:, 0]))
    assert (ours[~exists] == 0).all()
    weight = torch.rand(ours.shape, dtype=torch.float64) * exists.unsqueeze(-1)
    logs = mixture.masked_fill(~exists.unsqueeze(-1), 1.0).log()
    for g, h in zip(gradients(ours, p.leaves, weight), gradients(logs, p.leaves, weight), strict=True):
        torch.testing.assert_close(g, h, rtol=1e-9, atol=1e-10)


def test_masked_queries_and_members_are_never_computed(monkeypatch):
    p = problem()
    rows = []
    original = fused_softmax.logits_of
    monkeypatch.setattr(
        fused_softmax, "logits_of", lambda h, w, *a: rows.append(len(h)) or original(h, w, *a)
    )
    a = Categorical.from_scores(p.prior_scores, exists=p.mask).enumerate()
    query_exists = torch.tensor([[True, False, True], [True, True, True]])
    out = target_log_prob(p.head, p.query, p.memory, p.target, a, query_exists=query_exists)
    assert sum(rows) == int((p.mask & query_exists.unsqueeze(-1)).sum())
    assert (out[0, 1] == 0).all()
    assert max(rows) <= 2**22 // 5


def test_no_more_than_max_logits_are_alive(monkeypatch):
    sizes = []
    original = fused_softmax.logits_of
    monkeypatch.setattr(
        fused_softmax, "logits_of", lambda h, w, *a: sizes.append(len(h) * len(w)) or original(h, w, *a)
    )
    p = problem((3, 4), 6, max_logits=35)
    for value in (
        p.latent().log_marginal(p.latent().prior.enumerate()),
        p.latent().log_likelihood(p.latent().prior.enumerate()),
    ):
        value.sum().backward()
    assert max(sizes) <= 35


def test_each_alignment_has_its_own_dropout_mask():
    attention = LatentAttention(4, 4, 5, hidden=64, dropout=0.5, inference=False)
    latent = attention(torch.randn(1, 4), torch.ones(1, 6, 4)).observe(torch.tensor([2]))
    each = latent.log_likelihood(latent.prior.enumerate())
    assert each.unique().numel() == 6  # equal members, different masks


def test_dropout_gradient_uses_the_mask_of_the_forward_pass():
    p = problem()
    emit = Opaque(p.head)
    p.head.dropout.p = 0.5
    a = Categorical.from_scores(p.prior_scores, exists=p.mask).enumerate()
    torch.manual_seed(4)
    value = target_log_prob(emit, p.query, p.memory, p.target, a, max_logits=30).sum()
    analytic = gradients(value, [p.query])[0]
    step = 1e-6
    moved = p.query.detach().clone()
    moved[0, 0, 0] += step
    torch.manual_seed(4)
    again = target_log_prob(emit, moved, p.memory, p.target, a, max_logits=30).sum()
    assert ((again - value) / step).item() == pytest.approx(analytic[0, 0, 0].item(), rel=1e-4, abs=1e-6)


def test_linear_head_is_the_softmax_of_the_selected_member():
    head = LinearHead(4, 5).double()
    memory, query = torch.randn(2, 3, 4, dtype=torch.float64), torch.randn(2, 7, dtype=torch.float64)
    index = torch.tensor([[1], [2]])
    zero = torch.zeros(2, 1, dtype=torch.float64)
    ours = target_log_prob(head, query, memory, torch.tensor([0, 4]), OneHot(index, zero, zero))
    for b, y in enumerate([0, 4]):
        expected = head.output(memory[b, index[b, 0]]).log_softmax(-1)[y]
        torch.testing.assert_close(ours[b, 0], expected)


def test_borders_of_pieces_keep_queries_whole():
    exists = torch.arange(4) < torch.tensor([[3], [2], [1], [4]])
    weights = torch.zeros(4, 4).masked_fill(~exists, -math.inf)
    everything = OneHot(torch.arange(4).expand(4, 4), weights, weights)
    pairs = Pairs.of(torch.zeros(4, 2), everything)
    assert pairs.owner.tolist() == [0, 0, 0, 1, 1, 2, 3, 3, 3, 3]
    assert pairs.borders(5) == Borders([0, 5, 10], [0, 2, 4])
    assert pairs.borders(4) == Borders([0, 3, 6, 10], [0, 1, 3, 4])
    assert pairs.borders(100) == Borders([0, 10], [0, 4])
    nothing = Pairs.of(torch.zeros(4, 2), everything, query_exists=torch.zeros(4).bool())
    assert nothing.borders(5) == Borders([0], [0])


@pytest.mark.parametrize("how", ["exact", "kmax:2", "soft"])
@pytest.mark.parametrize("max_logits", [1, 13, 2**20])
def test_decoding_without_gradient_gives_the_same_distribution(how, max_logits):
    p = problem()
    a = parse_predict(how).alignments(Categorical.from_scores(p.prior_scores, exists=p.mask))
    expected = predictive_log_prob(p.head, p.query, p.memory, a, max_logits=max_logits)
    with torch.no_grad():
        ours = predictive_log_prob(p.head, p.query, p.memory, a, max_logits=max_logits)
    torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)


def test_decoding_falls_back_to_log_space_where_probabilities_underflow():
    p = problem()
    with torch.no_grad():
        p.head.output.bias[1] = -2000.0
        a = Categorical.from_scores(p.prior_scores, exists=p.mask).enumerate()
        ours = predictive_log_prob(p.head, p.query, p.memory, a)
    expected = predictive_log_prob(p.head, p.query, p.memory, a)
    torch.testing.assert_close(ours, expected.detach(), rtol=1e-12, atol=1e-12)
    assert ours[0, 0, 1] < -1900
