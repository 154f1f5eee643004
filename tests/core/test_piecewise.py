"""Averages piece by piece: the same values, gradients and noise as all at once, with the memory of one piece."""

import pytest
import torch
from torch import nn

from latentalign import Categorical, EmissionLatent, MLPHead
from latentalign.core import emission
from latentalign.core.factored import FactoredHead

B, S, T, D, V = 3, 4, 5, 6, 11


class NormedHead(MLPHead):
    """A head whose hidden layer has parameters of its own."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.norm = nn.LayerNorm(self.from_query.out_features)

    def hidden(self, query_part, memory_part):
        return self.norm(super().hidden(query_part, memory_part))


class StyledHead(MLPHead):
    """A head whose hidden layer depends on something that is no parameter of it."""

    style: torch.Tensor

    def hidden(self, query_part, memory_part):
        return super().hidden(query_part, memory_part) * self.style


def measured(kind, average, weight, *, limit, monkeypatch, dropout=0.3):
    """Value, gradients, and how many pieces there were."""
    torch.manual_seed(0)
    head = kind(D, D, V, hidden=8, dropout=dropout).double()
    query, memory, scores, style = (torch.randn(*shape).double().requires_grad_() for shape in (
        (B, S, D), (B, 1, T, D), (B, S, T), (8,)))  # fmt: skip
    head.style = style
    exists = torch.arange(T) < torch.tensor([5, 3, 4])[:, None, None]
    target, mask = torch.randint(V, (B, S)), torch.arange(S) < torch.tensor([[4], [2], [0]])
    pieces = []
    original = emission.fused_average
    monkeypatch.setattr(emission, "MAX_HIDDEN", limit)
    monkeypatch.setattr(
        emission, "fused_average", lambda *a, **k: pieces.append(len(a[0])) or original(*a, **k)
    )
    prior = Categorical.from_scores(scores, exists.expand(B, S, T))
    latent = EmissionLatent(
        prior, head, query, memory=memory, target=target, query_mask=mask, max_logits=T * V
    )
    torch.manual_seed(1)
    value = getattr(latent, average)(prior.enumerate())
    after = torch.rand(1)
    leaves = [query, memory, scores, *head.parameters(), *([style] if kind is StyledHead else [])]
    found = torch.autograd.grad((value * weight).sum(), leaves)
    return [value, after, *found], len(pieces)


@pytest.mark.parametrize("average", ["log_marginal", "mean_log_likelihood"])
@pytest.mark.parametrize("kind", [MLPHead, NormedHead])
@pytest.mark.parametrize("uniform", [True, False])
def test_pieces_give_what_the_whole_gives_with_the_same_noise(average, kind, uniform, monkeypatch):
    weight = torch.full((B, S), 0.7) if uniform else torch.linspace(-1, 2, B * S).view(B, S)
    whole, one = measured(kind, average, weight.double(), limit=2**21, monkeypatch=monkeypatch)
    pieces, many = measured(kind, average, weight.double(), limit=48, monkeypatch=monkeypatch)
    assert one == 1
    assert many > 3
    for ours, expected in zip(pieces, whole, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-12)


def test_what_is_no_parameter_keeps_its_gradient(monkeypatch):
    whole, _ = measured(StyledHead, "log_marginal", torch.ones(B, S), limit=2**21, monkeypatch=monkeypatch)
    pieces, number = measured(StyledHead, "log_marginal", torch.ones(B, S), limit=48, monkeypatch=monkeypatch)
    assert number == 1  # all at once, since pieces would not know of it
    assert whole[-1].abs().sum() > 0
    for ours, expected in zip(pieces, whole, strict=True):
        torch.testing.assert_close(ours, expected)


def test_replaced_parameters_get_their_gradients(monkeypatch):
    monkeypatch.setattr(emission, "MAX_HIDDEN", 48)
    torch.manual_seed(0)
    head = MLPHead(D, D, V, hidden=8).double()
    query, memory = torch.randn(B, S, D).double(), torch.randn(B, 1, T, D).double()
    prior = Categorical.from_scores(torch.randn(B, S, T).double())

    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = head

        def forward(self):
            latent = EmissionLatent(
                prior, self.head, query, memory=memory, target=torch.zeros(B, S).long(), max_logits=T * V
            )
            return latent.log_marginal(prior.enumerate()).sum()

    whole = Whole()
    factors = {
        name: torch.ones((), dtype=torch.float64, requires_grad=True) for name, _ in whole.named_parameters()
    }
    scaled = {name: p.detach() * factors[name] for name, p in whole.named_parameters()}
    torch.func.functional_call(whole, scaled, ()).backward()
    plain = torch.autograd.grad(whole(), list(whole.parameters()))
    for (name, p), gradient in zip(whole.named_parameters(), plain, strict=True):
        torch.testing.assert_close(factors[name].grad, (p.detach() * gradient).sum())


def test_without_gradients_pieces_give_the_same_values(monkeypatch):
    assert issubclass(MLPHead, FactoredHead)
    values = []
    for limit in (2**21, 48):
        with monkeypatch.context() as patch, torch.no_grad():
            patch.setattr(emission, "MAX_HIDDEN", limit)
            torch.manual_seed(0)
            head = MLPHead(D, D, V, hidden=8, dropout=0.5)
            prior = Categorical.from_scores(torch.randn(B, S, T))
            latent = EmissionLatent(
                prior,
                head,
                torch.randn(B, S, D),
                memory=torch.randn(B, 1, T, D),
                target=torch.zeros(B, S).long(),
                max_logits=T * V,
            )
            values.append(latent.log_marginal(prior.enumerate()))
    torch.testing.assert_close(*values)
