"""Rate of the product that forms logits, into plain memory and into rows that begin at cache lines.

    python benchmarks/aligned_products.py [THREADS]

Prints the median rate of 530 x 256 by 256 x 7,900 in GFLOP/s. Both kinds of memory take turns.
"""

from __future__ import annotations

import statistics
import sys
import time

import torch

from latentalign.core.kernels.fused_softmax import aligned

ROWS, HIDDEN, OUTPUTS, ROUNDS = 530, 256, 7900, 15


def rate(hidden: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> float:
    start = time.perf_counter()
    torch.mm(hidden, weight.t(), out=out)
    return 2e-9 * ROWS * HIDDEN * OUTPUTS / (time.perf_counter() - start)


def main() -> None:
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
    hidden, weight = torch.randn(ROWS, HIDDEN), torch.randn(OUTPUTS, HIDDEN)
    outputs = {"plain": torch.empty(ROWS, OUTPUTS), "aligned": aligned(ROWS, hidden, OUTPUTS)}
    found: dict[str, list[float]] = {name: [] for name in outputs}
    for _ in range(ROUNDS):
        for name, out in outputs.items():
            found[name].append(rate(hidden, weight, out))
    for name, rates in found.items():
        print(f"{name}: {statistics.median(rates):.0f} GFLOP/s")


if __name__ == "__main__":
    main()
