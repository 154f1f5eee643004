"""Time of the decoder's packed loop, relative to autograd through single padded steps, for each score.

    python benchmarks/decoder_loop.py [THREADS]

Forward and backward pass of one batch with the lengths of Multi30k, at the sizes of the preset `multi30k`. Both ways
take turns in one process; the ratio of their medians is printed. "custom" is a score that has no hand-written backward
pass.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from latentalign.bench.sentences import Lengths
from latentalign.core.scores import BilinearScore, DotScore, MLPScore, ProjectedScore
from latentalign.nn.attention_decoder import AttentionDecoder

SIZE, BATCH, ROUNDS = 256, 64, 7
Loop = Callable[[AttentionDecoder], tuple[Tensor, Tensor]]


class CosineScore(ProjectedScore):
    """A learned scale times the cosine of query and projected member."""

    def __init__(self, query_dim: int, memory_dim: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(3.0))
        self.from_memory = nn.Linear(memory_dim, query_dim)

    def project(self, memory: Tensor) -> Tensor:
        return nn.functional.normalize(self.from_memory(memory), dim=-1)

    def scores(self, query: Tensor, projected: Tensor) -> Tensor:
        unit = nn.functional.normalize(query, dim=-1)
        return self.scale * (projected @ unit.unsqueeze(-1)).squeeze(-1)


class Batch:
    """Random words and sources."""

    def __init__(self) -> None:
        source, target = Lengths().draw(BATCH, np.random.default_rng(0))
        self.mask = torch.from_numpy(source).unsqueeze(1) > torch.arange(int(source.max()))
        self.exists = torch.from_numpy(target).unsqueeze(1) > torch.arange(int(target.max()))
        self.words = torch.randn(*self.exists.shape, SIZE, requires_grad=True)
        self.memory = torch.randn(*self.mask.shape, SIZE, requires_grad=True)

    def packed(self, decoder: AttentionDecoder) -> tuple[Tensor, Tensor]:
        """The loop of the library."""
        queries, scores = decoder(self.words, self.exists, self.memory, mask=self.mask)
        return queries, scores

    def plain(self, decoder: AttentionDecoder) -> tuple[Tensor, Tensor]:
        """One step after the other, padding included, differentiated by autograd."""
        state, projected = decoder.start(BATCH, self.memory), decoder.score.project(self.memory)
        steps = []
        for word in self.words.unbind(1):
            query, score, state = decoder.step(word, state, self.memory, projected, mask=self.mask)
            steps.append((query, score))
        queries, scores = zip(*steps, strict=True)
        return torch.stack(queries, 1), torch.stack(scores, 1)

    def seconds(self, loop: Loop, decoder: AttentionDecoder) -> float:
        """Time of a forward and a backward pass."""
        start = time.perf_counter()
        queries, scores = loop(decoder)
        exists = self.exists.unsqueeze(2)
        masked = scores.masked_fill(~(exists & self.mask.unsqueeze(1)), 0.0)
        (queries.masked_fill(~exists, 0.0).sum() + masked.sum()).backward()
        return time.perf_counter() - start


def main() -> None:
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    torch.manual_seed(0)
    scores: dict[str, nn.Module] = {
        "mlp": MLPScore(SIZE, SIZE, SIZE),
        "bilinear": BilinearScore(SIZE, SIZE),
        "dot": DotScore(),
        "custom": CosineScore(SIZE, SIZE),
    }
    batch = Batch()
    print("packed / plain, forward and backward")
    for name, score in scores.items():
        decoder = AttentionDecoder(SIZE, SIZE, 1, memory_dim=SIZE, score=score)
        times = [
            (batch.seconds(batch.packed, decoder), batch.seconds(batch.plain, decoder))
            for _ in range(1 + ROUNDS)
        ][1:]  # the first round warms up
        packed, plain = (statistics.median(each) for each in zip(*times, strict=True))
        print(f"{name:10}{packed / plain:6.2f}")


if __name__ == "__main__":
    main()
