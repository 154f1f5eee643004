"""Chains of three small examples, and sums over all their paths."""

import itertools
import math

import torch

from latentalign import Chain, Dense, Jump, Monotone

KINDS = ("jump", "monotone", "monotone-2", "dense")
B, S, T = 3, 3, 4
MEMBERS = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 0, 0]]).bool()
QUERIES = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0]]).bool()
MASK = MEMBERS[:, None] & QUERIES[:, :, None]
EXACT = {"rtol": 1e-10, "atol": 1e-10}


class Problem:
    """Scores, transition and likelihoods of three examples; the last has one member and one query."""

    def __init__(self, kind, null, *, padding=float("nan"), seed=0):
        torch.manual_seed(seed)
        double = {"dtype": torch.float64}
        self.scores, self.log_f = torch.randn(B, S, T, **double), torch.randn(B, S, T + null, **double)
        self.null_scores = torch.randn(B, S, **double) if null else None
        self.weights = torch.randn(B, S - 1, T, T, **double) if kind == "dense" else torch.randn(5, **double)
        self.kind, self.null = kind, null
        for x in (self.scores, self.log_f[..., :T]):
            x[~MASK] = padding
        for x in (self.log_f[..., T:], *([self.null_scores] if null else [])):
            x[~QUERIES] = padding
        for x in self.parameters():
            x.requires_grad_()

    def parameters(self):
        extra = [self.null_scores] if self.null else []
        learned = [] if self.kind.startswith("monotone") else [self.weights]
        return [self.scores, self.log_f, *extra, *learned]

    def transition(self):
        if self.kind == "jump":
            return Jump(self.weights)
        if self.kind == "dense":
            return Dense(self.weights)
        return Monotone(2 if self.kind.endswith("2") else None)

    def chain(self):
        return Chain.from_scores(
            self.scores, exists=MASK, transition=self.transition(), null_scores=self.null_scores
        )

    def log_kernel(self, b, step, origin, end):
        """log K of one move, written independently of the kernels."""
        jump = end - origin
        if self.kind == "jump":
            return self.weights[max(-2, min(2, jump)) + 2]
        if self.kind == "dense":
            return self.weights[b, step - 1, origin, end]
        allowed = jump >= 0 and (jump <= 2 or not self.kind.endswith("2"))
        return torch.tensor(0.0 if allowed else -math.inf, dtype=torch.float64)

    def steps(self, b, path):
        """log p(z_j | z_{j-1}) of every step of a path of (position, is NULL); None if it is impossible."""
        members = int(MEMBERS[b].sum())
        found = []
        for j, (place, is_null) in enumerate(path):
            origin = place if j == 0 else path[j - 1][0]
            log_null = torch.nn.functional.logsigmoid(self.null_scores[b, j]) if self.null else -math.inf
            log_real = torch.nn.functional.logsigmoid(-self.null_scores[b, j]) if self.null else 0.0
            split = log_null if is_null else log_real
            if j == 0:
                row = self.scores[b, 0, :members].log_softmax(-1)
                found.append(row[place] + split)
            elif is_null:
                if place != origin:
                    return None
                found.append(split + 0 * self.scores[b, j, 0])
            else:
                row = torch.stack(
                    [self.log_kernel(b, j, origin, i) + self.scores[b, j, i] for i in range(members)]
                )
                if row[place] == -math.inf:
                    return None
                found.append(row.log_softmax(-1)[place] + split)
        return torch.stack(found)

    def paths(self, b, length=None):
        """Every possible path of an example with its log prior and log joint probability."""
        length = int(QUERIES[b].sum()) if length is None else length
        states = itertools.product(range(int(MEMBERS[b].sum())), range(1 + self.null))
        for path in itertools.product(list(states), repeat=length):
            steps = self.steps(b, path)
            if steps is not None:
                index = [T if is_null else place for place, is_null in path]
                log_f = torch.stack([self.log_f[b, j, i] for j, i in enumerate(index)])
                yield tuple(index), path, steps.sum(), steps.sum() + log_f.sum()


def posterior_paths(problem, b):
    """The paths of an example with their posterior probabilities."""
    found = [(index, path, joint) for index, path, _, joint in problem.paths(b)]
    total = torch.stack([joint for *_, joint in found]).logsumexp(0)
    return [(index, path, (joint - total).detach()) for index, path, joint in found]


def brute_force_likelihood(problem):
    """log p(y_j | y_<j) of every query, by differences of sums over all prefixes."""
    rows = []
    for b in range(B):
        before, row = torch.zeros((), dtype=torch.float64), []
        for length in range(1, S + 1):
            if length > QUERIES[b].sum():
                row.append(torch.zeros((), dtype=torch.float64))
                continue
            now = torch.stack([joint for *_, joint in problem.paths(b, length)]).logsumexp(0)
            row.append(now - before)
            before = now
        rows.append(torch.stack(row))
    return torch.stack(rows)
