"""A new estimator is one small class: systematic sampling, checked against enumeration."""

import sys

import torch
from matplotlib.figure import Figure

from latentalign import Categorical, Enumerate, Hard, Latent, ScoreFunction


class Systematic(ScoreFunction):
    """n draws, (u + k) / n on the cumulative sum for one uniform u: unbiased, as p is drawn n p times on average."""

    abilities = ("at",)

    def draw(self, over):
        points = (torch.rand_like(over.mean[..., :1]) + torch.arange(self.n)) / self.n
        cumulative = over.mean.detach().cumsum(-1)
        return over.at(torch.searchsorted(cumulative, points).clamp(max=cumulative.shape[-1] - 1))


def main(plot):
    torch.manual_seed(0)
    copies, members = 20_000, 5  # many copies of one problem: a batch is many independent draws
    log_f = torch.rand(members, dtype=torch.float64).log()
    scores = torch.randn(members, dtype=torch.float64).expand(copies, -1).clone().requires_grad_()

    def log_likelihood(z):
        return log_f[z.index] if hasattr(z, "index") else (z.z @ log_f.exp()).log()

    def gradient(expectation):
        latent = Latent(Categorical.from_scores(scores), log_likelihood)
        return torch.autograd.grad(Hard(expectation)(latent).surrogate.sum(), scores)[0]

    exact, result = gradient(Enumerate())[0], {Systematic: [], ScoreFunction: []}
    axes = (figure := Figure(figsize=(5, 3.5), layout="constrained")).gca()
    for kind, rows in result.items():
        for n in (1, 2, 4, 8):
            mean, spread = (g := gradient(kind(n))).mean(0), g.std(0)
            off = ((mean - exact) / (spread / copies**0.5)).abs().max().item()
            rows.append((off, spread.norm().item()))
            print(f"{kind.__name__:>13}({n}): spread {rows[-1][1]:.3f}, mean {off:.1f} standard errors off")
        axes.loglog((1, 2, 4, 8), [spread for _, spread in rows], "o-", label=kind.__name__)
    axes.legend(title="spread of the gradient by n")
    figure.savefig(plot)
    return {kind.__name__: rows for kind, rows in result.items()}


if __name__ == "__main__":
    result = main(sys.argv[1] if len(sys.argv) > 1 else "new_estimator.png")
