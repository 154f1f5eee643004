"""Several processes as one training run: started by torchrun, gloo between CPUs and nccl between GPUs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

from latentalign.core.baselines import RunningMean
from latentalign.core.devices import read_numbers, widest_float
from latentalign.errors import InputError, LostProcessError

T = TypeVar("T")
PATIENCE = timedelta(minutes=30)
"""How long a process waits for another one that is alive, for example while the first one builds a cache."""


@dataclass(frozen=True)
class World:
    """All processes of a training run, as one of them sees them."""

    rank: int = 0
    size: int = 1

    @property
    def leader(self) -> bool:
        """Whether this is the one process that writes files and shows progress."""
        return self.rank == 0

    def wait(self) -> None:
        """Wait until all processes arrive here."""
        if self.size > 1:
            with self.report_lost_process():
                dist.barrier()

    def leader_first(self, work: Callable[[], T]) -> T:
        """Do the same work in every process, in the leader first, so that the others find the files it wrote."""
        if not self.leader:
            self.wait()
            return work()
        result = work()
        self.wait()
        return result

    def add(
        self, values: Sequence[float | Tensor], device: torch.device, *, alike: Sequence[Tensor] = ()
    ) -> list[float]:
        """Each value summed over all processes, then those that are `alike` in all of them; all are read together."""
        wide = partial(torch.full, (), dtype=widest_float(device), device=device)
        numbers = [x if isinstance(x, Tensor) else wide(fill_value=float(x)) for x in values]
        here = torch.stack([x.to(device, widest_float(device)) for x in numbers])
        if self.size > 1:
            with self.report_lost_process():
                dist.all_reduce(here)
        return read_numbers([*here, *alike])

    def broadcast(self, values: Sequence[float], device: torch.device) -> list[float]:
        """The leader's values, in every process."""
        if self.size == 1:
            return list(values)
        here = torch.tensor(values, dtype=widest_float(device), device=device)
        with self.report_lost_process():
            dist.broadcast(here, src=0)
        return [float(x) for x in here.tolist()]

    def gather(self, value: Tensor, device: torch.device) -> list[Tensor]:
        """A tensor of one shape from every process, in the order of ranks."""
        if self.size == 1:
            return [value]
        here = value.to(device)
        found = [torch.empty_like(here) for _ in range(self.size)]
        with self.report_lost_process():
            dist.all_gather(found, here)
        return [x.to(value.device) for x in found]

    def replicate(self, module: nn.Module) -> nn.Module:
        """The module with gradients averaged over all processes."""
        if self.size == 1:
            return module
        for part in module.modules():
            if isinstance(part, RunningMean):
                part.all_reduce = self.sum
        return DistributedDataParallel(module)

    def sum(self, value: Tensor) -> Tensor:
        """A tensor summed over all processes."""
        with self.report_lost_process():
            dist.all_reduce(value)
        return value

    def delay_exchange(self, module: nn.Module) -> AbstractContextManager[None]:
        """Keep gradients in this process; they are exchanged together with those of a later batch."""
        if isinstance(module, DistributedDataParallel):
            quiet: AbstractContextManager[None] = module.no_sync()
            return quiet
        return nullcontext()

    @contextmanager
    def report_lost_process(self) -> Iterator[None]:
        """Turn the loss of another process into an error that names this one."""
        try:
            yield
        except (dist.DistBackendError, dist.DistNetworkError, RuntimeError) as error:
            if self.size == 1 or not lost_connection(error):
                raise
            raise LostProcessError(
                f"rank {self.rank} of {self.size} lost another process of this run; the message of that process says "
                f"why. The last checkpoint is kept; continue with --resume ({first_line(error)})"
            ) from None


def lost_connection(error: BaseException) -> bool:
    """Whether an exchange failed because the other side is gone."""
    words = ("connection", "timed out", "timeout", "peer", "nccl", "gloo", "socket")
    return any(word in str(error).lower() for word in words)


def first_line(error: BaseException) -> str:
    """The first line of an error's message."""
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__


@contextmanager
def join_processes(device: str) -> Iterator[World]:
    """The processes that torchrun describes in the environment, or this one alone."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size < 2:
        yield World()
        return
    if not dist.is_available():
        raise InputError("this build of PyTorch has no torch.distributed; train with one process")
    backend = "nccl" if torch.device(device).type == "cuda" else "gloo"
    if backend == "nccl":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group(backend, timeout=PATIENCE)
    try:
        yield World(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()
