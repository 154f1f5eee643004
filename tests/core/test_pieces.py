"""Averages piece by piece: the same values, gradients and noise as all at once."""

import pytest
import torch
from torch import nn

from latentalign import Categorical, EmissionLatent, MLPHead, ProductHead
from latentalign.core.kernels import emission

B, S, T, D, V = 3, 4, 5, 6, 11


class NormedHead(MLPHead):
    """A head whose hidden layer has parameters of its own."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.norm = nn.LayerNorm(self.from_query.out_features)

    def hidden(self, query_part, memory_part):
        return self.norm(super().hidden(query_part, memory_part))


def measured(kind, average, weight, *, limit, monkeypatch, dropout=0.3):
    """Value, gradients, and how many pieces there were."""
    torch.manual_seed(0)
    head = kind(D, D, V, hidden=8, dropout=dropout).double()
    query, memory, scores = (torch.randn(*shape).double().requires_grad_() for shape in (
        (B, S, D), (B, 1, T, D), (B, S, T)))  # fmt: skip
    exists = torch.arange(T) < torch.tensor([5, 3, 4])[:, None, None]
    target, mask = torch.randint(V, (B, S)), torch.arange(S) < torch.tensor([[4], [2], [0]])
    pieces = []
    original = emission.fused_average
    monkeypatch.setattr(emission, "MAX_HIDDEN", limit)
    monkeypatch.setattr(
        emission, "fused_average", lambda *a, **k: pieces.append(len(a[0])) or original(*a, **k)
    )
    prior = Categorical.from_scores(scores, exists=exists.expand(B, S, T))
    latent = EmissionLatent(
        prior, head, query, memory=memory, target=target, query_exists=mask, max_logits=T * V
    )
    torch.manual_seed(1)
    value = getattr(latent, average)(prior.enumerate())
    after = torch.rand(1)
    leaves = [query, memory, scores, *head.parameters()]
    found = torch.autograd.grad((value * weight).sum(), leaves)
    return [value, after, *found], len(pieces)


@pytest.mark.parametrize("average", ["log_marginal", "mean_log_likelihood"])
@pytest.mark.parametrize("uniform", [True, False])
def test_pieces_give_what_the_whole_gives_with_the_same_noise(average, uniform, monkeypatch):
    weight = torch.full((B, S), 0.7) if uniform else torch.linspace(-1, 2, B * S).view(B, S)
    whole, one = measured(MLPHead, average, weight.double(), limit=2**21, monkeypatch=monkeypatch)
    pieces, many = measured(MLPHead, average, weight.double(), limit=48, monkeypatch=monkeypatch)
    assert one == 1
    assert many > 3
    for ours, expected in zip(pieces, whole, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-12)


def test_pieces_of_a_product_give_what_the_whole_gives(monkeypatch):
    weight = torch.linspace(-1, 2, B * S).view(B, S).double()
    whole, _ = measured(ProductHead, "log_marginal", weight, limit=2**21, monkeypatch=monkeypatch)
    pieces, many = measured(ProductHead, "log_marginal", weight, limit=48, monkeypatch=monkeypatch)
    assert many > 3
    for ours, expected in zip(pieces, whole, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-12)


def test_a_head_with_a_hidden_layer_of_its_own_is_computed_whole(monkeypatch):
    weight = torch.ones(B, S)
    whole, _ = measured(NormedHead, "log_marginal", weight, limit=2**21, monkeypatch=monkeypatch)
    pieces, number = measured(NormedHead, "log_marginal", weight, limit=48, monkeypatch=monkeypatch)
    assert number == 1
    for ours, expected in zip(pieces, whole, strict=True):
        torch.testing.assert_close(ours, expected)


def small(query, scores, head):
    """A latent choice whose average takes several pieces."""
    torch.manual_seed(3)
    prior = Categorical.from_scores(scores)
    memory = torch.randn(B, 1, T, D, dtype=query.dtype)
    target = torch.randint(V, (B, S))
    return prior, EmissionLatent(prior, head, query, memory=memory, target=target, max_logits=T * V)


@pytest.mark.parametrize("weight", [torch.ones(B, S), torch.linspace(-1, 2, B * S).view(B, S)])
def test_replaced_parameters_get_their_gradients(weight, monkeypatch):
    monkeypatch.setattr(emission, "MAX_HIDDEN", 48)
    head = MLPHead(D, D, V, hidden=8).double()
    query, scores = torch.randn(B, S, D).double(), torch.randn(B, S, T).double()

    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = head

        def forward(self):
            prior, latent = small(query, scores, self.head)
            return (latent.log_marginal(prior.enumerate()) * weight).sum()

    whole = Whole()
    changed = {name: 1.3 * p.detach() for name, p in whole.named_parameters()}
    replaced = {name: p.clone().requires_grad_() for name, p in changed.items()}
    found = torch.autograd.grad(torch.func.functional_call(whole, replaced, ()), list(replaced.values()))
    with torch.no_grad():
        for name, p in whole.named_parameters():
            p.copy_(changed[name])
    expected = torch.autograd.grad(whole(), list(whole.parameters()))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_hooks_of_parameters_run_once(monkeypatch):
    monkeypatch.setattr(emission, "MAX_HIDDEN", 48)
    head = MLPHead(D, D, V, hidden=8)
    calls = []
    for p in head.parameters():
        p.register_hook(calls.append)
    prior, latent = small(torch.randn(B, S, D), torch.randn(B, S, T), head)
    latent.log_marginal(prior.enumerate()).sum().backward()
    assert len(calls) == len(list(head.parameters()))


@pytest.mark.parametrize("mode", ["no_grad", "frozen"])
def test_without_gradients_pieces_give_the_same_values(mode, monkeypatch):
    values, pieces = [], []
    original = emission.fused_average
    monkeypatch.setattr(
        emission, "fused_average", lambda *a, **k: pieces.append(len(a[0])) or original(*a, **k)
    )
    head = MLPHead(D, D, V, hidden=8, dropout=0.5).requires_grad_(mode == "no_grad")
    query, scores = torch.randn(B, S, D), torch.randn(B, S, T)
    for limit in (2**21, 48):
        pieces.clear()
        monkeypatch.setattr(emission, "MAX_HIDDEN", limit)
        with torch.set_grad_enabled(mode == "frozen"):
            prior, latent = small(query, scores, head)
            values.append(latent.log_marginal(prior.enumerate()))
        assert (len(pieces) > 3) == (limit == 48)
    torch.testing.assert_close(*values)


def test_second_derivatives_are_refused(monkeypatch):
    monkeypatch.setattr(emission, "MAX_HIDDEN", 48)
    scores = torch.randn(B, S, T, requires_grad=True)
    prior, latent = small(torch.randn(B, S, D), scores, MLPHead(D, D, V, hidden=8))
    value = latent.log_marginal(prior.enumerate()).sum()
    with pytest.raises(RuntimeError, match="second derivatives"):
        torch.autograd.grad(value, scores, create_graph=True)
