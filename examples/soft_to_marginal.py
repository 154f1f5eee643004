"""From a model's own soft attention to latent alignment with exact marginal likelihood.

Some members of each source carry the requested key. One of them decides the output; which one is not observed.
"""

import torch
from torch import nn
from torch.nn.functional import one_hot

from latentalign import Categorical, Latent, marginal, soft

KEYS, SYMBOLS, MEMBERS, SIZE = 3, 12, 6, 4


def lookup(n, look):
    """Requested keys, sources of (key, noisy embedding of a symbol), and the symbol of one matching member."""
    key, symbol = torch.randint(KEYS, (n, MEMBERS)), torch.randint(SYMBOLS, (n, MEMBERS))
    asked = key.gather(1, torch.randint(MEMBERS, (n, 1)))
    target = symbol.gather(1, (key == asked).float().multinomial(1)).squeeze(1)
    noisy = look[symbol] + 0.1 * torch.randn(n, MEMBERS, SIZE)
    return one_hot(asked.squeeze(1), KEYS).float(), torch.cat([one_hot(key, KEYS), noisy], -1), target


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Linear(KEYS, KEYS + SIZE)
        self.head = nn.Sequential(nn.Linear(KEYS + SIZE, 64), nn.Tanh(), nn.Linear(64, SYMBOLS))

    def latent(self, query, memory, target):
        # Soft attention was: log_p = head(softmax(scores) @ memory).log_softmax(-1), then log_p[target].
        def log_likelihood(z):  # the same, for K alignments at once
            log_p = self.head(z.contexts(memory)).log_softmax(-1)
            return log_p.gather(-1, target.view(-1, 1, 1).expand(*log_p.shape[:-1], 1)).squeeze(-1)

        scores = (memory @ self.score(query).unsqueeze(-1)).squeeze(-1)
        return Latent(Categorical.from_scores(scores), log_likelihood)


def main():
    look, result = torch.randn(SYMBOLS, SIZE, generator=torch.Generator().manual_seed(0)), {}
    for name, objective in (("soft", soft), ("marginal", marginal)):
        torch.manual_seed(1)
        model, test = Model(), lookup(2000, look)
        adam = torch.optim.Adam(model.parameters(), 0.01)
        for _ in range(300):
            loss = -objective(model.latent(*lookup(64, look))).surrogate.mean()
            adam.zero_grad()
            loss.backward()
            adam.step()
        result[name] = objective(model.latent(*test)).value.mean().item()
        print(f"{name:>8}: held-out log p(y | x) = {result[name]:.3f} nats")
    return result


if __name__ == "__main__":
    result = main()
