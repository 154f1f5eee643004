"""Diagnosis of a trained model: gaps of its bounds, bias and variance of gradients, and Proposition 1."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from latentalign.core.diagnostics import (
    dense_probability,
    elbo_gap,
    empirical_curvature,
    iwae_bound,
    jensen_gap,
    soft_gap,
)
from latentalign.core.kernels.emission import EmissionLatent
from latentalign.core.latent import Latent
from latentalign.core.numerics import in_float64
from latentalign.core.objectives import OBJECTIVES, Objective, marginal
from latentalign.progress import track

IWAE = (1, 5, 25)
TIMED_STEPS = 3
"""Steps whose median time is reported."""
ROUNDING = 1e-6
"""Tolerance: gaps and bounds are differences of probabilities in single precision."""


class Estimator(NamedTuple):
    """An estimator to measure: label, objective and options, and the enumerated objective that is its reference."""

    label: str
    objective: str
    options: Mapping[str, Any]
    reference: str


def estimators() -> list[Estimator]:
    """Every variant of every objective that has an exact counterpart."""
    return [
        Estimator(label, entry.name, options, entry.truth)
        for entry in OBJECTIVES.values()
        if entry.truth is not None
        for label, options in (entry.variants or {entry.name: {}}).items()
    ]


@torch.no_grad()
def bounds(latents: Iterable[Latent]) -> dict[str, float]:
    """Mean gaps and bounds over queries, in nats."""
    sums: dict[str, float] = {}
    count = 0

    def add(name: str, values: Tensor) -> None:
        sums[name] = sums.get(name, 0.0) + float(in_float64(values).sum())

    for latent in latents:
        count += int(latent.prior.mask.any(-1).sum())
        add("log_likelihood", marginal(latent).value)
        add("log_likelihood_soft", latent.soft())
        add("jensen_gap", jensen_gap(latent))
        if latent.inferred is not None:
            add("elbo_gap", elbo_gap(latent))
            for n in IWAE:
                add(f"iwae_{n}", iwae_bound(latent, n))
    return {"queries": count, **{name: value / max(1, count) for name, value in sums.items()}}


def gradients(
    module: nn.Module, latent_of: Callable[[], Latent], *, inferred: bool, draws: int
) -> list[dict[str, Any]]:
    """Bias, variance and signal-to-noise ratio of every estimator on one batch, against the exact gradient.

    All are relative to the norm of the exact gradient. The reference of rws, vimco and the refined q is the gradient of
    the marginal with respect to the generative model's parameters, with q fixed: q learns by another rule, which would
    act through the embeddings that both share. `noise` is the bias that chance alone would show. Times are of a whole
    step.
    """
    everything = [p for _, p in module.named_parameters()]
    generative = [p for n, p in module.named_parameters() if not n.startswith("inference.")]
    references: dict[str, Tensor] = {}
    measured, candidates = [], estimators()
    for name, kind, options, target in track(
        candidates, "gradients", total=len(candidates), unit="estimators"
    ):
        objective = OBJECTIVES[kind](**options)
        if objective.needs_inferred and not inferred:
            continue
        over_all = target != "marginal"
        parameters = everything if over_all else generative
        if target not in references:
            references[target] = gradient(OBJECTIVES[target](), latent_of, parameters)
        source = latent_of if over_all else lambda: with_fixed_q(latent_of())
        exact = kind == target
        draw = partial(gradient, objective, source, parameters)
        statistics = gradient_statistics(draw, references[target], draws=1 if exact else draws)
        times = [seconds_per_step(objective, latent_of, everything) for _ in range(TIMED_STEPS)]
        about = {"estimator": name, "truth": target, "parameters": "all" if over_all else "model"}
        measured.append(
            {**about, **statistics, "milliseconds": 1000 * median(times), "draws": 1 if exact else draws}
        )
    return measured


def gradient_statistics(
    draw: Callable[[], Tensor], reference: Tensor, *, draws: int
) -> dict[str, float | None]:
    """Bias, noise of the bias, variance and signal-to-noise ratio of drawn gradients; a single draw has no variance."""
    total, squares = torch.zeros_like(reference), 0.0
    for _ in range(draws):
        one = draw()
        total += one
        squares += float(one.square().sum())
    mean, scale = total / draws, float(reference.square().sum())
    variance = (
        max(0.0, (squares - draws * float(mean.square().sum())) / max(1, draws - 1)) if draws > 1 else 0.0
    )
    squared_bias = float((mean - reference).square().sum()) - variance / draws
    return {
        "bias": math.sqrt(max(0.0, squared_bias) / scale),
        "noise": math.sqrt(variance / draws / scale),
        "variance": variance / scale,
        "signal_to_noise": math.sqrt(scale / variance) if variance else None,
    }


def with_fixed_q(latent: Latent) -> Latent:
    """The same latent choice with q fixed: no gradient flows through it."""
    fixed = copy.copy(latent)
    fixed.inferred = None if latent.inferred is None else latent.inferred.detach()
    return fixed


def gradient(
    objective: Objective, latent_of: Callable[[], Latent], parameters: Sequence[nn.Parameter]
) -> Tensor:
    """The gradient of the summed surrogate."""
    parts = torch.autograd.grad(objective(latent_of()).surrogate.sum(), parameters, allow_unused=True)
    flat = [
        in_float64(torch.zeros_like(p) if g is None else g).flatten()
        for p, g in zip(parameters, parts, strict=True)
    ]
    return torch.cat(flat)


def seconds_per_step(
    objective: Objective, latent_of: Callable[[], Latent], parameters: Sequence[nn.Parameter]
) -> float:
    """Time of one forward and backward pass."""
    start = time.perf_counter()
    surrogate = objective(latent_of()).surrogate.sum()
    torch.autograd.grad(surrogate, parameters, allow_unused=True)
    if surrogate.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start


def proposition_1(latent: EmissionLatent, *, points: int = 3, iterations: int = 10) -> dict[str, Any]:
    """|p - p_soft| of every query beside Proposition 1's bound with an empirical, unproven curvature.

    The Proposition is about smooth f. No Hessian shows the kinks of a ReLU, as in the heads of question answering, so
    the gap of such a head may be above the bound.
    """
    curvature = empirical_curvature(
        dense_probability(latent), latent.prior, points=points, iterations=iterations
    )
    with torch.no_grad():
        gap = soft_gap(latent, curvature, proven=False)
    exists = latent.prior.mask.any(-1)
    gaps, tight, wide = (x[exists].cpu().double() for x in (gap.gap, gap.tighter, gap.bound))
    return {
        "queries": int(exists.sum()),
        "mean_gap": float(gaps.mean()),
        "largest_gap": float(gaps.max()),
        "mean_bound": float(wide.mean()),
        "mean_tighter_bound": float(tight.mean()),
        "within_bound": float((gaps <= wide + ROUNDING).double().mean()),
        "within_tighter_bound": float((gaps <= tight + ROUNDING).double().mean()),
        "gaps": gaps.tolist(),
        "tighter_bounds": tight.tolist(),
    }
