"""The forward recursion of a chain of alignments, and its gradient by hand.

A step of a chain moves mass from positions to positions. Every kind of transition has one form,

    p(z_j = i' | z_{j-1} = i) = K(i, i') E_j(i') / n_j(i),    n_j(i) = sum_i' K(i, i') E_j(i'),

where E_j = exp(scores of step j) says where query j wants to look, and the kernel K >= 0 says which moves the structure
prefers. The recursion only multiplies vectors by K. That costs one matrix product per step for a table of jump widths,
and one cumulative sum per step for a monotone chain.

The recursion runs in rescaled probability space, in float64 where the device has it. The normaliser of step j is
p(y_j | y_<j, x), so the recursion returns one log-likelihood per query.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from latentalign.core.numerics import NEG_INF


class Kernel(ABC):
    """K(i, i') >= 0, the preference for a move from member i to member i'.

    `step` is the position of the move's end, from 1 on: the first position has no predecessor.
    """

    @property
    def weight(self) -> Tensor | None:
        """The tensor that K is made of and that receives a gradient; None where K is fixed."""
        return None

    @abstractmethod
    def push(self, mass: Float[Tensor, "B T"], step: int) -> Float[Tensor, "B T"]:
        """sum_i mass(i) K(i, i')."""

    @abstractmethod
    def pull(self, value: Float[Tensor, "B T"], step: int) -> Float[Tensor, "B T"]:
        """sum_i' K(i, i') value(i')."""

    @abstractmethod
    def log_dense(self, batch: int, steps: int) -> Float[Tensor, "#batch #moves T T"]:
        """log K of every move, to be broadcast over (batch, steps - 1, T, T)."""

    def weight_gradient(
        self, left: Float[Tensor, "B moves T k"], right: Float[Tensor, "B moves T k"]
    ) -> Tensor | None:
        """The gradient of `weight` when that of K(i, i') is sum_k left(i, k) right(i', k) for every move."""
        return None


class TableKernel(Kernel):
    """One matrix K (T, T) for all examples and steps, for instance made of a table of jump widths."""

    def __init__(self, matrix: Float[Tensor, "T T"]) -> None:
        self.matrix = matrix

    @property
    def weight(self) -> Tensor:
        return self.matrix

    def push(self, mass: Float[Tensor, "B T"], step: int) -> Float[Tensor, "B T"]:
        return mass @ self.matrix.detach()

    def pull(self, value: Float[Tensor, "B T"], step: int) -> Float[Tensor, "B T"]:
        return value @ self.matrix.detach().t()

    def log_dense(self, batch: int, steps: int) -> Float[Tensor, "1 1 T T"]:
        return self.matrix.log()[None, None]

    def weight_gradient(
        self, left: Float[Tensor, "B moves T k"], right: Float[Tensor, "B moves T k"]
    ) -> Float[Tensor, "T T"]:
        rows, columns = (x.movedim(-1, -2).flatten(0, 2) for x in (left, right))
        return rows.t() @ columns


class DenseKernel(Kernel):
    """A matrix of its own for every example and step: K_j (B, S - 1, T, T)."""

    def __init__(self, matrices: Float[Tensor, "B moves T T"]) -> None:
        self.matrices = matrices

    @property
    def weight(self) -> Tensor:
        return self.matrices

    def push(self, mass: Float[Tensor, "B T"], step: int) -> Float[Tensor, "B T"]:
        return torch.bmm(mass.unsqueeze(1), self.matrices.detach()[:, step - 1]).squeeze(1)

    def pull(self, value: Float[Tensor, "B T"], step: int) -> Float[Tensor, "B T"]:
        return torch.bmm(value.unsqueeze(1), self.matrices.detach()[:, step - 1].transpose(1, 2)).squeeze(1)

    def log_dense(self, batch: int, steps: int) -> Float[Tensor, "B moves T T"]:
        return self.matrices.log()

    def weight_gradient(
        self, left: Float[Tensor, "B moves T k"], right: Float[Tensor, "B moves T k"]
    ) -> Float[Tensor, "B moves T T"]:
        return left @ right.transpose(-1, -2)


class MonotoneKernel(Kernel):
    """K(i, i') = 1 for i <= i' <= i + max_step (without a limit: i <= i'), else 0: never backwards."""

    def __init__(self, members: int, max_step: int | None, like: Tensor) -> None:
        self.members, self.max_step, self.like = members, max_step, like

    def push(self, mass: Float[Tensor, "B T"], step: int) -> Float[Tensor, "B T"]:
        if self.max_step is None:
            return mass.cumsum(-1)
        return windowed_sum(mass, before=self.max_step, after=0)

    def pull(self, value: Float[Tensor, "B T"], step: int) -> Float[Tensor, "B T"]:
        if self.max_step is None:
            return value.flip(-1).cumsum(-1).flip(-1)
        return windowed_sum(value, before=0, after=self.max_step)

    def log_dense(self, batch: int, steps: int) -> Float[Tensor, "1 1 T T"]:
        place = torch.arange(self.members, device=self.like.device)
        jump = place - place.unsqueeze(1)
        allowed = (jump >= 0) if self.max_step is None else (jump >= 0) & (jump <= self.max_step)
        return (
            torch.zeros_like(self.like[:1]).expand(allowed.shape).masked_fill(~allowed, NEG_INF)[None, None]
        )


def windowed_sum(value: Float[Tensor, "B T"], *, before: int, after: int) -> Float[Tensor, "B T"]:
    """The sum over t - before .. t + after, without differences of cumulative sums, which cancel."""
    padded = torch.nn.functional.pad(value, (before, after))
    return padded.unfold(-1, before + after + 1, 1).sum(-1)


def tiny(like: Tensor) -> float:
    """Smallest divisor; only impossible outputs come near it."""
    return max(1e-300, torch.finfo(like.dtype).tiny)


def safe_ratio(part: Tensor, whole: Tensor) -> Tensor:
    """part / whole, and 0 where part is 0."""
    return torch.where(part > 0, part / whole.clamp_min(tiny(whole)), torch.zeros_like(part))


class Scaled:
    """The inputs of the recursion as probabilities, with the largest factor of each step taken out."""

    def __init__(self, scores: Tensor, log_f: Tensor, log_null: Tensor, log_f_null: Tensor) -> None:
        peak = scores.amax(-1, keepdim=True)
        self.wanted = (scores - peak.masked_fill(peak == NEG_INF, 0.0)).exp()
        self.null, self.real = log_null.exp(), -torch.expm1(log_null)
        never = (log_null == NEG_INF).all(-1)
        scale = torch.maximum(log_f.amax(-1), log_f_null.masked_fill(never, NEG_INF))
        self.scale = scale.masked_fill(scale == NEG_INF, 0.0)
        self.likelihood = (log_f - self.scale.unsqueeze(-1)).exp()
        self.null_likelihood = (log_f_null - self.scale).exp().unsqueeze(-1)

    def start(self) -> Float[Tensor, "B T"]:
        """softmax of the first step's scores."""
        return safe_ratio(self.wanted[:, 0], self.wanted[:, 0].sum(-1, keepdim=True))


class ChainFilter(torch.autograd.Function):
    """log p(y_j | y_<j, x), and p(z_j | y_<=j, x) of the copies of z_j that select a member and of the NULL copies.

    A NULL output is generated by no member. The chain remembers its position, so every member has a NULL copy.
    `log_null` (B, S, T) is the chance of NULL given the position before. Where a query does not exist, the chain stays.
    """

    @staticmethod
    def forward(
        ctx: Any,
        kernel: Kernel,
        weight: Tensor | None,
        scores: Tensor,
        log_f: Tensor,
        log_null: Tensor,
        log_f_null: Tensor,
        exists: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        s = Scaled(scores, log_f, log_null, log_f_null)
        member, nothing = torch.zeros_like(s.wanted), torch.zeros_like(s.wanted)
        reach, total = torch.ones_like(s.wanted), torch.ones_like(log_f_null)
        position, least = s.start(), tiny(total)
        for j in range(scores.shape[1]):
            selected = s.real[:, j] * position
            if j > 0:
                reach[:, j] = kernel.pull(s.wanted[:, j], j)
                selected = s.wanted[:, j] * kernel.push(safe_ratio(selected, reach[:, j]), j)
            seen = selected * s.likelihood[:, j]
            unseen = s.null[:, j] * position * s.null_likelihood[:, j]
            total[:, j] = (seen.sum(-1) + unseen.sum(-1)).clamp_min(least)
            here = exists[:, j, None]
            stay = (member[:, j - 1], nothing[:, j - 1]) if j > 0 else (position, nothing[:, 0])
            member[:, j] = torch.where(here, seen / total[:, j, None], stay[0])
            nothing[:, j] = torch.where(here, unseen / total[:, j, None], stay[1])
            position = member[:, j] + nothing[:, j]
        ctx.kernel, ctx.scaled = kernel, s
        ctx.save_for_backward(member, nothing, reach, total, exists)
        return (total.log() + s.scale).masked_fill(~exists, 0.0), member, nothing

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_value: Tensor, d_member: Tensor, d_nothing: Tensor) -> tuple[Tensor | None, ...]:
        """Reverse accumulation; with d_value = 1 the gradient of log f is the posterior (Fisher's identity)."""
        kernel, s = ctx.kernel, ctx.scaled
        member, nothing, reach, total, exists = ctx.saved_tensors
        d_scores, d_null, d_real = (torch.zeros_like(member) for _ in range(3))
        d_log_f, d_log_f_null = torch.zeros_like(member), torch.zeros_like(total)
        left, right = (member.new_zeros(*member[:, 1:].shape, 2) for _ in range(2))
        later_member, later_nothing = torch.zeros_like(member[:, 0]), torch.zeros_like(member[:, 0])
        for j in reversed(range(member.shape[1])):
            later_member, later_nothing = later_member + d_member[:, j], later_nothing + d_nothing[:, j]
            here = exists[:, j, None]
            mean = (later_member * member[:, j] + later_nothing * nothing[:, j]).sum(-1, keepdim=True)
            outer = d_value[:, j, None] - mean
            d_seen = (outer + later_member).masked_fill(~here, 0.0)  # times total, as is the next
            d_unseen = (outer + later_nothing).masked_fill(~here, 0.0)
            d_log_f[:, j] = member[:, j] * d_seen
            d_log_f_null[:, j] = (nothing[:, j] * d_unseen).sum(-1)
            position = s.start() if j == 0 else member[:, j - 1] + nothing[:, j - 1]
            d_selected = s.likelihood[:, j] * d_seen / total[:, j, None]
            d_copied = s.null_likelihood[:, j] * d_unseen / total[:, j, None]
            d_position = s.null[:, j] * d_copied
            d_null[:, j] = position * d_copied
            if j == 0:
                d_real[:, 0] = position * d_selected
                d_start = torch.where(here, d_position + s.real[:, 0] * d_selected, later_member)
                d_scores[:, 0] = position * (d_start - (position * d_start).sum(-1, keepdim=True))
                break
            ratio = safe_ratio(s.real[:, j] * position, reach[:, j])
            d_arrived = s.wanted[:, j] * d_selected
            d_ratio = kernel.pull(d_arrived, j)
            d_origin = torch.where(reach[:, j] > 0, d_ratio / reach[:, j].clamp_min(tiny(reach)), 0.0)
            d_reach = -ratio * d_origin
            d_scores[:, j] = s.wanted[:, j] * (kernel.push(ratio, j) * d_selected + kernel.push(d_reach, j))
            left[:, j - 1] = torch.stack([ratio, d_reach], -1)
            right[:, j - 1] = torch.stack([d_arrived, s.wanted[:, j]], -1)
            d_real[:, j] = position * d_origin
            d_position = d_position + s.real[:, j] * d_origin
            later_member = torch.where(here, d_position, later_member)
            later_nothing = torch.where(here, d_position, later_nothing)
        d_log_null = s.null * (d_null - d_real)
        d_weight = None if kernel.weight is None else kernel.weight_gradient(left, right)
        return None, d_weight, d_scores, d_log_f, d_log_null, d_log_f_null, None


def backward_messages(
    kernel: Kernel, s: Scaled, exists: Bool[Tensor, "B S"]
) -> tuple[Float[Tensor, "B S T"], Float[Tensor, "B S T"]]:
    """p(y_>j | z_j = i) up to a factor per step, and the posterior chance of NULL from each origin."""
    after, null = torch.ones_like(s.wanted), torch.zeros_like(s.wanted)
    for j in reversed(range(s.wanted.shape[1])):
        seen = s.wanted[:, j] * s.likelihood[:, j] * after[:, j]
        if j == 0:
            seen = s.likelihood[:, 0] * after[:, 0]
        else:
            seen = safe_ratio(kernel.pull(seen, j), kernel.pull(s.wanted[:, j], j))
        unseen = s.null[:, j] * s.null_likelihood[:, j] * after[:, j]
        whole = s.real[:, j] * seen + unseen
        null[:, j] = safe_ratio(unseen, whole)
        if j > 0:
            whole = whole / whole.amax(-1, keepdim=True).clamp_min(tiny(whole))
            after[:, j - 1] = torch.where(exists[:, j, None], whole, after[:, j])
    return after, null
