"""Training steps under torch.compile: compile time, breaks in the graph, and steps per second before and after.

    python benchmarks/compiled.py [--backend inductor] [--objectives marginal,rws] [--steps 20] [--json]

The model has a linear encoder and decoder, latent attention with 128 hidden units and 2,000 outputs, and batches of
16 examples with up to 12 queries and 16 members. Every objective is compiled once for one size of batches and once for
any size. Loss and gradients of compiled and eager steps are compared. Rates are medians; eager and compiled steps take
turns. The compiler's caches on disk are not used, so compile times are those of a first run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"  # read when the compiler is imported

import torch
from torch import Tensor, nn
from torch import _dynamo as dynamo

from latentalign import DISTRIBUTIONS, OBJECTIVES, LatentAttention, Objective

EXAMPLES, DIM, OUTPUTS = 16, 64, 2000
SIZES = ((12, 16), (10, 13), (11, 14))
"""Queries and members of the batches that are compared."""


class Model(nn.Module):
    """Latent attention between a small encoder and decoder, and the loss."""

    def __init__(self, objective: Objective) -> None:
        super().__init__()
        own_q = objective.needs_inferred and not DISTRIBUTIONS[objective.distribution].extra_scores
        sizes: dict[str, Any] = {"query_dim": DIM, "memory_dim": DIM, "outputs": OUTPUTS, "hidden": 128}
        self.encoder, self.decoder = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)
        self.attention = LatentAttention(**sizes, distribution=objective.distribution, inference=own_q)
        self.objective = objective

    def forward(self, query: Tensor, memory: Tensor, target: Tensor, padding: Tensor) -> Tensor:
        query, memory = self.decoder(query).tanh(), self.encoder(memory).tanh()
        choice = self.attention(query, memory, key_padding_mask=padding)
        # The built-in network has one score; for a distribution with more, the prior stands in for q.
        q = choice.prior.detach() if self.objective.needs_inferred and choice.infer is None else None
        return self.objective(choice.observe(target, q)).loss()


def batch(queries: int, members: int) -> tuple[Tensor, ...]:
    """A batch whose sources have several lengths."""
    g = torch.Generator().manual_seed(queries)
    padding = torch.arange(members) >= torch.randint(1, members + 1, (EXAMPLES, 1), generator=g)
    states = (torch.randn(EXAMPLES, n, DIM, generator=g) for n in (queries, members))
    return *states, torch.randint(OUTPUTS, (EXAMPLES, queries), generator=g), padding


def step(model: nn.Module, function: Callable[..., Tensor], tensors: tuple[Tensor, ...]) -> list[Tensor]:
    """The loss and all gradients of one step."""
    torch.manual_seed(0)
    model.zero_grad()
    loss = function(*tensors)
    loss.backward()
    return [loss.detach(), *[p.grad.clone() for p in model.parameters() if p.grad is not None]]


def steps_per_second(model: nn.Module, functions: list[Callable[..., Tensor]], steps: int) -> list[float]:
    """The median rate of steps with batches of one size, for functions that take turns."""
    tensors = batch(*SIZES[0])
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(steps):
        for function, found in zip(functions, times, strict=True):
            start = time.perf_counter()
            step(model, function, tensors)
            found.append(time.perf_counter() - start)
    return [1 / statistics.median(found) if found else 0.0 for found in times]


def measure(name: str, backend: str, *, steps: int, sizes: int) -> dict[str, Any]:
    """Every figure of one objective."""
    dynamo.reset()
    dynamo.utils.counters.clear()
    torch.manual_seed(0)
    model = Model(OBJECTIVES[name]())
    eager = [step(model, model, batch(*size)) for size in SIZES[:sizes]]
    compiled, seconds, differences = torch.compile(model, backend=backend), [], []
    for size, expected in zip(SIZES[:sizes], eager, strict=True):
        start = time.perf_counter()
        found = step(model, compiled, batch(*size))
        seconds.append(time.perf_counter() - start)
        pairs = zip(found, expected, strict=True)
        differences.append(max(float((a - b).abs().max()) for a, b in pairs))
    plain, fast = steps_per_second(model, [model, compiled], steps)
    return {
        "objective": name,
        "first_step_seconds": round(seconds[0], 1),
        "other_sizes_seconds": round(sum(seconds[1:]), 1),
        "graphs": dynamo.utils.counters["stats"]["unique_graphs"],
        "largest_difference": max(differences),
        "eager_steps_per_second": round(plain, 1),
        "compiled_steps_per_second": round(fast, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="inductor", help="inductor, aot_eager or eager")
    parser.add_argument("--objectives", default=",".join(OBJECTIVES), help="names, separated by commas")
    parser.add_argument("--steps", type=int, default=20, help="steps to time; 0 only compares")
    parser.add_argument("--sizes", type=int, default=3, help="sizes of batches to compare, at most 3")
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    options = parser.parse_args()
    budget = {"steps": options.steps, "sizes": options.sizes}
    names = options.objectives.split(",")
    if options.json:
        print(json.dumps([measure(name, options.backend, **budget) for name in names]))
        return
    print("| objective | first step, s | other sizes, s | graphs | eager, steps/s | compiled, steps/s |")
    print("|---|---:|---:|---:|---:|---:|")
    for name in names:
        row = measure(name, options.backend, **budget)
        cells = [str(row[key]) for key in row if key not in ("objective", "largest_difference")]
        print(f"| `{name}` | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
