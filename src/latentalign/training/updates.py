"""One update of the weights from a group of batches, in one process or several."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from latentalign.core.checks import no_waiting_checks
from latentalign.core.errors import NonFiniteScoresError
from latentalign.training.adam import FusedAdam
from latentalign.training.distributed import World
from latentalign.training.loss import Batch, Figures, Sums, add_sums
from latentalign.training.recipe import TrainingConfig


class NotFinite(Exception):
    """The loss, the gradient or a score of a batch is not finite."""


class Updater:
    """Adam on the normalised, clipped gradient of the summed loss."""

    def __init__(self, module: nn.Module, config: TrainingConfig, world: World) -> None:
        self.config, self.world = config, world
        self.replica = world.replicate(module)
        self.optimizer = FusedAdam(module.parameters())
        self.device = torch.device(config.device)

    def accumulate(self, batches: Sequence[Callable[[], Batch]]) -> Sums:
        """Compute the gradients of all batches; their sums in this process, which are not read yet."""
        module = self.replica.train()
        self.optimizer.zero_grad()
        parts: list[Sums] = []
        for load in batches:
            last = len(parts) == len(batches) - 1
            keep_local = nullcontext() if last else self.world.delay_exchange(module)
            with keep_local, self.world.report_lost_process(), no_waiting_checks(self.device):
                with self.autocast():
                    sums = compute_finite(partial(self._forward, module, load))
                (-sums.surrogate).backward()
            parts.append(sums.detach())
        return add_sums(parts)

    def _forward(self, module: nn.Module, load: Callable[[], Batch]) -> Sums:
        sums: Sums = module(load())
        return sums

    def gradients(self) -> list[Tensor]:
        """The gradients of all parameters that have one."""
        return [p.grad for p in self.replica.parameters() if p.grad is not None]

    def gradient_norm(self) -> Tensor:
        """The Euclidean norm of the gradients, which is not read yet."""
        return torch.nn.utils.get_total_norm(self.gradients())

    def step(self, total: Figures, norm: float, learning_rate: float) -> None:
        """Update the weights with the gradients and their norm; nothing changes if it raises.

        `total` holds the sums over all processes.
        """
        count = total.queries if self.config.normalize == "tokens" else total.examples
        mean = self.world.size / max(1, count)  # the gradients of a replica are means already
        norm = mean * norm
        if not (math.isfinite(total.surrogate) and math.isfinite(norm)):
            raise NotFinite(f"loss {-total.surrogate}, gradient norm {norm}")
        torch._foreach_mul_(self.gradients(), mean * min(1.0, self.config.clip / (norm + 1e-6)))
        self.optimizer.step(learning_rate)

    def autocast(self) -> AbstractContextManager[Any]:
        """Reduced precision where the recipe asks for it."""
        if self.config.precision != "bf16":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)


def compute_finite(compute: Callable[[], Any]) -> Any:
    """The result of a computation; scores that are not finite raise NotFinite."""
    try:
        return compute()
    except NonFiniteScoresError as error:
        raise NotFinite(str(error)) from None
