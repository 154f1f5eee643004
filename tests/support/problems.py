"""Small random problems in float64, and the slowest possible way to solve them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from latentalign import Categorical, EmissionLatent, MLPHead


@dataclass
class Problem:
    """Everything the gradient is taken by, and the model made of it."""

    prior_scores: Tensor
    inferred_scores: Tensor
    query: Tensor
    memory: Tensor
    target: Tensor
    mask: Tensor
    head: nn.Module
    max_logits: int = 64

    @property
    def leaves(self) -> list[Tensor]:
        scores = [self.prior_scores, self.inferred_scores, self.query, self.memory]
        return [*scores, *self.head.parameters()]

    def latent(self) -> EmissionLatent:
        prior = Categorical.from_scores(self.prior_scores, exists=self.mask)
        inferred = Categorical.from_scores(self.inferred_scores, exists=self.mask)
        return EmissionLatent(
            prior,
            self.head,
            self.query,
            memory=self.memory,
            target=self.target,
            inferred=inferred,
            max_logits=self.max_logits,
        )


def problem(
    batch: tuple[int, ...] = (2, 3),
    members: int = 4,
    outputs: int = 5,
    *,
    seed: int = 0,
    sharp: float = 1.0,
    ragged: bool = True,
    max_logits: int = 64,
) -> Problem:
    """Random scores, states and head; with `ragged`, sources of several lengths, one of 1, and a query of none."""
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int, scale: float = 1.0) -> Tensor:
        return (scale * torch.randn(*shape, generator=g, dtype=torch.float64)).requires_grad_()

    shared = (batch[0], *(1 for _ in batch[1:]))
    head = MLPHead(3, 4, outputs, hidden=6).double()
    with torch.no_grad():
        for p in head.parameters():
            p.copy_(torch.randn(p.shape, generator=g, dtype=torch.float64))
    mask = torch.ones(*batch, members, dtype=torch.bool)
    if ragged:
        mask[0, ..., 2:] = False
        mask[-1, ..., 1:] = False
        mask.view(-1, members)[-1] = False  # a query with no member at all
    return Problem(
        prior_scores=normal(*batch, members, scale=sharp),
        inferred_scores=normal(*batch, members, scale=sharp),
        query=normal(*batch, 3),
        memory=normal(*shared, members, 4),
        target=torch.randint(outputs, batch, generator=g),
        mask=mask,
        head=head,
        max_logits=max_logits,
    )


def brute_force(p: Problem) -> dict[str, Tensor]:
    """Every exact objective by a loop over queries and members, with nothing shared and nothing clever."""
    names = ("soft", "marginal", "hard-enum", "variational-enum")
    values: dict[str, list[Tensor]] = {name: [] for name in names}
    batch = p.target.shape
    memory = p.memory.expand(*batch, *p.memory.shape[-2:])
    for at in itertools.product(*(range(n) for n in batch)):
        members = p.mask[at].nonzero().squeeze(-1).tolist()
        if not members:
            for name in names:
                values[name].append(torch.zeros((), dtype=torch.float64))
            continue
        prior = torch.softmax(torch.stack([p.prior_scores[at][i] for i in members]), 0)
        q = torch.softmax(torch.stack([p.inferred_scores[at][i] for i in members]), 0)

        def f(context: Tensor, at: tuple[int, ...] = at) -> Tensor:
            hidden = torch.tanh(
                p.head.from_memory.weight @ context
                + p.head.from_query.weight @ p.query[at]
                + p.head.from_query.bias
            )
            return torch.softmax(p.head.output.weight @ hidden + p.head.output.bias, 0)[p.target[at]]

        each = torch.stack([f(memory[at][i]) for i in members])
        mean = sum(w * memory[at][i] for w, i in zip(prior, members, strict=True))
        values["soft"].append(f(mean).log())
        values["marginal"].append((prior * each).sum().log())
        values["hard-enum"].append((prior * each.log()).sum())
        values["variational-enum"].append((q * (each.log() + prior.log() - q.log())).sum())
    return {name: torch.stack(v).view(batch) for name, v in values.items()}


def gradients(value: Tensor, leaves: list[Tensor], weight: Tensor | None = None) -> list[Tensor]:
    """d sum(weight * value) by every leaf, zeros where there is no dependence."""
    total = (value if weight is None else value * weight).sum()
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True)]


def all_draws(p: Problem, n: int) -> list[Tensor]:
    """Every T^n tuple of members, the same for all queries."""
    members = p.prior_scores.shape[-1]
    return [
        torch.tensor(c).expand(*p.target.shape, n).contiguous()
        for c in itertools.product(range(members), repeat=n)
    ]


def probability_of(dist: Categorical, draws: Tensor) -> Tensor:
    """Probability of a tuple of independent draws; the empty query counts as certain at its first tuple."""
    each = dist.log_prob_of(draws).detach().sum(-1).exp()
    empty = ~dist.mask.any(-1)
    return torch.where(empty, (draws == 0).all(-1).double(), each)


def masked(p, query_exists, **changed):
    """The problem's latent with queries masked, all else as if they existed."""
    parts = {"query": p.query, "target": p.target, **changed}
    return EmissionLatent(
        Categorical.from_scores(p.prior_scores),
        p.head,
        parts["query"],
        memory=p.memory,
        target=parts["target"],
        inferred=Categorical.from_scores(p.inferred_scores),
        query_exists=query_exists,
        max_logits=p.max_logits,
    )
