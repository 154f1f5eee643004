"""Training of the latent layers: with the model frozen and its states computed once, or together with the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from latentalign.core.errors import NonFiniteScoresError
from latentalign.core.latent import Estimate
from latentalign.errors import DivergedError, InputError
from latentalign.progress import Bars
from latentalign.wrapping.text import TokenPair


@dataclass(frozen=True)
class FitSettings:
    """How long and how fast `fit` trains."""

    epochs: int
    batch_size: int
    learning_rate: float
    seed: int

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")
        if not 0 < self.learning_rate < float("inf"):
            raise InputError(f"learning_rate must be above 0, got {self.learning_rate!r}")


@dataclass(frozen=True)
class Fitted:
    """What `fit` has done."""

    mode: str
    losses: list[float]
    """Minus the objective per target token, averaged over each epoch. In mode `align`, first those of words alone, then
    those of the bound by which the prior learns."""
    pairs: int
    skipped: int
    """Pairs with a blank side, which teach nothing."""


def group_pairs(pairs: Sequence[TokenPair], size: int) -> list[list[int]]:
    """Pairs of similar length, `size` of them at a time; pairs with a blank side are left out."""
    usable = [i for i, pair in enumerate(pairs) if not pair.blank]
    usable.sort(key=lambda i: (len(pairs[i].source.ids), len(pairs[i].target.ids), i))
    return [usable[start : start + size] for start in range(0, len(usable), size)]


@torch.enable_grad()
def optimise(
    parameters: Sequence[nn.Parameter],
    estimates: Sequence[Callable[[], Estimate]],
    settings: FitSettings,
    *,
    name: str,
) -> list[float]:
    """Maximise the objective of all batches; the mean loss of every epoch.

    Adam with a linear warm-up over a tenth of the steps and a linear decay. The order of batches and all other random
    numbers depend on the seed alone.
    """
    steps = settings.epochs * len(estimates)
    warmup = max(1, steps // 10)
    optimizer = torch.optim.Adam(parameters, lr=settings.learning_rate, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warmup, (steps - step) / max(1, steps - warmup))
    )
    losses = []
    with Bars() as bars:
        bar = bars.add(name, steps, unit="batches")
        for epoch in range(settings.epochs):
            total, tokens = 0.0, 0
            for number in torch.randperm(len(estimates)).tolist():
                try:
                    estimate = estimates[number]()
                except NonFiniteScoresError as error:
                    raise DivergedError(f"epoch {epoch + 1}: {error}; use a lower learning_rate") from error
                loss = estimate.loss()
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                norm = nn.utils.clip_grad_norm_(parameters, 1.0)
                require_finite(loss, norm, epoch + 1)
                optimizer.step()
                schedule.step()
                count = estimate.value.numel() if estimate.exists is None else int(estimate.exists.sum())
                total, tokens = total - float(estimate.mean().detach()) * count, tokens + count
                bar.advance()
            losses.append(total / max(1, tokens))
            bar.update(name=f"{name}, epoch {epoch + 1}, loss {losses[-1]:.3f}")
        bar.finish(f"{settings.epochs} epochs, loss {losses[0]:.3f} at first and {losses[-1]:.3f} at the end")
    return losses


def require_finite(loss: Tensor, norm: Tensor, epoch: int) -> None:
    """Raise before an update that would destroy the weights."""
    if not (torch.isfinite(loss) and torch.isfinite(norm)):
        raise DivergedError(
            f"epoch {epoch}: the loss is {float(loss):.4g} and the norm of its gradient {float(norm):.4g}; "
            "use a lower learning_rate"
        )


@contextmanager
def in_mode(module: nn.Module, *, training: bool) -> Iterator[None]:
    """In training or evaluation mode; afterwards every submodule is in its own mode again."""
    modes = [(part, part.training) for part in module.modules()]
    module.train(training)
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Without dropout and without gradient."""
    with in_mode(module, training=False), torch.no_grad():
        yield


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Random numbers that depend on the seed alone; afterwards the caller's random state is as it was."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
