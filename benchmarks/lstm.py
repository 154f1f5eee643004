"""Time of `LSTMStack` relative to `torch.nn.LSTM` with packed sequences, forward and backward pass.

    python benchmarks/lstm.py [THREADS]

Both read the same sequences of different lengths; both start from a padded batch and return one. They take turns in
one process, and the ratio of their medians is printed: below 1, `LSTMStack` is faster.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from latentalign.bench.sentences import Lengths
from latentalign.nn.recurrent import LSTMStack

SIZE, ROUNDS = 256, 9
"""Units of the preset `multi30k`."""


def seconds(work: Callable[[], Tensor]) -> tuple[float, float]:
    """Time of the forward and of the backward pass."""
    start = time.perf_counter()
    out = work()
    middle = time.perf_counter()
    out.sum().backward()
    return middle - start, time.perf_counter() - middle


def compare(layers: int, batch: int) -> tuple[float, float, float]:
    """Ratios of forward, backward and both."""
    ours = LSTMStack(SIZE, SIZE, layers)
    theirs = nn.LSTM(SIZE, SIZE, layers, batch_first=True, bidirectional=True)
    lengths = torch.from_numpy(Lengths().draw(batch, np.random.default_rng(0))[0])
    mask = lengths.unsqueeze(1) > torch.arange(int(lengths.max()))
    x = torch.randn(*mask.shape, SIZE, requires_grad=True)

    def run_theirs() -> Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(theirs(packed)[0], batch_first=True)[0]

    rounds = [(seconds(lambda: ours(x, mask)), seconds(run_theirs)) for _ in range(1 + ROUNDS)][1:]
    medians = [
        [statistics.median(each) for each in zip(*((f, b, f + b) for f, b in side), strict=True)]
        for side in zip(*rounds, strict=True)
    ]
    forward, backward, both = (a / b for a, b in zip(*medians, strict=True))
    return forward, backward, both


def main() -> None:
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    torch.manual_seed(0)
    print(f"{'layers':>6}{'batch':>7}{'forward':>9}{'backward':>10}{'both':>7}   LSTMStack / torch.nn.LSTM")
    for layers in (1, 2):
        for batch in (32, 128):
            forward, backward, both = compare(layers, batch)
            print(f"{layers:6}{batch:7}{forward:9.2f}{backward:10.2f}{both:7.2f}")


if __name__ == "__main__":
    main()
