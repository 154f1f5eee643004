"""Peak memory of one forward and backward pass over every alignment of a batch, compared with dense logits.

    python benchmarks/emission_memory.py

B = 8 sentences of S = 32 queries over T = 64 members, V = 16,000 outputs, D = 256 features, float32. Each way runs
in its own process. Its figure is the peak resident memory less the resident memory just before the pass.
The exit code is 1 if one takes more than 500 MB.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path

B, S, T, V, D = 8, 32, 64, 16_000, 256
LIMIT = 500
WAYS = {
    "marginal": "log E[p(y|z)], fused",
    "target_log_prob": "log p(y|z) of every z, logits formed again in the backward pass",
}


def peak() -> float:
    """Peak resident memory of this process in MB."""
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return highest / 1e6 if sys.platform == "darwin" else highest * 1024 / 1e6


def resident() -> float:
    """Resident memory of this process in MB, or its peak on systems that do not report the current value."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * resource.getpagesize() / 1e6 if statm.exists() else peak()


def measure(way: str) -> None:
    """Print the memory of one pass in MB and its time in seconds."""
    import torch

    from latentalign import LatentAttention, marginal

    torch.manual_seed(0)
    torch.set_num_threads(1)
    attention = LatentAttention(D, D, V, hidden=D, score="dot", inference=False)
    query, memory = (torch.randn(B, n, D, requires_grad=True) for n in (S, T))
    target = torch.randint(V, (B, S))
    small = attention(query[:1, :1], memory[:1, :1], target[:1, :1])
    small.soft().sum().backward()  # loads what PyTorch loads lazily
    attention.zero_grad()
    before, start = resident(), time.perf_counter()
    latent = attention(query, memory, target)
    value = marginal(latent).value if way == "marginal" else latent.log_likelihood(latent.prior.enumerate())
    value.sum().backward()
    print(peak() - before, time.perf_counter() - start)


def main() -> int:
    dense = B * S * T * V * 4 / 1e6
    print(f"dense logits alone, before any gradient: {dense:.0f} MB")
    worst = 0.0
    for way, words in WAYS.items():
        out = subprocess.check_output([sys.executable, __file__, way], text=True)
        highest, seconds = map(float, out.split())
        worst = max(worst, highest)
        print(
            f"{way}: {highest:.0f} MB, {100 * highest / dense:.0f} % of that, {seconds:.1f} s on one thread ({words})"
        )
    print(f"limit {LIMIT} MB: {'met' if worst < LIMIT else 'EXCEEDED'}")
    return 0 if worst < LIMIT else 1


if __name__ == "__main__":
    raise SystemExit(measure(sys.argv[1]) if len(sys.argv) > 1 else main())
