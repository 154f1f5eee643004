"""`LatentAttention` with several looks: formulas, padding, q, and combinations that are refused."""

import pytest
import torch

from latentalign import OBJECTIVES, ChainPrior, LatentAttention, LinearHead, exact_posterior

B, S, T, D, V, HIDDEN = 2, 3, 4, 5, 6, 7


def attention(looks, **options):
    torch.manual_seed(0)
    return LatentAttention(3, D, V, hidden=HIDDEN, looks=looks, **options).double()


def data():
    g = torch.Generator().manual_seed(1)
    query, memory = (torch.randn(*shape, generator=g).double() for shape in ((B, S, 3), (B, T, D)))
    padding = torch.zeros(B, T, dtype=torch.bool)
    padding[0, 2:] = True
    return query, memory, padding, torch.randint(V, (B, S), generator=g)


def mlp_scores(score, query, memory):
    hidden = torch.tanh(memory @ score.from_memory.weight.t() + score.from_query.weight @ query)
    return hidden @ score.to_score.weight[0]


@pytest.mark.parametrize("looks", [3, "dependent"])
def test_likelihood_equals_the_formulas(looks):
    model = attention(looks)
    query, memory, padding, target = data()
    found = OBJECTIVES["marginal"]()(model(query, memory, key_padding_mask=padding).observe(target)).value
    views = model.looks.views.weight.unflatten(0, (model.looks.looks, HIDDEN))
    shifts = model.looks.views.bias.view(-1, HIDDEN)
    for b in range(B):
        x = memory[b, ~padding[b]]
        seen = [x @ view.t() + shift for view, shift in zip(views, shifts, strict=True)]
        for s in range(S):
            q, total = query[b, s], 0

            def f(context, q=q, y=target[b, s]):
                return model.head(q.expand(len(context), -1), context).softmax(-1)[:, y]

            first = mlp_scores(model.prior.score, q, x)
            if looks == 3:
                scores = [first, *[mlp_scores(score, q, x) for score in model.looks.scores]]
                weights = (model.looks.weights.weight @ q + model.looks.weights.bias).softmax(0)
                for w, score, view in zip(weights, scores, seen, strict=True):
                    total = total + w * (score.softmax(0) * f(view)).sum()
            else:
                asked = model.looks.from_query.weight @ q + model.looks.from_query.bias
                for i, share in enumerate(first.softmax(0)):
                    hidden = torch.tanh(asked + model.looks.from_memory.weight @ x[i])
                    left = model.looks.score.from_query.weight @ hidden
                    second = (x @ model.looks.score.from_memory.weight.t()) @ left / HIDDEN**0.5
                    total = total + share * (second.softmax(0) * f(seen[0][i] + seen[1])).sum()
            torch.testing.assert_close(found[b, s], total.log(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("options", [{"looks": 2}, {"looks": 2, "views": "shared"}, {"looks": "dependent"}])
def test_padding_filled_with_nan_changes_nothing(options):
    query, memory, padding, target = data()
    query_padding = torch.zeros(B, S, dtype=torch.bool)
    query_padding[1, 2] = True
    results = []
    for filling in (0.0, torch.nan):
        model = attention(**options)
        masks = {"key_padding_mask": padding, "query_padding_mask": query_padding}
        dirty = memory.masked_fill(padding.unsqueeze(-1), filling)
        asked = query.masked_fill(query_padding.unsqueeze(-1), filling)
        estimate = OBJECTIVES["marginal"]()(model(asked, dirty, **masks).observe(target))
        estimate.loss().backward()
        results.append([estimate.value, *[p.grad for p in model.parameters()]])
    for x, y in zip(*results, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=0)
        assert y.isfinite().all()


@pytest.mark.parametrize("name", ["variational-enum", "variational-sample", "rws", "gumbel"])
def test_q_tells_looks_apart(name):
    model = attention(2, inference=True)
    query, memory, padding, target = data()
    latent = model(query, memory, key_padding_mask=padding).observe(target)
    assert latent.inferred.by_look.shape == (B, S, 2, T)
    torch.testing.assert_close(latent.inferred.shown.sum(-1), torch.ones(B, S).double())
    OBJECTIVES[name]()(latent).loss().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())
    bound = OBJECTIVES["variational-enum"]()(latent).value
    assert (bound <= OBJECTIVES["marginal"]()(latent).value + 1e-12).all()
    tight = model(query, memory, key_padding_mask=padding).observe(target, exact_posterior(latent))
    torch.testing.assert_close(
        OBJECTIVES["variational-enum"]()(tight).value, OBJECTIVES["marginal"]()(latent).value
    )


def test_a_question_without_a_second_dimension_has_looks_too():
    model = attention("dependent")
    query, memory, padding, target = data()
    alone = OBJECTIVES["marginal"]()(
        model(query[:, 0], memory, key_padding_mask=padding).observe(target[:, 0])
    )
    every = OBJECTIVES["marginal"]()(model(query, memory, key_padding_mask=padding).observe(target))
    torch.testing.assert_close(alone.value, every.value[:, 0])


def test_a_head_of_your_own_sees_views_of_the_members_size():
    model = attention(2, head=LinearHead(D, V))
    query, memory, _, target = data()
    choice = model(query, memory)
    assert choice.memory.shape == (B, 1, 2 * T, D)
    assert choice.observe(target).soft().isfinite().all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"looks": 0}, 'looks must be a number of at least 1 or "dependent", got 0'),
        ({"looks": True}, "looks must be a number"),
        ({"looks": "two"}, "got 'two'"),
        ({"looks": 2, "views": "mine"}, "views must be one of own, shared"),
        ({"looks": "dependent", "views": "shared"}, "dependent looks need views of their own"),
        ({"looks": 1, "views": "shared"}, "a single look has no view"),
        ({"looks": 2, "prior": "jump"}, "several looks have no single position"),
        ({"looks": 2, "prior": ChainPrior("dense", 3, D)}, "several looks have no single position"),
        ({"looks": 2, "distribution": "dirichlet"}, "several looks need a categorical distribution"),
        ({"looks": "dependent", "inference": True}, "no posterior network for pairs of members"),
    ],
)
def test_combinations_that_cannot_work_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        attention(**options)
