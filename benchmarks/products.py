"""What oneDNN changes: the rates of matrix products, and the speed of training, each with and without it.

    python benchmarks/products.py [--threads 1] [--batch 32 192] [--rounds 5]

The products are those of a training step with 256 units and 7,900 outputs: rates in GFLOP/s, the median of the rounds.
Training is on random sentences, in target tokens per second. Both libraries take turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import torch

from latentalign.bench.rows import parse_row
from latentalign.bench.subjects import Training
from latentalign.bench.workload import PRESETS
from latentalign.core.products import onednn_is_faster, product, product_over_rows

UNITS, OUTPUTS = 256, 7900
OBJECTIVES = "soft", "marginal", "variational-sample"


def products_of_a_step(rows: int) -> dict[str, tuple[Callable[[], object], int]]:
    """The large products of a step on a number of rows, each with its operations."""
    hidden, exponentials = torch.randn(rows, UNITS), torch.randn(rows, OUTPUTS)
    output, gates = torch.randn(OUTPUTS, UNITS), torch.randn(2 * UNITS, 4 * UNITS)
    inputs, d_gates = torch.randn(rows, 2 * UNITS), torch.randn(rows, 4 * UNITS)
    large, small = 2 * rows * UNITS * OUTPUTS, 2 * rows * 2 * UNITS * 4 * UNITS
    return {
        "logits": (lambda: product(hidden, output.t()), large),
        "gradient of hidden states": (lambda: product(exponentials, output), large),
        "gradient of the output layer": (lambda: product_over_rows(exponentials, hidden), large),
        "gates of an LSTM": (lambda: product(inputs, gates), small),
        "gradient of an LSTM's weights": (lambda: product_over_rows(d_gates, inputs), small),
    }


def median_of_both(measure: Callable[[], float], rounds: int) -> tuple[float, float]:
    """Medians of a figure with MKL and with oneDNN, which take turns; the first turn of each does not count."""
    found: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(rounds + 1):
        for use in found:
            torch.backends.mkldnn.set_flags(_enabled=use)
            found[use].append(measure())
    return statistics.median(found[False][1:]), statistics.median(found[True][1:])


def rate(call: Callable[[], object], operations: int) -> float:
    """GFLOP/s of a call, repeated for a twentieth of a second."""
    calls, start = 0, time.perf_counter()
    while time.perf_counter() - start < 0.05:
        call()
        calls += 1
    return 1e-9 * calls * operations / (time.perf_counter() - start)


def show(name: str, mkl: float, onednn: float) -> None:
    print(f"{name:<45} {mkl:>9,.0f} {onednn:>9,.0f} {onednn / mkl:>6.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, nargs="+", default=[32, 192])
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if not onednn_is_faster():
        print("latentalign does not use oneDNN on this processor; both columns are MKL")
    torch.set_num_threads(arguments.threads)
    print(f"{'':<45} {'MKL':>9} {'oneDNN':>9} {'ratio':>6}")
    for rows in (32, 192, 528):
        for name, (call, operations) in products_of_a_step(rows).items():
            both = median_of_both(lambda c=call, o=operations: rate(c, o), arguments.rounds)
            show(f"{name}, {rows} rows", *both)
    for batch in arguments.batch:
        workload = replace(PRESETS["multi30k"], batch=batch)
        for name in OBJECTIVES:
            training = Training(workload, parse_row(name), threads=arguments.threads, batches=4)
            show(f"{name}, batch {batch}", *median_of_both(lambda t=training: t.turn(2), arguments.rounds))


if __name__ == "__main__":
    main()
