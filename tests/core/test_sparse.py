"""Entmax and sparsemax against all possible supports, finite differences and plain sums in double precision."""

from itertools import combinations

import pytest
import torch

from latentalign import (
    DISTRIBUTIONS,
    OBJECTIVES,
    Categorical,
    Latent,
    LatentAttention,
    MLPHead,
    exact_posterior,
)

KINDS = ("entmax", "sparsemax")
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 1, 1], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]]).bool()


def draw_scores(seed=0, scale=1.0):
    g = torch.Generator().manual_seed(seed)
    return scale * torch.randn(4, 5, generator=g, dtype=torch.float64)


def brute_force(scores, kind):
    """The probabilities of one row: the only support whose threshold separates its members from the others.

    The threshold is found by bisection, not by a formula.
    """
    a = DISTRIBUTIONS[kind].a
    scaled, everyone = (a - 1) * scores, range(len(scores))
    for size in range(1, len(scores) + 1):
        for support in map(list, combinations(everyone, size)):
            low, high = scaled[support].min() - 2, scaled[support].min()

            def mass(t, support=support):
                return ((scaled[support] - t).clamp_min(0) ** (1 / (a - 1))).sum()

            if mass(high) >= 1:  # some member of the support would have no mass
                continue
            for _ in range(100):
                middle = (low + high) / 2
                low, high = (middle, high) if mass(middle) > 1 else (low, middle)
            if all(scaled[i] <= low for i in everyone if i not in support):
                p = torch.zeros_like(scores)
                p[support] = (scaled[support] - low) ** (1 / (a - 1))
                return p
    raise AssertionError("no support fits")


@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_are_those_of_the_only_support_that_fits(kind, scale):
    scores = draw_scores(scale=scale)
    found = DISTRIBUTIONS[kind].from_scores(scores, exists=MASK)
    for row in range(3):
        there = MASK[row]
        torch.testing.assert_close(found.mean[row][there], brute_force(scores[row][there], kind))
    assert torch.equal(found.mask, found.mean > 0)
    assert not found.mask[~MASK].any()
    assert found.mean[3].eq(0).all()
    assert found.entropy[3] == 0


def test_the_order_is_softmax_entmax_sparsemax():
    """The larger a is, the smaller the support."""
    scores = torch.randn(200, 12, generator=torch.Generator().manual_seed(0))
    sizes = [DISTRIBUTIONS[kind].from_scores(scores).mean.gt(0).sum(-1) for kind in ("categorical", *KINDS)]
    assert (sizes[0] >= sizes[1]).all()
    assert (sizes[1] >= sizes[2]).all()
    assert sizes[0].float().mean() > sizes[1].float().mean() > sizes[2].float().mean() > 1


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_agree_with_finite_differences(kind):
    scores, value = draw_scores(1).requires_grad_(), draw_scores(2)
    build = DISTRIBUTIONS[kind].from_scores

    def quantities(scores):
        p = build(scores, exists=MASK)
        some = p.log_probs.masked_fill(~p.mask, 0.0)
        top = p.top(2)
        return p.mean, p.entropy, some, p.enumerate().log_expect_exp(value), top.expect(top.select(value))

    assert torch.autograd.gradcheck(quantities, scores)


@pytest.mark.parametrize("kind", KINDS)
def test_what_padding_holds_never_matters(kind):
    clean = draw_scores().masked_fill(~MASK, 0.0)
    results = []
    for padding in (0.0, 1e30, float("nan"), float("inf"), float("-inf")):
        scores = clean.masked_fill(~MASK, padding).requires_grad_()
        p = DISTRIBUTIONS[kind].from_scores(scores, exists=MASK)
        (gradient,) = torch.autograd.grad((p.mean * draw_scores(3)).sum() + p.entropy.sum(), scores)
        results.append((p.mean.detach(), gradient))
    for mean, gradient in results:
        torch.testing.assert_close((mean, gradient), results[0], rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4, 3e37])
@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_are_exact_in_low_precision(kind, scale, dtype):
    """16-bit scores are taken as they are, and everything after them is computed in float32."""
    scores = scale * torch.randn(50, 60, generator=torch.Generator().manual_seed(0))
    scores = scores.clamp(-torch.finfo(dtype).max, torch.finfo(dtype).max).to(dtype)
    scores = scores.requires_grad_()
    found = DISTRIBUTIONS[kind].from_scores(scores)
    wanted = DISTRIBUTIONS[kind].from_scores(scores.detach().double())
    assert found.mean.dtype == torch.float32
    torch.testing.assert_close(found.mean.double(), wanted.mean, rtol=0, atol=3e-6)
    found.enumerate().log_expect_exp(torch.zeros(50, 60)).sum().backward()
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
def test_equal_scores_share_the_mass(kind):
    found = DISTRIBUTIONS[kind].from_scores(torch.tensor([[3.0, 3.0, 3.0, -9.0]]))
    torch.testing.assert_close(found.mean, torch.tensor([[1 / 3, 1 / 3, 1 / 3, 0.0]]))


def table_latent(kind, seed=0):
    scores = draw_scores(seed).requires_grad_()
    log_f = torch.rand(4, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).log()
    prior = DISTRIBUTIONS[kind].from_scores(scores, exists=MASK)
    return scores, log_f, Latent(prior, lambda z: log_f.gather(-1, z.index))


@pytest.mark.parametrize("kind", KINDS)
def test_objectives_are_plain_sums_over_all_members(kind):
    """Values and gradients; the plain sums know nothing of a support."""
    scores, log_f, latent = table_latent(kind)
    p = DISTRIBUTIONS[kind].from_scores(scores, exists=MASK).mean[:3]
    plain = {
        "marginal": (p * log_f[:3].exp()).sum(-1).log(),
        "hard-enum": (p * log_f[:3]).sum(-1),
    }
    for name, wanted in plain.items():
        found = OBJECTIVES[name]()(latent)
        torch.testing.assert_close(found.value[:3], wanted)
        ours, theirs = (
            torch.autograd.grad(x.sum(), scores, retain_graph=True)[0] for x in (found.value, wanted)
        )
        torch.testing.assert_close(ours, theirs)
        assert found.value[3] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_q_on_the_support_is_accepted_and_the_bound_is_tight_at_the_posterior(kind):
    _, _, latent = table_latent(kind)
    best = Latent(latent.prior, latent.log_likelihood, exact_posterior(latent))
    elbo, marginal = OBJECTIVES["variational-enum"]()(best), OBJECTIVES["marginal"]()(latent)
    torch.testing.assert_close(elbo.value, marginal.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_q_outside_of_the_support_is_refused(kind):
    _, _, latent = table_latent(kind)
    assert (MASK & ~latent.prior.mask).any()
    q = Categorical.from_scores(draw_scores(5), exists=MASK)
    with pytest.raises(ValueError, match=r"outside of the support of a sparse prior.*use marginal"):
        OBJECTIVES["variational-enum"]()(Latent(latent.prior, latent.log_likelihood, q))
    with pytest.raises(ValueError, match=r"entmax|sparsemax"):
        LatentAttention(4, 5, 6, distribution=kind, inference=True)


@pytest.mark.parametrize("kind", KINDS)
def test_scores_outside_of_the_support_get_no_gradient(kind):
    """The likelihood alone never brings a member back; docs/sparse.md says what does."""
    scores, _, latent = table_latent(kind)
    (gradient,) = torch.autograd.grad(OBJECTIVES["marginal"]()(latent).value.sum(), scores)
    assert gradient[~latent.prior.mask].eq(0).all()
    assert gradient[latent.prior.mask.sum(-1) > 1].ne(0).any()


class CountingHead(MLPHead):
    rows = 0

    def hidden(self, query_part, memory_part):
        self.rows += len(query_part)
        return super().hidden(query_part, memory_part)


@pytest.mark.parametrize("name", ["marginal", "hard-enum"])
def test_only_members_of_the_support_are_visited(name):
    torch.manual_seed(0)
    head = CountingHead(4, 5, 6, hidden=8)
    attention = LatentAttention(4, 5, 6, distribution="sparsemax", score="bilinear", head=head)
    query, memory, target = 3 * torch.randn(2, 3, 4), torch.randn(2, 7, 5), torch.randint(6, (2, 3))
    choice = attention(query, memory)
    OBJECTIVES[name]()(choice.observe(target))
    assert head.rows == choice.prior.mask.sum() < choice.prior.mask.numel() / 2


@pytest.mark.parametrize("kind", KINDS)
def test_predictives_agree_with_each_other(kind):
    torch.manual_seed(0)
    attention = LatentAttention(4, 5, 6, distribution=kind).double()
    choice = attention(torch.randn(2, 3, 4).double(), torch.randn(2, 7, 5).double())
    exact = choice.predict("exact")
    torch.testing.assert_close(exact.exp().sum(-1), torch.ones(2, 3, dtype=torch.float64))
    torch.testing.assert_close(choice.predict("kmax:7"), exact)
    torch.testing.assert_close(choice.predict("certified:1e-9"), exact)
    each = torch.stack(
        [attention.head(choice.query, choice.memory[:, :, i].expand(2, 3, 5)) for i in range(7)], -2
    )
    mixture = (choice.prior.mean.unsqueeze(-1) * each.softmax(-1)).sum(-2)
    torch.testing.assert_close(exact.exp(), mixture)
