"""Five objectives on a lookup task: one unobserved member among those with the requested key decides the output."""

import sys

import torch
from matplotlib.figure import Figure
from rich import print, progress, table
from torch.nn.functional import one_hot

from latentalign import OBJECTIVES, BilinearScore, Categorical, LatentAttention, parse_predict

NAMES = ("soft", "marginal", "hard-sample", "variational-enum", "variational-sample")
KEYS, SYMBOLS, MEMBERS, SIZE, STEPS = 3, 12, 6, 4, 150


def lookup(n, look):
    """Requested keys, sources of (key, noisy embedding of a symbol), and the symbol of one matching member."""
    key, symbol = torch.randint(KEYS, (n, MEMBERS)), torch.randint(SYMBOLS, (n, MEMBERS))
    asked = key.gather(1, torch.randint(MEMBERS, (n, 1)))
    chosen = (key == asked).float().multinomial(1)
    memory = torch.cat([one_hot(key, KEYS), look[symbol] + 0.1 * torch.randn(n, MEMBERS, SIZE)], -1)
    return one_hot(asked.squeeze(1), KEYS).float(), memory, symbol.gather(1, chosen).squeeze(1)


def train(name):
    """Held-out log-likelihood after every ten steps, and the final entropy of the prior."""
    torch.manual_seed(1)
    objective, test = OBJECTIVES[name](), lookup(1000, look := torch.randn(SYMBOLS, SIZE))
    model, curve = LatentAttention(KEYS, KEYS + SIZE, SYMBOLS, hidden=64, inference=False), []
    network = BilinearScore(KEYS + SYMBOLS, KEYS + SIZE)  # the score of q, which also sees the output
    adam = torch.optim.Adam([*model.parameters(), *network.parameters()], 0.02)
    for step in progress.track(range(STEPS), f"{name:<18}"):
        query, memory, target = lookup(128, look)
        q = Categorical.from_scores(network(torch.cat([query, one_hot(target, SYMBOLS)], -1), memory))
        (-objective(model(query, memory).observe(target, q)).surrogate.mean()).backward()
        adam.step()
        adam.zero_grad()
        if step % 10 == 9:
            latent = model(*test[:2]).observe(test[2])
            curve.append(parse_predict(objective.predict).log_prob(latent).mean().item())
    return curve, latent.prior.entropy.mean().item()


def main(plot):
    result = {name: train(name) for name in NAMES}
    rows = table.Table("objective", "held-out log p(y | x)", "entropy of p(z | x)")
    axes = (figure := Figure(figsize=(7, 3.5), layout="constrained")).gca()
    for name, (curve, entropy) in result.items():
        rows.add_row(name, f"{curve[-1]:.2f}", f"{entropy:.2f}")
        axes.plot(range(10, STEPS + 1, 10), curve, label=name)
    figure.legend(loc="outside right", title="held-out log p(y | x)\nafter each step, nats")
    figure.savefig(plot)
    print(rows, f"plot: {plot}")
    return result


if __name__ == "__main__":
    result = main(sys.argv[1] if len(sys.argv) > 1 else "five_objectives.png")
