"""A question about two members: do the members marked A and B have the same sign?

The sign of one member says nothing about the answer. A single look still learns something, because which member the
prior selects depends on all of them. Two dependent looks learn the whole answer.
"""

import torch

from latentalign import LatentAttention, marginal

MEMBERS = 4


def draw(batch):
    """Queries, members [is A, is B, sign] and answers."""
    places = torch.rand(batch, MEMBERS).argsort(-1)  # place 0 is A, place 1 is B
    signs = torch.randint(2, (batch, MEMBERS)) * 2.0 - 1
    memory = torch.stack([(places == 0).float(), (places == 1).float(), signs], -1)
    a, b = ((signs * (places == k)).sum(-1) for k in (0, 1))
    return torch.ones(batch, 1), memory, (a == b).long()


def train(looks, steps=300):
    """Negative log-likelihood in nats and accuracy on new data after training."""
    torch.manual_seed(0)
    attention = LatentAttention(query_dim=1, memory_dim=3, outputs=2, hidden=32, looks=looks)
    optimiser = torch.optim.Adam(attention.parameters(), lr=1e-2)
    for _ in range(steps):
        query, memory, target = draw(64)
        optimiser.zero_grad()
        marginal(attention(query, memory).observe(target)).loss().backward()
        optimiser.step()
    with torch.no_grad():
        query, memory, target = draw(2000)
        log_probs = attention(query, memory).predict("exact")
    nll = -log_probs.gather(1, target.unsqueeze(1)).mean()
    return float(nll), float((log_probs.argmax(-1) == target).double().mean())


def main():
    print("| looks | NLL, nats | accuracy, % |\n|---|---:|---:|")
    for looks in (1, 2, 4, "dependent"):
        nll, accuracy = train(looks)
        print(f"| {looks} | {nll:.3f} | {100 * accuracy:.1f} |", flush=True)


if __name__ == "__main__":
    main()
