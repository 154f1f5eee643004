"""What a trained model's bounds leave out, what its estimators' gradients are worth, and Proposition 1 at work."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any

import torch
from matplotlib.figure import Figure
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
from latentalign.core.objectives import OBJECTIVES, Objective, marginal
from latentalign.reproduction.curves import COLOURS, INK, cost_of_gradients, drawn, svg
from latentalign.reproduction.tables import Cell, Table
from latentalign.web.pages import Page, Section

IWAE = (1, 5, 25)
TIMED = 3
"""Steps of which the median time is taken."""
ROUNDING = 1e-6
"""Gaps and bounds are differences of probabilities in single precision."""
ESTIMATORS: tuple[tuple[str, str, dict[str, Any], str], ...] = (
    ("marginal", "marginal", {}, "marginal"),
    ("hard-enum", "hard-enum", {}, "hard-enum"),
    ("hard-sample", "hard-sample", {}, "hard-enum"),
    ("hard-sample, no baseline", "hard-sample", {"baseline": "none"}, "hard-enum"),
    ("variational-enum", "variational-enum", {}, "variational-enum"),
    ("variational-sample", "variational-sample", {}, "variational-enum"),
    ("variational-sample, no baseline", "variational-sample", {"baseline": "none"}, "variational-enum"),
    ("variational-sample, 5 draws", "variational-sample", {"n": 5}, "variational-enum"),
    ("sum-and-sample", "sum-and-sample", {}, "variational-enum"),
    ("gumbel, temperature 0.1", "gumbel", {"temperature": 0.1}, "variational-enum"),
    ("gumbel, temperature 0.5", "gumbel", {"temperature": 0.5}, "variational-enum"),
    ("gumbel, temperature 1", "gumbel", {"temperature": 1.0}, "variational-enum"),
    ("rws", "rws", {}, "marginal"),
    ("vimco", "vimco", {}, "marginal"),
    ("svi", "svi", {}, "marginal"),
    ("semi-amortized", "semi-amortized", {}, "marginal"),
)
"""Name, objective, options, and the enumerated objective whose gradient is the truth."""


@torch.no_grad()
def bounds(latents: Iterable[Latent[Any]]) -> dict[str, float]:
    """Mean gaps and bounds over queries, in nats."""
    sums: dict[str, float] = {}
    count = 0

    def add(name: str, values: Tensor) -> None:
        sums[name] = sums.get(name, 0.0) + float(values.double().sum())

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
    module: nn.Module, latent_of: Callable[[], Latent[Any]], *, inferred: bool, draws: int
) -> list[dict[str, Any]]:
    """Bias, variance and signal-to-noise ratio of every estimator on one batch, against the exact gradient.

    All are relative to the norm of the exact gradient. The truth of rws, vimco and the refined q is the marginal's
    gradient, for the generative model's parameters alone and with q held fixed: what q learns by another rule would
    come through the embeddings that they share. `noise` is what bias could be mere chance. Times are of a whole step.
    """
    everything = [p for _, p in module.named_parameters()]
    generative = [p for n, p in module.named_parameters() if not n.startswith("inference.")]
    truths: dict[str, Tensor] = {}
    found = []
    for name, kind, options, target in ESTIMATORS:
        objective = OBJECTIVES[kind](**options)
        if objective.needs_inferred and not inferred:
            continue
        if target not in truths:
            exact = OBJECTIVES[target]()
            truths[target] = gradient(exact, latent_of, everything if target != "marginal" else generative)
        over_all = target != "marginal"
        wanted, of = (everything, latent_of) if over_all else (generative, lambda: held(latent_of()))
        truth = truths[target]
        repeats = 1 if kind == target else draws
        total, squares = torch.zeros_like(truth), 0.0
        for _ in range(repeats):
            one = gradient(objective, of, wanted)
            total += one
            squares += float(one.square().sum())
        mean, scale = total / repeats, float(truth.square().sum())
        variance = max(0.0, (squares - repeats * float(mean.square().sum())) / max(1, repeats - 1))
        variance = 0.0 if kind == target else variance
        off = float((mean - truth).square().sum()) - variance / repeats
        found.append(
            {
                "estimator": name,
                "truth": target,
                "parameters": "all" if over_all else "model",
                "bias": math.sqrt(max(0.0, off) / scale),
                "noise": math.sqrt(variance / repeats / scale),
                "variance": variance / scale,
                "signal_to_noise": math.sqrt(scale / variance) if variance else None,
                "milliseconds": 1000
                * median(seconds(objective, latent_of, everything) for _ in range(TIMED)),
                "draws": repeats,
            }
        )
    return found


def held(latent: Latent[Any]) -> Latent[Any]:
    """The same with a q that nothing is learned through."""
    fixed = copy.copy(latent)
    fixed.inferred = None if latent.inferred is None else latent.inferred.detach()
    return fixed


def gradient(
    objective: Objective, latent_of: Callable[[], Latent[Any]], parameters: Sequence[nn.Parameter]
) -> Tensor:
    """The gradient of the summed surrogate."""
    parts = torch.autograd.grad(objective(latent_of()).surrogate.sum(), parameters, allow_unused=True)
    flat = [
        (torch.zeros_like(p) if g is None else g).double().flatten()
        for p, g in zip(parameters, parts, strict=True)
    ]
    return torch.cat(flat)


def seconds(
    objective: Objective, latent_of: Callable[[], Latent[Any]], parameters: Sequence[nn.Parameter]
) -> float:
    """How long a step takes."""
    start = time.perf_counter()
    surrogate = objective(latent_of()).surrogate.sum()
    torch.autograd.grad(surrogate, parameters, allow_unused=True)
    if surrogate.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start


def proposition_1(latent: EmissionLatent[Any], *, points: int = 3, iterations: int = 10) -> dict[str, Any]:
    """|p - p_soft| of every query beside the bound from the curvature met on the way; empirical, not proven."""
    curvature = empirical_curvature(
        dense_probability(latent), latent.prior, points=points, iterations=iterations
    )
    with torch.no_grad():
        gap = soft_gap(latent, curvature, proven=False)
    exists = latent.prior.mask.any(-1)
    gaps, tight, wide = (x[exists].double() for x in (gap.gap, gap.tighter, gap.bound))
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


def page(title: str, found: dict[str, Any]) -> Page:
    """One page: a plot and a table for each of the three."""
    return Page(
        title=title,
        summary=f"{found['bounds']['queries']:,} held-out queries; gradients on one batch, dropout off",
        sections=[
            Section("Bounds", picture=svg(bounds_figure(found["bounds"]))),
            Section("Bounds in figures", table=bounds_table(found["bounds"])),
            Section("Gradients", picture=svg(cost_of_gradients(found["gradients"]))),
            Section("Gradients in figures", table=gradients_table(found["gradients"])),
            Section("Proposition 1", picture=svg(proposition_figure(found["proposition_1"]))),
            Section("Proposition 1 in figures", table=proposition_table(found["proposition_1"])),
        ],
    )


def bounds_figure(found: dict[str, float]) -> Figure:
    """Every bound beside the exact log-likelihood."""
    shown = {"exact": found["log_likelihood"]}
    if "elbo_gap" in found:
        shown |= {f"IWAE, {n} draws": found[f"iwae_{n}"] for n in reversed(IWAE)}
        shown["ELBO"] = found["log_likelihood"] - found["elbo_gap"]
    shown["Jensen, E_p"] = found["log_likelihood"] - found["jensen_gap"]
    shown["soft attention"] = found["log_likelihood_soft"]
    figure, (axes,) = drawn(6.8, 0.8 + 0.42 * len(shown))
    axes.barh(list(shown), list(shown.values()), color=[COLOURS[0], *[COLOURS[4]] * (len(shown) - 1)])
    axes.invert_yaxis()
    axes.set_xlabel("nats a query")
    return figure


def bounds_table(found: dict[str, float]) -> Table:
    rows = [
        [Cell(name.replace("_", " ")), Cell(f"{value:,.4f}", float(value))] for name, value in found.items()
    ]
    return Table("Bounds", "Means over held-out queries, in nats.", ["what", "value"], rows)


def gradients_table(found: Sequence[dict[str, Any]]) -> Table:
    """Every estimator's worth."""
    note = (
        "Relative to the norm of the exact gradient. A bias that is not well above the noise of its estimate is none "
        "that was seen; where q is nearly certain, draws that matter are rare and few draws show too little of both. "
        "The truth of a row is the gradient of the objective named there; model leaves the inference network out."
    )
    rows = []
    for e in found:
        ratio = e["signal_to_noise"]
        rows.append(
            [
                Cell(e["estimator"]),
                Cell(f"{e['truth']} ({e['parameters']})"),
                Cell(f"{e['bias']:.3f}", e["bias"]),
                Cell(f"{e['noise']:.3f}", e["noise"]),
                Cell(f"{e['variance']:.3g}", e["variance"]),
                Cell("exact" if ratio is None else f"{ratio:.3g}", ratio),
                Cell(f"{e['milliseconds']:.1f}", e["milliseconds"]),
            ]
        )
    headings = ["estimator", "truth", "bias", "noise of the bias", "variance", "signal to noise", "ms a step"]
    return Table("Gradients", note, headings, rows)


def proposition_figure(found: dict[str, Any]) -> Figure:
    """The gap against its bound, on logarithmic axes; all points should lie below the line."""
    figure, (axes,) = drawn(5.6, 4.4)
    least = 1e-6
    pairs = [
        (max(b, least), max(g, least)) for b, g in zip(found["tighter_bounds"], found["gaps"], strict=True)
    ]
    axes.plot(*zip(*pairs, strict=True), ".", color=COLOURS[0], alpha=0.5, markersize=4)
    top = max(max(pair) for pair in pairs)
    axes.plot([least, top], [least, top], "--", color=COLOURS[1], linewidth=1.2, label="gap = bound")
    axes.set(xlabel="c/2 (1 - sum p²), c empirical", ylabel="|p - p_soft|", xscale="log", yscale="log")
    axes.legend(frameon=False, labelcolor=INK)
    return figure


def proposition_table(found: dict[str, Any]) -> Table:
    shown = {name: value for name, value in found.items() if isinstance(value, int | float)}
    rows = [
        [Cell(name.replace("_", " ")), Cell(f"{value:.4g}", float(value))] for name, value in shown.items()
    ]
    note = (
        "How far soft attention's probability of the observed output is from the latent model's, and Proposition 1's "
        "bound on it with the largest curvature met between each member and the mean: an estimate from below. "
        "A head with ReLU has kinks that no second derivative sees."
    )
    return Table("Proposition 1", note, ["what", "value"], rows)
