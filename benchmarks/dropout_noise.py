"""Time of dropout from sixteen random bits per element and of PyTorch's dropout, forward and backward pass.

    python benchmarks/dropout_noise.py [THREADS]

Prints the median milliseconds for 10,000 x 256 numbers. Both take turns.
"""

from __future__ import annotations

import statistics
import sys
import time

import torch
from torch import nn

from latentalign.nn.dropout import Dropout

SHAPE, ROUNDS = (10_000, 256), 15


def milliseconds(layer: nn.Module, x: torch.Tensor) -> float:
    start = time.perf_counter()
    layer(x).backward(x)
    return 1e3 * (time.perf_counter() - start)


def main() -> None:
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
    x = torch.randn(SHAPE, requires_grad=True)
    layers = {"torch.nn.Dropout": nn.Dropout(0.3), "sixteen bits": Dropout(0.3)}
    found: dict[str, list[float]] = {name: [] for name in layers}
    for _ in range(ROUNDS):
        for name, layer in layers.items():
            found[name].append(milliseconds(layer, x))
    for name, times in found.items():
        print(f"{name}: {statistics.median(times):.1f} ms")


if __name__ == "__main__":
    main()
