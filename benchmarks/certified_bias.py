"""Bias of the certified marginal on a trained run: full enumeration minus its value, over the validation pairs.

    python benchmarks/certified_bias.py RUN

Prints, for several tolerances and for an enumerated or sampled tail, the members visited per token and the mean,
largest and smallest difference from log p(y | x, x~) in nats per token.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from latentalign.core.kernels.certified import certified_marginal
from latentalign.tasks.nmt.data import build_cache
from latentalign.tasks.nmt.task import TRANSLATION
from latentalign.tasks.nmt.training_data import evaluation_batches

WAYS = [(t, tail) for t in (0.1, 0.01, 0.001) for tail in ("enumerate", "sample")]


@torch.no_grad()
def main() -> None:
    torch.manual_seed(0)
    trained = TRANSLATION.load(Path(sys.argv[1]))
    cache = trained.run.cache / "valid"
    corpus = build_cache(trained.vocabulary, trained.config.data.valid, cache, max_length=None)
    below: dict[tuple[float, str], list[torch.Tensor]] = {way: [] for way in WAYS}
    visited = dict.fromkeys(WAYS, 0)
    tokens = 0
    for batch in evaluation_batches(corpus):
        latent = trained.model.latent(batch)
        exact = latent.log_marginal(latent.prior.enumerate())
        tokens += batch.queries
        for way in WAYS:
            found = certified_marginal(latent, way[0], tail=way[1])
            below[way].append((exact - found.value)[batch.target_mask].double())
            visited[way] += int(found.visited[batch.target_mask].sum())
    print("| tolerance | tail | members visited | mean nats below | largest | smallest |")
    print("|---:|---|---:|---:|---:|---:|")
    for way, parts in below.items():
        gap = torch.cat(parts)
        figures = (visited[way] / tokens, float(gap.mean()), float(gap.max()), float(gap.min()))
        print("| {} | {} | {:.2f} | {:.5f} | {:.4f} | {:.4f} |".format(*way, *figures))


if __name__ == "__main__":
    main()
