"""Proposition 1 as a plot: the distance between soft attention and the latent model, and its bounds.

|p - p_soft| <= c/2 (1 - sum p^2) <= c, where c is the curvature of f. For a linear head, c is proven. For a head with a
hidden layer, c is estimated at the points that the proof visits.
"""

import sys

import torch
from matplotlib.figure import Figure

import latentalign as la

ROWS, MEMBERS, SIZE, OUTPUTS = 300, 5, 4, 6


def measure(head):
    """The gap of random sources, priors and outputs with one head. Sources differ in scale, so that c varies."""
    query = torch.randn(ROWS, 2, dtype=torch.float64)
    size = torch.logspace(-1, 1, ROWS, dtype=torch.float64).view(-1, 1, 1)
    memory = size * torch.randn(ROWS, MEMBERS, SIZE, dtype=torch.float64)
    prior = la.Categorical.from_scores(2 * torch.randn(ROWS, MEMBERS, dtype=torch.float64))
    target = torch.randint(OUTPUTS, (ROWS,))
    latent = la.EmissionLatent(prior, head, query, memory=memory, target=target)
    if isinstance(head, la.LinearHead):
        return la.soft_gap(
            latent, la.softmax_curvature(head.output.weight, memory, exists=prior.mask), proven=True
        )
    return la.soft_gap(latent, la.empirical_curvature(la.dense_probability(latent), prior), proven=False)


def main(plot):
    torch.manual_seed(0)
    heads = la.LinearHead(SIZE, OUTPUTS), la.MLPHead(2, SIZE, OUTPUTS, hidden=16)
    figure, result = Figure(figsize=(9, 4), layout="constrained"), {}
    for axes, head in zip(figure.subplots(1, 2), heads, strict=True):
        name = type(head).__name__
        with torch.no_grad():
            result[name] = found = measure(head.double())
        for bound, label in ((found.bound, "c"), (found.tighter, "c/2 (1 - sum p^2)")):
            axes.loglog(bound, found.gap, ".", label=f"against {label}")
            print(f"{name:>10}: |p - p_soft| is at most {(found.gap / bound).max():.3f} of {label}")
        axes.axline((1e-3, 1e-3), (1, 1), color="grey", label="equality")
        axes.set(ylabel="|p - p_soft|", title=f"{name}: c is {'proven' if found.proven else 'empirical'}")
        axes.legend()
    figure.savefig(plot)
    return result


if __name__ == "__main__":
    result = main(sys.argv[1] if len(sys.argv) > 1 else "proposition_one.png")
