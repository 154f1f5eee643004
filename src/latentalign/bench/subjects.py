"""Subjects that the processes measure: matrix products, training with one objective, and decoding."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from latentalign.bench.counting import count_operations
from latentalign.bench.rows import SOFT, Row
from latentalign.bench.sentences import FixedLength, evenly_spaced
from latentalign.bench.workload import Preset, Workload
from latentalign.core.kernels.certified import CERTIFICATE
from latentalign.core.kernels.fused_softmax import aligned
from latentalign.core.predictives import parse_predict
from latentalign.core.products import product
from latentalign.tasks.nmt.decode import Translator
from latentalign.tasks.nmt.inference_network import InferenceConfig
from latentalign.tasks.nmt.model import ModelConfig
from latentalign.training.loop import Trainer
from latentalign.training.loss import LossModule
from latentalign.training.memory import begin_peak, keep_freed_memory, peak_memory_mb
from latentalign.training.recipe import TrainingConfig
from latentalign.training.run import Run

SHAPES = ((2048, 2048, 2048), (1024, 256, 7900), (512, 256, 7900))
"""Products (m, k) (k, n): a large square one, and an output layer for two numbers of rows."""


class Gemm:
    """The machine's rate of float32 matrix products, by the faster of PyTorch's libraries."""

    def __init__(self, threads: int, shapes: Sequence[tuple[int, int, int]] = SHAPES) -> None:
        torch.set_num_threads(threads)
        one = torch.zeros(())
        self.products = [
            (allocate(m, k).normal_(), allocate(k, n).normal_(), allocate(m, n))
            for allocate in (lambda rows, columns: aligned(rows, one, columns), torch.empty)
            for m, k, n in shapes
        ]
        self.rate(times=1)

    def rate(self, times: int = 5) -> float:
        """GFLOP/s of the fastest shape, in aligned or plain memory: the median of a few products."""
        return max(self._rate(*product, times=times) for product in self.products)

    def _rate(self, left: torch.Tensor, right: torch.Tensor, out: torch.Tensor, *, times: int) -> float:
        ways = (lambda: torch.mm(left, right, out=out)), (lambda: product(left, right))
        seconds = min(median(seconds_of(way) for _ in range(times)) for way in ways)
        return 2 * left.numel() * right.shape[1] / seconds / 1e9


def seconds_of(work: Callable[[], Any]) -> float:
    """Time of a call in seconds."""
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
    lengths=FixedLength(2),
)


def build_trainer(data: Any, module: LossModule, config: TrainingConfig) -> Trainer:
    """The training loop, for single updates: these write nothing, so the run directory need not exist."""
    return Trainer(data, module, Run(Path("bench")), config=config, metadata={})


def load_lazy_libraries() -> None:
    """Make PyTorch load what it loads at the first update, about 90 MB, by updating a toy model."""
    data, module = TOY.problem(SOFT)
    build_trainer(data, module, TOY.training()).update(data.batch_keys(0)[:1])


class Training:
    """Training with one objective: repeated updates on a few batches, evenly spaced over the lengths."""

    def __init__(self, workload: Workload, row: Row, *, threads: int, batches: int) -> None:
        load_lazy_libraries()
        keep_freed_memory()
        self.before = begin_peak()
        torch.manual_seed(0)
        data, module = workload.problem(row)
        config = workload.training()
        torch.set_num_threads(threads)  # after the workload, which may set threads itself
        lengths = data.train.lengths("source")
        self.keys = evenly_spaced(
            sorted(data.batch_keys(0), key=lambda key: float(lengths[key].mean())), batches
        )
        if module.has_lazy_layers:  # they take their shape from a first batch
            with torch.no_grad():
                module(data.load_batch(self.keys[0][:2]))
        self.trainer = build_trainer(data, module, config)

    def warm_up(self) -> None:
        """One update, so that no measured update is the first."""
        self.trainer.update(self.keys[:1])

    def turn(self, seconds: float) -> float:
        """Target tokens per second, over as many whole passes as take at least this long."""
        tokens, start = 0, time.perf_counter()
        while True:
            tokens += sum(self.trainer.update([key]).queries for key in self.keys)
            elapsed = time.perf_counter() - start
            if elapsed >= seconds:
                return tokens / elapsed

    def peak(self) -> float:
        """Peak memory in MB, less what the process used before the model was built, PyTorch included."""
        return peak_memory_mb() - self.before

    def counts(self) -> dict[str, float]:
        """Operations, emissions and members visited by a certificate, per target token of a pass, and the share of
        time that the certificate takes.

        Call this last: counting takes memory itself.
        """
        with count_operations() as count:
            sums = [self.trainer.update([key]) for key in self.keys]
        tokens = sum(s.queries for s in sums)
        found = {
            "emissions_per_token": count.emissions / tokens,
            "gflop_per_token": count.operations / tokens / 1e9,
        }
        if "visited" in sums[0].terms:
            found["visited"] = sum(float(s.terms["visited"]) for s in sums) / tokens
            found["certificate_share"] = self.certificate_share()
        return found

    def certificate_share(self) -> float:
        """The share of an update's time that decides which members are visited, by a profile of one pass."""
        with profile(activities=[ProfilerActivity.CPU]) as found:
            seconds = seconds_of(lambda: [self.trainer.update([key]) for key in self.keys])
        events = [event for event in found.key_averages() if event.key == CERTIFICATE]
        return float(sum(event.cpu_time_total for event in events)) / 1e6 / seconds


class Decoding:
    """Translation of a few sentences, evenly spaced over the lengths."""

    def __init__(self, workload: Workload, *, threads: int, sentences: int) -> None:
        torch.manual_seed(0)
        self.workload = workload
        self.model, sources = workload.translation()
        torch.set_num_threads(threads)
        self.sources = evenly_spaced(sorted(sources, key=len), sentences)

    def speed(self, predict: str, beam: int, batch: int) -> float:
        """Sentences per second, over at most 16 batches: small batches are slow, and a few of them suffice."""
        translate = Translator(self.model, self.workload.search(beam), parse_predict(predict))
        sources = evenly_spaced(self.sources, 16 * batch)
        translate(sources[:2])
        groups = [sources[start : start + batch] for start in range(0, len(sources), batch)]
        return len(sources) / seconds_of(lambda: list(translate.batches(groups)))
