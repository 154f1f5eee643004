"""Proposition 1 and its bounds hold; the empirical curvature finds what is there."""

import pytest
import torch

from latentalign import (
    Categorical,
    EmissionLatent,
    LinearHead,
    dense_probability,
    empirical_curvature,
    soft_gap,
    softmax_curvature,
)
from latentalign.core.diagnostics import SOFTMAX_CURVATURE, hessian_norm
from support.problems import problem


def linear_problem(seed, members=4, outputs=5, scale=1.0):
    g = torch.Generator().manual_seed(seed)
    head = LinearHead(3, outputs).double()
    with torch.no_grad():
        head.output.weight.copy_(scale * torch.randn(outputs, 3, generator=g, dtype=torch.float64))
    memory = torch.randn(6, members, 3, generator=g, dtype=torch.float64)
    mask = torch.ones(6, members).bool()
    mask[0, 2:] = False
    prior = Categorical.from_scores(torch.randn(6, members, generator=g, dtype=torch.float64), exists=mask)
    target = torch.randint(outputs, (6,), generator=g)
    latent = EmissionLatent(prior, head, torch.zeros(6, 1, dtype=torch.float64), memory=memory, target=target)
    return latent, head


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("seed", range(10))
def test_proposition_1_holds_with_the_proven_curvature(seed, scale):
    latent, head = linear_problem(seed, scale=scale)
    curvature = softmax_curvature(head.output.weight, latent.memory, exists=latent.prior.mask)
    result = soft_gap(latent, curvature, proven=True)
    assert (result.gap <= result.tighter + 1e-12).all()
    assert (result.tighter <= result.bound + 1e-12).all()


@pytest.mark.slow
def test_the_proven_curvature_is_above_what_is_found_anywhere():
    for seed in range(5):
        latent, head = linear_problem(seed, scale=2.0)
        logits = head.output(latent.memory)

        def g(z, logits=logits, latent=latent, head=head):
            mixed = (z.unsqueeze(-1) * logits).sum(-2) + (1 - z.sum(-1, keepdim=True)) * head.output.bias
            return mixed.softmax(-1).gather(-1, latent.target.unsqueeze(-1)).squeeze(-1)

        found = empirical_curvature(g, latent.prior)
        proven = softmax_curvature(head.output.weight, latent.memory, exists=latent.prior.mask)
        assert (found <= proven).all()
        assert (found > 0).all()


def test_the_softmax_constant_bounds_random_hessians():
    worst = 0.0
    for seed in range(200):
        g = torch.Generator().manual_seed(seed)
        u = (torch.randn(1, 2 + seed % 5, generator=g) * (0.5 + seed % 4)).double()
        hessian = torch.autograd.functional.hessian(lambda v: v.softmax(-1)[0, 0], u).squeeze()
        worst = max(worst, torch.linalg.matrix_norm(hessian, 2).item())
    assert 0.15 < worst <= SOFTMAX_CURVATURE


def test_power_iteration_finds_the_spectral_norm():
    g = torch.Generator().manual_seed(0)
    a = torch.randn(3, 4, 4, generator=g, dtype=torch.float64)
    a = a + a.transpose(-1, -2)
    f = lambda z: 0.5 * (z.unsqueeze(-2) @ a @ z.unsqueeze(-1)).squeeze(-1).squeeze(-1)  # noqa: E731
    at = torch.randn(3, 4, generator=g, dtype=torch.float64)
    norm = hessian_norm(f, at, torch.ones(3, 4).bool(), iterations=500)
    torch.testing.assert_close(norm, torch.linalg.matrix_norm(a, 2), rtol=1e-3, atol=1e-3)


def test_the_gap_is_zero_where_there_is_one_member():
    p = problem()
    latent = p.latent()
    result = soft_gap(latent, torch.ones(2, 3, dtype=torch.float64), proven=False)
    single = p.mask.sum(-1) == 1
    assert (result.gap[single] < 1e-12).all()
    assert (result.tighter[single] < 1e-12).all()
    assert result.gap.flatten()[-1] == 0


@pytest.mark.parametrize("batch", [(3,), (2, 3)])
def test_the_dense_probability_is_the_models_and_has_its_hessian(batch):
    p = problem(batch)
    latent = p.latent()
    g, z = dense_probability(latent), latent.prior.mean.detach()
    exists = p.mask.any(-1)
    torch.testing.assert_close(g(z)[exists], latent.soft().exp()[exists])
    assert (g(z)[~exists] == 0).all()
    norm = hessian_norm(g, z, p.mask, iterations=200)
    memory = p.memory.expand(*batch, *p.memory.shape[-2:])
    for at in exists.nonzero().tolist():
        at, keep = tuple(at), p.mask[tuple(at)]

        def alone(z, at=at, keep=keep):
            return p.head(p.query[at], z @ memory[at][keep]).softmax(-1)[p.target[at]]

        hessian = torch.autograd.functional.hessian(alone, z[at][keep])
        torch.testing.assert_close(norm[at], torch.linalg.matrix_norm(hessian, 2), rtol=1e-3, atol=1e-6)


def test_the_hessian_of_a_linear_function_is_zero():
    at, mask = torch.rand(2, 3), torch.ones(2, 3).bool()
    scale = torch.ones(2, 3, requires_grad=True)
    assert hessian_norm(lambda z: z.sum(-1), at, mask, iterations=3).tolist() == [0, 0]
    assert hessian_norm(lambda z: (scale * z).sum(-1), at, mask, iterations=3).tolist() == [0, 0]


def test_the_proven_curvature_of_a_shared_source_is_that_of_its_copies():
    weight, memory, mask = torch.randn(5, 3), torch.randn(2, 1, 4, 3), torch.rand(2, 6, 4) < 0.7
    shared, copied = (softmax_curvature(weight, m, exists=mask) for m in (memory, memory.expand(2, 6, 4, 3)))
    assert shared.shape == (2, 6)
    torch.testing.assert_close(shared, copied)


def test_the_tighter_bound_is_half_the_curvature_times_the_chance_that_two_draws_differ():
    latent = problem().latent()
    found = soft_gap(latent, torch.full((2, 3), 3.0, dtype=torch.float64), proven=False)
    for p, exists, tighter in zip(
        latent.prior.mean.flatten(0, 1),
        latent.prior.mask.any(-1).flatten(),
        found.tighter.flatten(),
        strict=True,
    ):
        differ = sum(p[i] * p[j] for i in range(4) for j in range(4) if i != j)
        assert tighter.item() == pytest.approx(1.5 * differ.item() if exists else 0.0)


def test_the_proven_curvature_is_a_multiple_of_the_squared_norm_of_the_centred_logits():
    weight, memory = torch.randn(5, 3).double() + 2, 0.1 * torch.randn(2, 4, 3).double()
    mask = torch.tensor([[True, True, True, True], [True, True, False, False]])
    found = softmax_curvature(weight, memory, exists=mask)
    for row in range(2):
        logits = memory[row][mask[row]] @ weight.t()
        norm = torch.linalg.matrix_norm(logits - logits.mean(-1, keepdim=True), 2)
        assert found[row].item() == pytest.approx(SOFTMAX_CURVATURE * norm.item() ** 2)
    shifted = softmax_curvature(weight + torch.randn(3).double(), memory, exists=mask)
    torch.testing.assert_close(shifted, found)


def test_the_empirical_curvature_is_the_largest_on_the_way_from_each_member_to_the_mean():
    """The Hessian of sum_i a_i z_i^3 / 6 is diagonal, with a_i z_i at place i."""
    slope = torch.tensor([1.0, -2.0, 4.0, 8.0], dtype=torch.float64)
    mask = torch.tensor(
        [[[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0]], [[1, 0, 0, 0], [0, 1, 0, 1], [0, 0, 0, 0]]]
    )
    prior = Categorical.from_scores(torch.zeros(2, 3, 4, dtype=torch.float64), exists=mask.bool())
    found = empirical_curvature(lambda z: (slope * z**3).sum(-1) / 6, prior, points=3, iterations=60)
    expected = [[8.0, 4.0, 2.0], [1.0, 8.0, 0.0]]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-3, atol=1e-6)
