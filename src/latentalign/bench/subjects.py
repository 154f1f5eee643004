"""What each process measures: matrix products, the training of one row, or decoding."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn

from latentalign.bench.counting import counting
from latentalign.bench.sentences import Same, spread
from latentalign.bench.workload import SOFT, Preset, Workload
from latentalign.core.kernels.fused_softmax import aligned
from latentalign.core.predictives import parse_predict
from latentalign.tasks.nmt.decode import Translator
from latentalign.tasks.nmt.inference_network import InferenceConfig
from latentalign.tasks.nmt.model import ModelConfig
from latentalign.training.loop import Trainer, TrainingConfig
from latentalign.training.memory import begin_peak, peak_memory_mb
from latentalign.training.objective import ObjectiveConfig
from latentalign.training.run import Run

SHAPES = ((2048, 2048, 2048), (1024, 256, 7900), (512, 256, 7900))
"""Products (m, k) (k, n): one that any library does best, and a vocabulary layer of two heights."""


class Gemm:
    """Float32 matrix products of the machine."""

    def __init__(self, threads: int, shapes: Sequence[tuple[int, int, int]] = SHAPES) -> None:
        torch.set_num_threads(threads)
        one = torch.zeros(())
        self.products = [
            (room(m, k).normal_(), room(k, n).normal_(), room(m, n))
            for room in (lambda rows, columns: aligned(rows, one, columns), torch.empty)
            for m, k, n in shapes
        ]
        self.rate(times=1)

    def rate(self, times: int = 5) -> float:
        """GFLOP a second of the fastest shape, in rows that lie well and plain ones; the median of a few products."""
        return max(self._rate(*product, times=times) for product in self.products)

    def _rate(self, left: torch.Tensor, right: torch.Tensor, out: torch.Tensor, *, times: int) -> float:
        seconds = [clocked(lambda: torch.mm(left, right, out=out)) for _ in range(times)]
        return 2 * left.numel() * right.shape[1] / median(seconds) / 1e9


def clocked(work: Callable[[], Any]) -> float:
    """Seconds that something takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


TOY = Preset(
    ModelConfig(
        embedding=1,
        encoder_layers=1,
        encoder_size=1,
        decoder_layers=1,
        decoder_size=1,
        attention_size=1,
        head_size=1,
    ),
    InferenceConfig(layers=1, size=1),
    vocabulary=8,
    batch=2,
    lengths=Same(2),
)


def trainer(task: Any, config: TrainingConfig) -> Trainer:
    """The training loop, for single updates: these write nothing, so the run need not be there."""
    return Trainer(task, Run(Path("bench")), config, metadata={})


def load_late_parts() -> None:
    """Load what PyTorch loads at a first update, about 90 MB, by one of a toy model."""
    task = TOY.task(SOFT)
    trainer(task, TOY.training()).update(task.epoch(0)[:1])


class Training:
    """One objective in training: updates on a few batches, evenly spread over the lengths, again and again."""

    def __init__(self, workload: Workload, objective: ObjectiveConfig, *, threads: int, batches: int) -> None:
        load_late_parts()
        self.before = begin_peak()
        torch.manual_seed(0)
        task, config = workload.task(objective), workload.training()
        torch.set_num_threads(threads)  # after the workload, which may have threads of its own
        lengths = task.train.lengths("source")
        self.keys = spread(sorted(task.epoch(0), key=lambda key: float(lengths[key].mean())), batches)
        if any(isinstance(p, nn.UninitializedParameter) for p in task.module.parameters()):
            with torch.no_grad():  # lazy layers of a learned baseline take their shape from a first batch
                task.module(task.batch(self.keys[0][:2]))
        self.trainer = trainer(task, config)

    def warm_up(self) -> None:
        """One update, so that nothing is done for the first time later."""
        self.trainer.update(self.keys[:1])

    def turn(self, seconds: float) -> float:
        """Target tokens a second over whole passes that take this long at least."""
        tokens, start = 0, time.perf_counter()
        while True:
            tokens += sum(self.trainer.update([key]).queries for key in self.keys)
            elapsed = time.perf_counter() - start
            if elapsed >= seconds:
                return tokens / elapsed

    def peak(self) -> float:
        """MB above what the process had before the model was built, PyTorch and all it loads included in that."""
        return peak_memory_mb() - self.before

    def counts(self) -> dict[str, float]:
        """Per target token of a pass what is computed, and how many members a certificate visits.

        To be asked last: counting takes memory of its own.
        """
        with counting() as count:
            sums = [self.trainer.update([key]) for key in self.keys]
        tokens = sum(s.queries for s in sums)
        found = {
            "emissions_per_token": count.emissions / tokens,
            "gflop_per_token": count.operations / tokens / 1e9,
        }
        if "visited" in sums[0].terms:
            found["visited"] = sum(float(s.terms["visited"]) for s in sums) / tokens
        return found


class Decoding:
    """Translation of a few sentences, evenly spread over the lengths."""

    def __init__(self, workload: Workload, *, threads: int, sentences: int) -> None:
        torch.manual_seed(0)
        self.workload = workload
        self.model, sources = workload.translation()
        torch.set_num_threads(threads)
        self.sources = spread(sorted(sources, key=len), sentences)

    def speed(self, predict: str, beam: int, batch: int) -> float:
        """Sentences a second, of 16 batches at most: small ones are slow, and as telling when they are few."""
        translate = Translator(self.model, self.workload.search(beam), parse_predict(predict))
        sources = spread(self.sources, 16 * batch)
        translate(sources[:2])
        groups = [sources[start : start + batch] for start in range(0, len(sources), batch)]
        return len(sources) / clocked(lambda: list(translate.batches(groups)))
