"""Baselines B of the score-function estimator, (r - B) grad log q(z): any B that does not depend on its own z.

A baseline gives B for every draw, without gradient. One that learns, or keeps a state, is a module with a method
`fit(latent, reward)` as well. The estimator calls it after it has used B, with the mean reward of each query over its
weighted draws, and adds what it returns to the surrogate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from latentalign.core.latent import Latent
from latentalign.core.numerics import at_least_float32


@runtime_checkable
class Baseline(Protocol):
    """B for every draw, from the model and the rewards of all draws (for sum-and-sample, only their mean)."""

    def __call__(self, latent: Latent, reward: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch #n"]: ...


def soft_baseline(latent: Latent, reward: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch 1"]:
    """log f(x, E_p[z]): what soft attention would have earned (the paper's equation 1)."""
    with torch.no_grad():
        return latent.soft().unsqueeze(-1)


def no_baseline(latent: Latent, reward: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch 1"]:
    """Zero: plain REINFORCE."""
    return torch.zeros_like(reward[..., :1]).detach()


def leave_one_out(latent: Latent, reward: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
    """The mean reward of the other draws (Kool et al. 2019); needs at least two draws."""
    n = reward.shape[-1]
    if n < 2:
        raise ValueError(f"the leave-one-out baseline needs n >= 2 samples, got {n}")
    reward = reward.detach()
    return (reward.sum(-1, keepdim=True) - reward) / (n - 1)


class RunningMean(nn.Module):
    """An exponential mean of the rewards of earlier batches.

    `all_reduce` sums a tensor over all processes; distributed training sets it.
    """

    mean: Tensor
    seen: Tensor

    def __init__(self, decay: float = 0.99) -> None:
        super().__init__()
        self.decay = decay
        self.all_reduce: Callable[[Tensor], Tensor] | None = None
        self.register_buffer("mean", torch.zeros((), dtype=torch.float64))
        self.register_buffer("seen", torch.zeros((), dtype=torch.float64))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RunningMean:
        try:
            super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        except TypeError:  # a device without float64
            super()._apply(lambda state: fn(state.float()), recurse)  # type: ignore[no-untyped-call]
        return self

    def forward(self, latent: Latent, reward: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch 1"]:
        answer = (self.mean / self.seen.clamp_min(1e-12)).to(reward.dtype)
        return torch.zeros_like(reward[..., :1]).detach() + answer

    def fit(self, latent: Latent, reward: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Zero; in training mode, update the mean with the rewards of the existing queries."""
        if self.training and not reward.is_meta:
            self.update(reward, latent.prior.mask.any(-1))
        return torch.zeros_like(reward)

    @torch.no_grad()
    def update(self, reward: Float[Tensor, "*batch"], exists: Bool[Tensor, "*batch"]) -> None:
        """Update the mean with the rewards of the existing queries of one batch, over all processes."""
        rewards = reward.masked_fill(~exists, 0.0).to(self.mean.dtype)
        total = torch.stack([rewards.sum(), exists.sum().to(self.mean.dtype)])
        if self.all_reduce is not None:
            total = self.all_reduce(total)
        decay = torch.where(total[1] > 0, self.decay, 1.0)
        self.mean.mul_(decay).add_((1 - decay) * (total[0] / total[1].clamp_min(1.0)))
        self.seen.mul_(decay).add_(1 - decay)


class LearnedBaseline(nn.Module):
    """A small network of the query, fitted to the reward by least squares (Mnih and Gregor 2014)."""

    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.LazyLinear(hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def predict(self, latent: Latent) -> Float[Tensor, "*batch 1"]:
        """B, with gradient for the network alone."""
        if latent.query is None:
            raise ValueError("the learned baseline needs Latent.query, its input features")
        if any(is_lazy(p) for p in self.net.parameters()):  # the first use fixes precision and device
            self.net.to(at_least_float32(latent.query.detach()))
        exists = latent.prior.mask.any(-1, keepdim=True)
        query = latent.query.detach().to(next(self.net.parameters()).dtype)
        answer: Tensor = self.net(query.masked_fill(~exists, 0.0))
        return answer.masked_fill(~exists, 0.0)

    def forward(self, latent: Latent, reward: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch 1"]:
        return self.predict(latent).detach()

    def fit(self, latent: Latent, reward: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """-(B - mean r)^2 / 2, to be added to the surrogate; only the baseline gets a gradient from it."""
        return -0.5 * (self.predict(latent).squeeze(-1) - reward.detach()) ** 2


BASELINES: dict[str, Callable[[], Baseline]] = {
    "soft": lambda: soft_baseline,
    "none": lambda: no_baseline,
    "leave-one-out": lambda: leave_one_out,
    "running-mean": RunningMean,
    "learned": LearnedBaseline,
}


def build_baseline(name: str) -> Baseline:
    """A baseline by name."""
    if name not in BASELINES:
        raise ValueError(f"unknown baseline {name!r}; choose one of {', '.join(BASELINES)}")
    return BASELINES[name]()
