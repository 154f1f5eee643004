"""Several looks against loops over looks and members, in double precision."""

import itertools
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from latentalign import (
    OBJECTIVES,
    Categorical,
    EmissionLatent,
    LookMixture,
    LookPairs,
    MLPHead,
    exact_posterior,
)
from latentalign.core.choice import LatentChoice
from latentalign.core.errors import MissingAbilityError
from latentalign.core.heads import FactoredHead
from latentalign.core.kernels import emission, pairs, screening
from support.problems import gradients

B, S, T, D, V, LOOKS = 2, 3, 3, 4, 5, 2
KINDS = ("mixture", "pairs")


class SquaredHead(FactoredHead):
    """A head whose part of a sum is not the sum of the parts."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.output = inner, inner.output

    def memory_part(self, context):
        return self.inner.memory_part(context**2)

    def query_part(self, query):
        return self.inner.query_part(query)

    def hidden(self, query_part, memory_part):
        return self.inner.hidden(query_part, memory_part)


@dataclass
class Problem:
    """Everything the gradient is taken by: w or nothing, scores, query, members and head."""

    kind: str
    weights: torch.Tensor
    scores: torch.Tensor
    query: torch.Tensor
    memory: torch.Tensor
    target: torch.Tensor
    mask: torch.Tensor
    head: nn.Module
    max_logits: int = 2**22

    @property
    def leaves(self):
        return [self.weights, self.scores, self.query, self.memory, *self.head.parameters()]

    def prior(self):
        if self.kind == "mixture":
            return LookMixture.from_looks(self.weights, self.scores[..., :LOOKS, :], exists=self.mask)
        first, second = self.scores[..., 0, :], self.scores[..., 1:, :]
        return LookPairs.from_scores(first, exists=self.mask, second=second)

    def latent(self):
        options = {"memory": self.memory, "target": self.target, "max_logits": self.max_logits}
        return EmissionLatent(self.prior(), self.head, self.query, **options)

    def choice(self):
        return LatentChoice(self.prior(), self.head, self.query, self.memory, max_logits=self.max_logits)


def make(kind, *, head=MLPHead, members=T, max_logits=2**22):
    g = torch.Generator().manual_seed(3)

    def normal(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.float64).requires_grad_()

    made = MLPHead(3, D, V, hidden=6).double()
    with torch.no_grad():
        for p in made.parameters():
            p.copy_(torch.randn(p.shape, generator=g, dtype=torch.float64))
    mask = torch.ones(B, S, members, dtype=torch.bool)
    mask[0, :, -1] = False
    mask[1, 2] = False  # a query without members
    return Problem(
        kind,
        normal(B, S, LOOKS),
        normal(B, S, members + 1, members),
        normal(B, S, 3),
        normal(B, 1, LOOKS * members, D),
        torch.randint(V, (B, S), generator=g),
        mask,
        made if head is MLPHead else head(made),
        max_logits,
    )


def loop(p):
    """The alternatives of every query as (probability, members by look, context), with nothing shared."""
    members = p.mask.shape[-1]
    for b, s in itertools.product(range(B), range(S)):
        here = p.mask[b, s].nonzero().squeeze(-1).tolist()
        found = []
        if here and p.kind == "mixture":
            weight = p.weights[b, s].softmax(0)
            for h in range(LOOKS):
                share = p.scores[b, s, h][here].softmax(0)
                for place, i in enumerate(here):
                    found.append((weight[h] * share[place], (h, i), p.memory[b, 0, h * members + i]))
        elif here:
            first = p.scores[b, s, 0][here].softmax(0)
            for place, i in enumerate(here):
                second = p.scores[b, s, 1 + i][here].softmax(0)
                for other, j in enumerate(here):
                    context = p.memory[b, 0, i] + p.memory[b, 0, members + j]
                    found.append((first[place] * second[other], (i, j), context))
        yield (b, s), found


def brute_force(p, name):
    """An objective by a loop over queries, looks and members."""
    values = []
    for at, found in loop(p):
        if not found:
            values.append(torch.zeros((), dtype=torch.float64))
            continue
        prior = torch.stack([share for share, _, _ in found])

        def f(context, at=at):
            return p.head(p.query[at].unsqueeze(0), context.unsqueeze(0))[0].softmax(0)[p.target[at]]

        if name == "soft":
            values.append(f(sum(share * context for share, _, context in found)).log())
            continue
        each = torch.stack([f(context) for _, _, context in found])
        values.append((prior * each).sum().log() if name == "marginal" else (prior * each.log()).sum())
    return torch.stack(values).view(B, S)


def same_gradients(p, value, expected):
    weight = torch.linspace(0.5, 2, B * S, dtype=torch.float64).view(B, S)
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-12)
    for found, wanted in zip(
        gradients(value, p.leaves, weight), gradients(expected, p.leaves, weight), strict=True
    ):
        torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["soft", "marginal", "hard-enum"])
@pytest.mark.parametrize("head", [MLPHead, SquaredHead], ids=["sums", "squares"])
def test_value_and_gradient_equal_a_loop_over_looks_and_members(kind, name, head):
    p = make(kind, head=head)
    same_gradients(p, OBJECTIVES[name]()(p.latent()).surrogate, brute_force(p, name))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["marginal", "hard-enum"])
@pytest.mark.parametrize("max_logits", [1, 64])
def test_pieces_of_pairs_give_what_the_whole_gives(kind, name, max_logits, monkeypatch):
    p = make(kind, max_logits=max_logits)  # 1: no query's logits fit, so nothing is fused
    for module in (emission, pairs):
        monkeypatch.setattr(module, "MAX_HIDDEN", 24)
    same_gradients(p, OBJECTIVES[name]()(p.latent()).surrogate, brute_force(p, name))


def test_hidden_layers_of_pairs_are_never_in_memory_together(monkeypatch):
    p, rows = make("pairs", max_logits=1), []
    monkeypatch.setattr(pairs, "MAX_HIDDEN", 24)
    hidden = MLPHead.hidden

    class Watched(MLPHead):
        pass

    def watch(self, query_part, memory_part):
        rows.append(len(query_part))
        return hidden(self, query_part, memory_part)

    monkeypatch.setattr(MLPHead, "hidden", watch)
    OBJECTIVES["marginal"]()(p.latent()).surrogate.sum().backward()
    with torch.no_grad():
        p.choice().predict("exact")
    assert max(rows) <= 24 // 6


@pytest.mark.parametrize("kind", KINDS)
def test_posterior_is_bayes_rule_and_its_marginals_are_those_of_each_look(kind):
    p = make(kind)
    posterior = exact_posterior(p.latent())
    for (b, s), found in loop(p):
        shown, by_look = torch.zeros(T), torch.zeros(2, T)
        if found:
            f = [p.head(p.query[b, s][None], x[None])[0].softmax(0)[p.target[b, s]] for _, _, x in found]
            joint = torch.stack([share * each for (share, _, _), each in zip(found, f, strict=True)])
            for mass, (_, where, _) in zip((joint / joint.sum()).tolist(), found, strict=True):
                if kind == "mixture":
                    by_look[where] += mass
                    shown[where[1]] += mass
                else:
                    for look, member in enumerate(where):
                        by_look[look, member] += mass
                        shown[member] += mass / 2
        torch.testing.assert_close(posterior.shown[b, s].float(), shown)
        torch.testing.assert_close(posterior.by_look[b, s].float(), by_look)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("screened", [2**25, 0])
def test_the_certificate_holds_for_looks(kind, screened, monkeypatch):
    monkeypatch.setattr(screening, "MAX_SCREENED", screened)
    p = make(kind, members=4)
    with torch.no_grad():
        p.scores.mul_(4)
        exact = OBJECTIVES["marginal"]()(p.latent()).value
        loose = OBJECTIVES["marginal"](tolerance=0.5, shortlist=V)(p.latent())
    missing = exact - loose.value
    assert (missing >= -1e-9).all()
    assert (missing <= loose.terms["gap"] + 1e-9).all()
    assert (loose.terms["visited"] < p.prior().mask.sum(-1)).any()
    tight = make(kind)
    same_gradients(
        tight,
        OBJECTIVES["marginal"](tolerance=1e-14)(tight.latent()).surrogate,
        brute_force(tight, "marginal"),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_draw_of_the_prior_gives_the_expected_likelihood(kind):
    p = make(kind)
    prior, expected, estimate = p.prior(), brute_force(p, "hard-enum"), 0
    objective = OBJECTIVES["hard-sample"](baseline="none")
    for k in range(prior.mask.shape[-1]):
        draws = torch.full((B, S, 1), k)
        chance = prior.probs[..., k].detach()
        estimate = estimate + chance * objective(p.latent(), draws).surrogate
    found, wanted = (gradients(value, p.leaves) for value in (estimate, expected))
    for x, y in zip(found, wanted, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_are_distributions_that_contain_the_likelihood(kind, monkeypatch):
    p = make(kind)
    exact = brute_force(p, "marginal")
    exists = p.mask.any(-1)
    monkeypatch.setattr(pairs, "MAX_HIDDEN", 24)
    for enabled in (True, False):
        with torch.set_grad_enabled(enabled):
            log_probs = p.choice().predict("exact")
        torch.testing.assert_close(log_probs.exp().sum(-1)[exists], torch.ones(int(exists.sum())).double())
        own = log_probs.gather(-1, p.target.unsqueeze(-1)).squeeze(-1)
        torch.testing.assert_close(own[exists], exact[exists])
    torch.testing.assert_close(p.choice().predict("kmax:99"), log_probs)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_filled_with_nan_changes_nothing(kind):
    plain, dirty = make(kind), make(kind)
    with torch.no_grad():
        absent = ~dirty.mask.any(1)
        dirty.memory.squeeze(1).unflatten(1, (2, T))[absent.unsqueeze(1).expand(B, 2, T)] = torch.nan
        dirty.scores.masked_fill_(~dirty.mask.unsqueeze(-2), torch.nan)
        dirty.scores[:, :, 1:].masked_fill_(~dirty.mask.unsqueeze(-1), torch.nan)
        dirty.query[1, 2] = torch.nan
        dirty.weights[1, 2] = torch.nan
    for name in ("soft", "marginal", "hard-enum"):
        values = [OBJECTIVES[name]()(p.latent()).surrogate for p in (plain, dirty)]
        torch.testing.assert_close(*values, rtol=0, atol=0)
        found = [gradients(value, p.leaves) for value, p in zip(values, (plain, dirty), strict=True)]
        for x, y in zip(*found, strict=True):
            torch.testing.assert_close(x, y, rtol=0, atol=0)


def test_shared_views_collapse_to_one_member_each():
    p = make("mixture")
    with torch.no_grad():
        p.memory[:, :, T:] = p.memory[:, :, :T]
    merged = p.prior().merged
    assert type(merged) is Categorical
    torch.testing.assert_close(merged.mean, p.prior().shown)
    latent = EmissionLatent(merged, p.head, p.query, memory=p.memory[:, :, :T], target=p.target)
    torch.testing.assert_close(OBJECTIVES["marginal"]()(latent).value, brute_force(p, "marginal"))


def test_wrong_uses_of_looks_are_refused():
    p = make("pairs")
    with pytest.raises(TypeError, match="second="):
        LookPairs.from_scores(p.scores[..., 0, :])
    with pytest.raises(ValueError, match=r"second must be \(\*batch, T, T\)"):
        LookPairs.from_scores(p.scores[..., 0, :], second=p.scores)
    with pytest.raises(MissingAbilityError, match="relaxed_sample"):
        p.prior().relaxed_sample(1, 0.5)
    with pytest.raises(ValueError, match="the prior is over T = 6 members"):
        EmissionLatent(p.prior(), p.head, p.query, memory=p.memory[:, :, :T], target=p.target)
