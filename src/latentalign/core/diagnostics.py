"""How far bounds are from the truth, and how far soft attention is from the latent model (Proposition 1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentalign.core.alignments import Mixed
from latentalign.core.distributions import AlignmentDistribution
from latentalign.core.expectations import Enumerate
from latentalign.core.kernels.emission import EmissionLatent
from latentalign.core.latent import Latent
from latentalign.core.numerics import at_least_float32, flat_rows
from latentalign.core.objectives import Hard, Variational, marginal
from latentalign.core.objectives.multisample import weigh
from latentalign.core.predictives import exact_posterior

SOFTMAX_CURVATURE = 8 / 27
"""Largest spectral norm of the Hessian of softmax(u)_y in u, over all u and any number of outputs.

The Hessian is g ((e_y - s)(e_y - s)' - (diag(s) - s s')) with s = softmax(u), g = s_y: a difference of two
positive matrices, so its norm is at most the larger of theirs. The first has norm g |e_y - s|^2
<= 2 g (1-g)^2 <= 8/27; the second, by Gershgorin, g max_i 2 s_i (1 - s_i), which is at most 2 g^2 (1-g) <= 8/27
for g >= 1/2 and at most 1/4 below.
"""


def jensen_gap(latent: Latent) -> Float[Tensor, "*batch"]:
    """log E_p[f] - E_p[log f]: what hard attention's bound leaves out."""
    return marginal(latent).value - Hard(Enumerate())(latent).value


def elbo_gap(latent: Latent) -> Float[Tensor, "*batch"]:
    """log p(y|x) - ELBO(q), which is KL[q || exact posterior]."""
    return marginal(latent).value - Variational(Enumerate())(latent).value


def posterior_divergence(latent: Latent) -> Float[Tensor, "*batch"]:
    """KL[q || p(z|x,x~,y)], computed directly."""
    return latent.require_inferred("posterior_divergence").kl(exact_posterior(latent))


def iwae_bound(
    latent: Latent, n: int, draws: Int[Tensor, "*batch n"] | None = None
) -> Float[Tensor, "*batch"]:
    """One estimate of E_q[log 1/n sum_k p(z_k) f(z_k) / q(z_k)] (Burda et al. 2016)."""
    return weigh(latent, "iwae_bound", n, draws).bound()


@dataclass(frozen=True, eq=False)
class SoftGap:
    """|p - p_soft| of the observed output, with an upper bound from the curvature c of f."""

    gap: Float[Tensor, "*batch"]
    bound: Float[Tensor, "*batch"]
    """c, as in Proposition 1."""
    tighter: Float[Tensor, "*batch"]
    """c/2 (1 - sum_i p_i^2): for one-hot z, E|z - E z|^2 = 1 - sum p^2, which the proof bounds by 2."""
    proven: bool
    """False where c is an estimate from points visited, not a supremum."""


def soft_gap(latent: Latent, curvature: Float[Tensor, "*batch"], *, proven: bool) -> SoftGap:
    """Proposition 1 for the observed outputs, given a curvature."""
    prior = latent.prior
    exists = prior.mask.any(-1)
    gap: Tensor = (marginal(latent).value.exp() - latent.soft().exp()).abs().masked_fill(~exists, 0.0)
    spread = (1 - (prior.mean**2).sum(-1)).clamp(min=0.0).masked_fill(~exists, 0.0)
    return SoftGap(gap, curvature, curvature / 2 * spread, proven)


def softmax_curvature(
    weight: Float[Tensor, "V D"], memory: Float[Tensor, "*#batch T D"], *, exists: Bool[Tensor, "*batch T"]
) -> Float[Tensor, "*batch"]:
    """A proven upper bound of the curvature c of f = softmax(W X z): 8/27 times the squared norm of W X.

    Adding one number to all logits changes nothing, so W X may be centred over the outputs first.
    """
    # |A| for A = (W - mean) X' is the root of the largest eigenvalue of A'A: a T x T matrix.
    centred = weight - weight.mean(0, keepdim=True)
    clean = memory.masked_fill(~exists.unsqueeze(-1), 0.0)
    gram = clean @ (centred.t() @ centred) @ clean.transpose(-1, -2)
    largest: Tensor = torch.linalg.eigvalsh(gram)[..., -1]
    return SOFTMAX_CURVATURE * largest.clamp_min(0.0)


def dense_probability(
    latent: EmissionLatent,
) -> Callable[[Float[Tensor, "*batch T"]], Float[Tensor, "*batch"]]:
    """g(z) = p(y | x, x~, z) of the observed y as a function of z that can be differentiated twice.

    All V logits of a query are kept, unlike in `latent.log_likelihood`, whose gradient has none of its own.
    """
    exists = latent.prior.mask.any(-1)
    target = latent.target.masked_fill(~exists, 0).reshape(-1, 1)
    assert latent.query is not None
    query = flat_rows(latent.query)

    def probability(z: Tensor) -> Tensor:
        context = Mixed.point(z, exists=latent.prior.mask).contexts(latent.memory)
        logits = latent.emit(query, flat_rows(context))
        chosen: Tensor = at_least_float32(logits).softmax(-1).gather(1, target)
        return chosen.view(exists.shape).masked_fill(~exists, 0.0)

    return probability


def empirical_curvature(
    probability: Callable[[Float[Tensor, "*batch T"]], Float[Tensor, "*batch"]],
    prior: AlignmentDistribution,
    *,
    points: int = 5,
    iterations: int = 20,
) -> Float[Tensor, "*batch"]:
    """The largest |Hessian| of g(z) = p(y | x, x~, z) met on the way from each member to E[z]; empirical.

    Hessian-vector products and power iteration at `points` places z = t e_i + (1 - t) E[z] for every member
    i, which are the points the proof of Proposition 1 evaluates the Hessian at. A lower bound of the supremum.
    `dense_probability` gives g of an EmissionLatent.
    """
    mean = prior.mean.detach()
    worst = torch.zeros_like(mean[..., 0])
    for member in range(mean.shape[-1]):
        corner = torch.zeros_like(mean)
        corner[..., member] = 1.0
        for t in torch.linspace(0, 1, points).tolist():
            norm = hessian_norm(probability, t * corner + (1 - t) * mean, prior.mask, iterations=iterations)
            worst = torch.where(prior.mask[..., member], torch.maximum(worst, norm), worst)
    return worst


def hessian_norm(
    function: Callable[[Tensor], Tensor],
    at: Float[Tensor, "*batch T"],
    mask: Bool[Tensor, "*batch T"],
    *,
    iterations: int,
) -> Float[Tensor, "*batch"]:
    """The spectral norm of every query's Hessian by power iteration; 0 where the function is linear."""
    z = at.detach().requires_grad_()
    with torch.enable_grad():
        (slope,) = torch.autograd.grad(function(z).sum(), z, create_graph=True)
    if not slope.requires_grad:
        return torch.zeros_like(at[..., 0])
    vector = torch.ones_like(at) + 0.1 * torch.arange(at.shape[-1], device=at.device, dtype=at.dtype)
    vector = vector.masked_fill(~mask, 0.0)
    norm = torch.zeros_like(at[..., 0])
    for _ in range(iterations):
        vector = vector / vector.norm(dim=-1, keepdim=True).clamp_min(1e-30)
        (vector,) = torch.autograd.grad(slope, z, vector, retain_graph=True, materialize_grads=True)
        vector = vector.masked_fill(~mask, 0.0)
        norm = vector.norm(dim=-1)
    return norm
