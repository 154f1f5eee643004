"""Seconds of a chain's likelihood with its gradient, beside a plain PyTorch loop in log space.

    python benchmarks/chains.py [--batch 64] [--rounds 5]

The plain loop is what one would write first: log alpha_j = logsumexp(log alpha_{j-1} + log p(z_j | z_{j-1})) + log f,
with transitions (B, T, T) normalised at every step and autograd through all steps. Both compute in float64, take turns,
and must agree. The medians are printed for growing S = T.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor

from latentalign import Chain, Jump, Monotone
from latentalign.core.distributions.transitions import Transition

WIDEST = 10


def plain(scores: Tensor, log_f: Tensor, log_kernel: Tensor) -> Tensor:
    """log p(y_j | y_<j) by a loop over steps with autograd."""
    found = []
    log_position = scores[:, 0].log_softmax(-1)
    for j in range(scores.shape[1]):
        if j > 0:
            rows = (log_kernel + scores[:, j].unsqueeze(1)).log_softmax(-1)
            log_position = (log_position.unsqueeze(-1) + rows).logsumexp(1)
        joint = log_position + log_f[:, j]
        found.append(joint.logsumexp(-1))
        log_position = joint - found[-1].unsqueeze(-1)
    return torch.stack(found, 1)


def log_kernel_of(transition: Transition, size: int, like: Tensor) -> Tensor:
    """log K as a matrix."""
    return transition.kernel(size, like).log_dense(1, 2)[0, 0]


def seconds(work: Callable[[], Tensor], leaves: list[Tensor]) -> tuple[float, Tensor]:
    """Time of the value and its gradient, and the value."""
    start = time.perf_counter()
    value = work()
    torch.autograd.grad(value.sum(), leaves)
    return time.perf_counter() - start, value.detach()


def compare(kind: str, size: int, batch: int, rounds: int) -> tuple[float, float]:
    """Median seconds of ours and of the plain loop."""
    torch.manual_seed(0)
    scores, log_f = (torch.randn(batch, size, size).double().requires_grad_() for _ in range(2))
    table = torch.randn(2 * WIDEST + 1).double().requires_grad_()
    transition: Transition = Jump(table) if kind == "jump" else Monotone()
    leaves = [scores, log_f, *([table] if kind == "jump" else [])]
    ways = {
        "ours": lambda: Chain.from_scores(scores, transition=transition).filter(log_f),
        "plain": lambda: plain(scores, log_f, log_kernel_of(transition, size, scores[0, 0])),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds + 1):
        values = []
        for name, work in ways.items():
            elapsed, value = seconds(work, leaves)
            times[name].append(elapsed)
            values.append(value)
        torch.testing.assert_close(*values, rtol=1e-9, atol=1e-9)
    return median(times["ours"][1:]), median(times["plain"][1:])


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print("| transition | S = T | ours, ms | plain, ms | plain / ours |\n|---|---:|---:|---:|---:|")
    for kind in ("jump", "monotone"):
        for size in (10, 20, 40, 80):
            ours, loop = compare(kind, size, options.batch, options.rounds)
            print(
                f"| {kind} | {size} | {1000 * ours:.1f} | {1000 * loop:.1f} | {loop / ours:.1f} |", flush=True
            )


if __name__ == "__main__":
    main()
