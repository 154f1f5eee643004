"""Distributions against torch.distributions, quadrature and finite differences."""

import math

import pytest
import torch
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import Dirichlet as TorchDirichlet
from torch.distributions import kl_divergence

from latentalign import Categorical, Dirichlet, LogisticNormal

MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0]]).bool()


def scores(seed=0, scale=1.0):
    g = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(4, 4, generator=g, dtype=torch.float64)).requires_grad_()


def rows():
    """Each row with its members alone."""
    return [(i, MASK[i]) for i in range(3)]


def test_categorical_agrees_with_torch_on_the_members_that_exist():
    a, b = scores(0), scores(1)
    p, q = Categorical.from_scores(a, exists=MASK), Categorical.from_scores(b, exists=MASK)
    for i, m in rows():
        ours, theirs = TorchCategorical(logits=a[i][m]), TorchCategorical(logits=b[i][m])
        torch.testing.assert_close(p.mean[i][m], ours.probs)
        torch.testing.assert_close(p.entropy[i], ours.entropy())
        torch.testing.assert_close(p.kl(q)[i], kl_divergence(ours, theirs))
    assert p.mean[3].eq(0).all()
    assert p.entropy[3] == 0
    assert p.kl(q)[3] == 0


def test_dirichlet_agrees_with_torch_on_the_members_that_exist():
    a, b = scores(0), scores(1)
    p, q = Dirichlet.from_scores(a, exists=MASK), Dirichlet.from_scores(b, exists=MASK)
    z = torch.softmax(scores(2), -1).masked_fill(~MASK, 0.0)
    z = z / z.sum(-1, keepdim=True).clamp_min(1e-9)
    for i, m in rows()[:2]:
        ours, theirs = TorchDirichlet(a[i][m].exp()), TorchDirichlet(b[i][m].exp())
        torch.testing.assert_close(p.mean[i][m], ours.mean)
        torch.testing.assert_close(p.entropy[i], ours.entropy())
        torch.testing.assert_close(p.kl(q)[i], kl_divergence(ours, theirs))
        torch.testing.assert_close(p.log_prob(z)[i], ours.log_prob(z[i][m].detach()))
    torch.testing.assert_close(p.kl(q)[2:], torch.zeros(2, dtype=torch.float64))  # one member, or none


def test_top_k_is_renormalised_and_of_all_positions_is_exact():
    p = Categorical.from_scores(scores(), exists=MASK)
    top = p.top(2)
    torch.testing.assert_close(top.log_weight[:3].exp().sum(-1), torch.ones(3, dtype=torch.float64))
    best = p.mean.topk(2, -1).values
    torch.testing.assert_close(top.log_weight[0].exp(), best[0] / best[0].sum())
    everything, value = p.top(4), torch.randn(4, 4, dtype=torch.float64)
    torch.testing.assert_close(
        everything.expect(value.gather(-1, everything.index)), p.enumerate().expect(value)
    )


def test_samples_are_members_that_exist_and_weights_have_no_gradient():
    p = Categorical.from_scores(scores(), exists=MASK)
    drawn = p.sample(50)
    assert MASK.gather(-1, drawn.index)[:3].all()
    assert not drawn.log_weight.requires_grad
    assert drawn.log_prob.requires_grad
    assert p.enumerate().log_weight.requires_grad
    torch.testing.assert_close(
        drawn.log_weight.exp().sum(-1), torch.tensor([1.0, 1, 1, 0], dtype=torch.float64)
    )


def test_a_score_of_minus_infinity_is_a_member_of_probability_zero():
    a = scores()
    cut = a.masked_fill(torch.tensor([0, 1, 0, 0]).bool(), float("-inf"))
    p, q = Categorical.from_scores(cut), Categorical.from_scores(a)
    assert (p.mean[:, 1] == 0).all()
    for value in (
        p.entropy.sum(),
        p.kl(q).sum(),
        p.top(3).expect(torch.randn(4, 3, dtype=torch.float64)).sum(),
    ):
        (grad,) = torch.autograd.grad(value, a, retain_graph=True)
        assert grad.isfinite().all()


@pytest.mark.parametrize("build", [Dirichlet.from_scores, LogisticNormal.from_scores])
def test_relaxed_samples_lie_on_the_simplex_of_existing_members(build):
    z = build(scores(), exists=MASK).rsample(20).z
    assert (z >= 0).all()
    assert (z.masked_select(~MASK.unsqueeze(1).expand_as(z)) == 0).all()
    torch.testing.assert_close(z.sum(-1)[:3], torch.ones(3, 20, dtype=torch.float64))


def expected_by_quadrature(alpha, f, grid=20_000):
    """E[f(z_1)] for z_1 ~ Beta(alpha), by the midpoint rule in log-odds."""
    beta = torch.distributions.Beta(alpha[0], alpha[1])
    u = torch.linspace(-40, 40, grid, dtype=torch.float64)
    z = torch.sigmoid(u).clamp(1e-300, 1 - 1e-16)
    density = beta.log_prob(z) + z.log() + torch.sigmoid(-u).log()
    return (density.exp() * f(z)).sum() * (u[1] - u[0])


def pathwise_samples(scores_, f, build, n=100_000):
    """Per-draw gradients of f by the scores."""
    torch.manual_seed(7)
    wide = scores_.detach().expand(n, -1).clone().requires_grad_()
    value = f(build(wide).rsample(1).z.squeeze(1))
    (grad,) = torch.autograd.grad(value.sum(), wide)
    return value.detach(), grad


def z_score(samples, expected):
    return ((samples.mean(0) - expected) / (samples.std(0) / math.sqrt(len(samples)))).abs().max().item()


@pytest.mark.parametrize("alpha", [(0.3, 0.8), (2.0, 5.0), (0.05, 1.5)])
def test_dirichlet_pathwise_gradient_agrees_with_quadrature(alpha):
    s = torch.tensor(alpha, dtype=torch.float64).log().requires_grad_()
    f = lambda z: torch.sin(3 * z) + z**2  # noqa: E731
    exact = expected_by_quadrature(s.exp(), f)
    (gradient,) = torch.autograd.grad(exact, s)
    value, grad = pathwise_samples(s, lambda z: f(z[:, 0]), Dirichlet.from_scores)
    assert z_score(value.unsqueeze(1), exact.detach().unsqueeze(0)) < 5
    assert z_score(grad, gradient) < 5
    # the same test catches a wrong gradient
    assert z_score(grad * 1.1, gradient) > 5
    assert z_score(grad.flip(1), gradient) > 5


@pytest.mark.slow
@pytest.mark.parametrize("build", [Dirichlet.from_scores, LogisticNormal.from_scores])
def test_pathwise_gradient_of_three_members_agrees_with_finite_differences(build):
    s = torch.tensor([0.2, -0.7, 0.5], dtype=torch.float64)
    f = lambda z: torch.sin(3 * z[:, 0]) * z[:, 2]  # noqa: E731
    _, grad = pathwise_samples(s, f, build, n=400_000)
    mean, error = grad.mean(0), grad.std(0) / math.sqrt(len(grad))
    assert build is not Dirichlet.from_scores or error.max() < 0.01
    step = 0.2
    for i in range(3):
        shift = torch.zeros(3, dtype=torch.float64)
        shift[i] = step
        ends = [f(build((s + sign * shift).expand(400_000, -1)).rsample(1).z.squeeze(1)) for sign in (1, -1)]
        difference = (ends[0].mean() - ends[1].mean()) / (2 * step)
        noise = math.sqrt(sum(float(e.var()) / len(e) for e in ends)) / (2 * step)
        # central differences err by step^2 times a third derivative of order one
        assert abs(mean[i] - difference) < 5 * math.hypot(noise, error[i]) + step**2 * 0.2
        assert abs(1.5 * mean[i] - difference) > 5 * math.hypot(noise, error[i]) or mean[i].abs() < 0.03


def test_logistic_normal_divergence_is_the_gaussians():
    a, b, c, d = (scores(i) for i in range(4))
    p = LogisticNormal.from_scores(a, exists=MASK, scale_scores=c)
    q = LogisticNormal.from_scores(b, exists=MASK, scale_scores=d)
    normal = torch.distributions.Normal
    for i, m in rows():
        each = kl_divergence(normal(p.loc[i], p.scale[i]), normal(q.loc[i], q.scale[i]))
        torch.testing.assert_close(p.kl(q)[i], each[m].sum())
    assert p.kl(q)[3] == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("alpha", [1e-3, 1e-2, 1.0, 1e3])
def test_extreme_concentrations_stay_finite(alpha, dtype):
    s = torch.full((50, 6), math.log(alpha), dtype=dtype).requires_grad_()
    mask = torch.ones(50, 6).bool()
    mask[:, 4:] = False
    p = Dirichlet.from_scores(s, exists=mask)
    z = p.rsample(8).z
    other = Dirichlet.from_scores(torch.zeros_like(s), exists=mask)
    total = (z**2).sum() + p.kl(other).sum() + other.kl(p).sum() + p.entropy.sum()
    (grad,) = torch.autograd.grad(total, s)
    assert z.isfinite().all()
    assert total.isfinite()
    assert grad.isfinite().all()
    torch.testing.assert_close(z.sum(-1), torch.ones(50, 8, dtype=dtype), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_scores_and_one_hot_priors_stay_finite(dtype):
    a = torch.tensor([[0.0, 1e4, -1e4], [1e30, 0, -1e30], [5.0, 5, 5]], dtype=dtype, requires_grad=True)
    b = torch.zeros_like(a, requires_grad=True)
    p, q = Categorical.from_scores(a), Categorical.from_scores(b)
    z = p.relaxed_sample(3, 0.1).z
    total = p.entropy.sum() + p.kl(q).sum() + z.sum() + p.top(2).expect(torch.ones(3, 2, dtype=dtype)).sum()
    for grad in torch.autograd.grad(total, (a, b)):
        assert grad.isfinite().all()
    assert total.isfinite()


def test_logistic_normal_density_of_two_members_is_the_gaussian_of_their_log_odds():
    p = LogisticNormal.from_scores(
        torch.tensor([0.3, -0.8, 5.0], dtype=torch.float64),
        exists=torch.tensor([True, True, False]),
        scale_scores=torch.tensor([0.2, 1.1, 0.0], dtype=torch.float64),
    )
    spread = (p.scale[0] ** 2 + p.scale[1] ** 2).sqrt()
    for first in (0.1, 0.5, 0.97):
        z = torch.tensor([first, 1 - first, 0.0], dtype=torch.float64)
        odds = torch.distributions.Normal(p.loc[0] - p.loc[1], spread)
        expected = odds.log_prob((z[0] / z[1]).log()) - z[0].log() - z[1].log()
        torch.testing.assert_close(p.log_prob(z), expected)


def test_logistic_normal_density_of_three_members_integrates_to_one_and_to_the_mean():
    p = LogisticNormal.from_scores(
        torch.tensor([0.3, -0.8, 0.1], dtype=torch.float64),
        scale_scores=torch.tensor([0.2, 1.1, -0.5], dtype=torch.float64),
    )
    u = torch.linspace(-18, 18, 401, dtype=torch.float64)
    scores = torch.stack(
        [*torch.meshgrid(u, u, indexing="ij"), torch.zeros(401, 401, dtype=torch.float64)], -1
    )
    z = scores.softmax(-1)
    many = LogisticNormal(p.loc.expand(z.shape), p.scale.expand(z.shape), mask=torch.ones(z.shape).bool())
    # dz_1 dz_2 = z_1 z_2 z_3 du_1 du_2
    mass = (many.log_prob(z) + z.log().sum(-1)).exp() * (u[1] - u[0]) ** 2
    assert mass.sum().item() == pytest.approx(1.0, abs=1e-6)
    drawn = p.rsample(200_000).z
    error = drawn.std(0) / math.sqrt(len(drawn))
    assert ((drawn.mean(0) - (mass.unsqueeze(-1) * z).sum((0, 1))).abs() < 5 * error).all()


def test_logistic_normal_density_at_the_edges():
    p = LogisticNormal.from_scores(scores(), exists=MASK)
    z = torch.full((4, 4), 0.25, dtype=torch.float64)
    z[0] = torch.tensor([0.5, 0.5, 0.0, 0.0])
    z[2] = torch.tensor([1.0, 0.0, 0.0, 0.0])
    value = p.log_prob(z)
    assert value[0] == -math.inf  # on the border of the simplex
    assert value[2].item() == pytest.approx(0.0)  # one member: a point
    assert value[3] == 0  # none
    (grad,) = torch.autograd.grad(value[1], p.loc)
    assert grad.isfinite().all()


@pytest.mark.parametrize(
    "build", [Categorical.from_scores, Dirichlet.from_scores, LogisticNormal.from_scores]
)
@pytest.mark.parametrize("shape", [(), (0,), (2, 3, 0)])
def test_a_source_without_positions_is_refused(build, shape, unchecked):
    with pytest.raises(ValueError, match="T >= 1"):
        build(torch.zeros(shape))


def test_a_subclass_stays_one_when_it_is_masked_or_detached():
    class Sharp(Categorical):
        """A categorical of its own kind."""

    q = Sharp.from_scores(torch.randn(2, 3))
    assert type(q.where(torch.tensor([True, False]))) is Sharp
    assert type(q.detach()) is Sharp


def test_logistic_normal_entropy_is_that_of_its_gaussians():
    wide = scores(1)
    p = LogisticNormal.from_scores(scores(), exists=MASK, scale_scores=wide)
    each = torch.distributions.Normal(scores(), torch.nn.functional.softplus(wide)).entropy()
    torch.testing.assert_close(p.entropy, each.masked_fill(~MASK, 0.0).sum(-1))


@pytest.mark.parametrize(
    "build", [Categorical.from_scores, Dirichlet.from_scores, LogisticNormal.from_scores]
)
def test_masked_and_detached_distributions_keep_everything_else(build):
    leaf = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    p, exists = build(leaf), torch.tensor([[True, False, True], [False, True, False]])
    kept = p.where(exists)
    torch.testing.assert_close(kept.mean[exists], p.mean[exists])
    assert (kept.mean[~exists] == 0).all()
    assert (kept.mask == exists.unsqueeze(-1)).all()
    assert p.mean.requires_grad
    for name in ("mean", "entropy"):
        assert not getattr(p.detach(), name).requires_grad
        assert torch.equal(getattr(p.detach(), name), getattr(p, name))


def test_an_empty_batch_has_empty_samples():
    drawn = Categorical.from_scores(torch.zeros(2, 0, 3)).sample(5)
    assert drawn.index.shape == drawn.log_weight.shape == (2, 0, 5)
