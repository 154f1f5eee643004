"""The page of `latentalign diagnose`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from latentalign.reproduction import plots
from latentalign.reproduction.diagnosis import IWAE
from latentalign.web.pages import Cell, Page, Section, Table


def diagnosis_page(title: str, found: dict[str, Any]) -> Page:
    """A plot and a table each for bounds, gradients and Proposition 1."""
    return Page(
        title=title,
        summary=f"{found['bounds']['queries']:,} held-out queries; gradients on one batch, dropout off",
        sections=[
            *plots.picture_sections({"Bounds": bounds_figure(found["bounds"])}),
            Section("Bounds in numbers", table=bounds_table(found["bounds"])),
            *plots.picture_sections({"Gradients": plots.gradient_costs(found["gradients"])}),
            Section("Gradients in numbers", table=gradients_table(found["gradients"])),
            *plots.picture_sections({"Proposition 1": proposition_figure(found["proposition_1"])}),
            Section("Proposition 1 in numbers", table=proposition_table(found["proposition_1"])),
        ],
    )


def bounds_figure(found: dict[str, float]) -> Figure:
    """Every bound beside the exact log-likelihood."""
    shown = {"exact": found["log_likelihood"]}
    if "elbo_gap" in found:
        shown |= {draws_label(n): found[f"iwae_{n}"] for n in reversed(IWAE)}
        shown["ELBO"] = found["log_likelihood"] - found["elbo_gap"]
    shown["Jensen, E_p"] = found["log_likelihood"] - found["jensen_gap"]
    shown["soft attention"] = found["log_likelihood_soft"]
    figure, (axes,) = plots.new_figure(6.8, 0.8 + 0.42 * len(shown))
    axes.barh(
        list(shown), list(shown.values()), color=[plots.COLOURS[0], *[plots.COLOURS[4]] * (len(shown) - 1)]
    )
    axes.invert_yaxis()
    axes.set_xlabel("nats per query")
    return figure


def bounds_table(found: dict[str, float]) -> Table:
    """The bounds as numbers."""
    names = {
        "queries": "queries",
        "log_likelihood": "log-likelihood, exact",
        "log_likelihood_soft": "log-likelihood of soft attention",
        "jensen_gap": "gap of the Jensen bound",
        "elbo_gap": "gap of the ELBO",
        **{f"iwae_{n}": draws_label(n) for n in IWAE},
    }
    rows = [
        [Cell(names[name]), Cell(f"{value:,}" if name == "queries" else f"{value:,.4f}", float(value))]
        for name, value in found.items()
    ]
    return Table("Bounds", "Means over held-out queries, in nats.", ["quantity", "value"], rows)


def draws_label(n: int) -> str:
    """The name of an importance-weighted bound."""
    return f"IWAE, {n} draw{'s' if n > 1 else ''}"


def gradients_table(found: Sequence[dict[str, Any]]) -> Table:
    """Bias, variance and time of every estimator."""
    note = (
        "Relative to the norm of the exact gradient. A bias is real only if it is well above its noise. Where q is "
        "nearly certain, the draws that matter are rare, and a few draws underestimate both bias and variance. The "
        "reference of a row is the gradient of the objective named there, with respect to all parameters or to those "
        "of the model without the inference network."
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
    headings = [
        "estimator",
        "reference",
        "bias",
        "noise of the bias",
        "variance",
        "signal to noise",
        "ms per step",
    ]
    return Table("Gradients", note, headings, rows)


def proposition_figure(found: dict[str, Any]) -> Figure:
    """The gap against its bound on logarithmic axes; all points should lie below the line."""
    figure, (axes,) = plots.new_figure(5.6, 4.4)
    least = 1e-6
    pairs = [
        (max(b, least), max(g, least)) for b, g in zip(found["tighter_bounds"], found["gaps"], strict=True)
    ]
    axes.plot(*zip(*pairs, strict=True), ".", color=plots.COLOURS[0], alpha=0.5, markersize=4)
    top = max(max(pair) for pair in pairs)
    axes.plot([least, top], [least, top], "--", color=plots.COLOURS[1], linewidth=1.2, label="gap = bound")
    axes.set(xlabel="c/2 (1 - sum p²), c empirical", ylabel="|p - p_soft|", xscale="log", yscale="log")
    axes.legend(frameon=False, labelcolor=plots.INK)
    return figure


def proposition_table(found: dict[str, Any]) -> Table:
    """Gaps and bounds as numbers."""
    shown = {name: value for name, value in found.items() if isinstance(value, int | float)}
    rows = [
        [Cell(name.replace("_", " ")), Cell(f"{value:.4g}", float(value))] for name, value in shown.items()
    ]
    note = (
        "The distance between the probabilities that soft attention and the latent model give to the observed output, "
        "and Proposition 1's bound on it. The bound uses the largest curvature found between each member and the mean, "
        "which is an estimate from below. Second derivatives miss the kinks of a head with ReLU."
    )
    return Table("Proposition 1", note, ["quantity", "value"], rows)
