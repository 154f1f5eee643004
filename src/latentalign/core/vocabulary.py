"""log softmax(h W' + b)[y] for many rows without keeping their logits.

Both functions work through the rows in chunks of at most `max_logits` logits, which are turned in
place into probabilities and then into gradients: one buffer is all that ever exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentalign.core.numerics import at_least_float32

CACHE_LINE = 64
PAGE = 4096


def aligned(rows: int, like: Tensor, outputs: int) -> Float[Tensor, "rows outputs"]:
    """Uninitialised memory whose rows begin at cache lines, and not all at the same place of a page.

    Matrix products into and out of rows that do not are a third slower on a CPU.
    """
    line = CACHE_LINE // like.element_size()
    width = -(-outputs // line) * line
    if width * like.element_size() % PAGE == 0:
        width += line
    return like.new_empty(rows, width)[:, :outputs]


def room_for(rows: int, hidden: Tensor, weight: Tensor) -> Tensor | None:
    """Memory for the logits of one chunk after the other, asked for once; None where it would not be used."""
    if hidden.device.type != "cpu" or hidden.dtype != weight.dtype or hidden.element_size() < 4:
        return None
    return aligned(rows, hidden, len(weight))


def logits_of(
    hidden: Float[Tensor, "n H"],
    weight: Float[Tensor, "V H"],
    bias: Float[Tensor, "V"] | None,
    room: Float[Tensor, "m V"] | None = None,
) -> Float[Tensor, "n V"]:
    """h W' + b in the precision of h, then in float32 at least; in the first rows of `room` where there is one."""
    if room is None:
        product = at_least_float32(hidden @ weight.to(hidden.dtype).t())
    else:
        product = torch.mm(hidden, weight.t(), out=room[: len(hidden)])
    return product if bias is None else product.add_(bias)


def softmax_(logits: Float[Tensor, "n V"], target: Int[Tensor, "n"]) -> Float[Tensor, "n"]:
    """log p(target), leaving the probabilities in the place of the logits."""
    rows = torch.arange(len(target), device=target.device)
    peak = logits.amax(1, keepdim=True)
    chosen = logits[rows, target] - peak.squeeze(1)
    total = logits.sub_(peak).exp_().sum(1, keepdim=True)
    logits.div_(total)
    return chosen - total.squeeze(1).log()


def target_only(logits: Float[Tensor, "n V"], target: Int[Tensor, "n"]) -> Float[Tensor, "n"]:
    """log p(target), the logits used up."""
    rows = torch.arange(len(target), device=target.device)
    peak = logits.amax(1, keepdim=True)
    chosen = logits[rows, target] - peak.squeeze(1)
    return chosen - logits.sub_(peak).exp_().sum(1).log()


class Gradients:
    """Sums of d log p(target) / d(hidden, weight, bias) over chunks, each row with its own factor."""

    def __init__(self, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        self.hidden = torch.empty_like(hidden)
        self.weight = torch.zeros_like(at_least_float32(weight))
        self.bias = None if bias is None else torch.zeros_like(at_least_float32(bias))

    def add(
        self,
        rows: slice,
        probabilities: Tensor,
        target: Tensor,
        factor: Tensor,
        hidden: Tensor,
        weight: Tensor,
    ) -> None:
        """Consume a chunk's probabilities: d = factor * (onehot(target) - p)."""
        d = probabilities.mul_(-factor.unsqueeze(1))
        d[torch.arange(len(target), device=target.device), target] += factor
        if self.bias is not None:
            self.bias += d.sum(0)
        d = d.to(hidden.dtype)
        torch.mm(d, weight.to(hidden.dtype), out=self.hidden[rows])
        if self.weight.dtype == hidden.dtype:
            self.weight.addmm_(d.t(), hidden[rows])
        else:
            self.weight += d.t() @ hidden[rows]


def chunks(n: int, size: int) -> Iterator[slice]:
    """Consecutive slices of at most `size` of n rows."""
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def largest(starts: list[int]) -> int:
    """The longest piece between two borders."""
    return max((stop - start for start, stop in pairwise(starts)), default=0)


def no_autocast(hidden: Tensor) -> torch.autocast:
    """What precision is used is settled by what comes in, the same forward and backward."""
    return torch.autocast(hidden.device.type, enabled=False)


def refuse_second_derivatives() -> None:
    """Raise in a backward pass of create_graph=True, whose result would look constant to a second one."""
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise RuntimeError(
            "fused emission has no second derivatives (create_graph=True); use the head's own logits, "
            "for p(y | x, x~, z) as a function of z latentalign.dense_probability"
        )


class LinearLogProb(torch.autograd.Function):
    """log softmax(h W' + b)[y] per row; the backward pass forms each chunk's logits again."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, max_logits: int
    ) -> Tensor:
        ctx.save_for_backward(hidden, weight, bias, target)
        ctx.rows = max(1, max_logits // weight.shape[0])
        room = room_for(min(ctx.rows, len(target)), hidden, weight)
        out = [
            target_only(logits_of(hidden[rows], weight, bias, room), target[rows])
            for rows in chunks(len(target), ctx.rows)
        ]
        return torch.cat(out) if out else at_least_float32(hidden.new_zeros(0))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        hidden, weight, bias, target = ctx.saved_tensors
        sums = Gradients(hidden, weight, bias)
        room = room_for(min(ctx.rows, len(target)), hidden, weight)
        for rows in chunks(len(target), ctx.rows):
            logits = logits_of(hidden[rows], weight, bias, room)
            softmax_(logits, target[rows])
            sums.add(rows, logits, target[rows], grad[rows].to(logits.dtype), hidden, weight)
            del logits  # before the next chunk's exist
        return sums.hidden, sums.weight, sums.bias, None, None


class FusedAverage(torch.autograd.Function):
    """log E[p(y|z)] or E[log p(y|z)] per query, with the gradients formed while the logits are alive.

    The weight of each alignment in the average is a cheap function of its own query's log-likelihoods,
    so when a chunk holds whole queries their gradients can be formed at once: 6*H*V operations a pair
    instead of the 8 of recomputation. The gradients assume that every query counts alike in the loss,
    as in a sum; should the backward pass find otherwise, the head's share is formed again.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        log_weight: Tensor,
        target: Tensor,
        owner: Tensor,
        differentiate: bool,
        starts: list[int],
        marginal: bool,
    ) -> Tensor:
        """Rows are sorted by query: `owner` is each row's query; `starts` cuts them at query borders."""
        queries = int(owner[-1]) + 1 if len(owner) else 0
        differentiate = differentiate and any(ctx.needs_input_grad[:4])
        sums = Gradients(hidden, weight, bias) if differentiate else None
        room = room_for(largest(starts), hidden, weight)
        value = log_weight.new_zeros(queries)
        factor, slope = torch.empty_like(log_weight), torch.empty_like(log_weight)
        for start, stop in pairwise(starts):
            rows = slice(start, stop)
            logits = logits_of(hidden[rows], weight, bias, room)
            log_p = (softmax_ if sums else target_only)(logits, target[rows]).to(log_weight.dtype)
            first, last = int(owner[start]), int(owner[stop - 1]) + 1
            local = owner[rows] - first
            average = log_average if marginal else mean_average
            value[first:last], factor[rows], slope[rows] = average(
                log_weight[rows], log_p, local, last - first
            )
            if sums:
                sums.add(rows, logits, target[rows], factor[rows].to(logits.dtype), hidden, weight)
            del logits  # before the next chunk's exist
        if sums:
            ctx.save_for_backward(
                hidden, weight, bias, target, owner, factor, slope, sums.hidden, sums.weight, sums.bias
            )
            ctx.starts = starts
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        hidden, weight, bias, target, owner, factor, slope, d_hidden, d_weight, d_bias = ctx.saved_tensors
        each = grad[owner]
        d_hidden = d_hidden * each.unsqueeze(1).to(d_hidden.dtype)
        d_log_weight = slope * each
        if len(grad) and bool((grad == grad[0]).all()):
            scale = grad[0].to(d_weight.dtype)
            d_weight = d_weight * scale
            d_bias = None if d_bias is None else d_bias * scale
        else:
            again = Gradients(hidden, weight, bias)
            room = room_for(largest(ctx.starts), hidden, weight)
            for start, stop in pairwise(ctx.starts):
                rows = slice(start, stop)
                logits = logits_of(hidden[rows], weight, bias, room)
                softmax_(logits, target[rows])
                again.add(rows, logits, target[rows], (factor * each)[rows].to(logits.dtype), hidden, weight)
                del logits
            d_weight, d_bias = again.weight, again.bias
        return d_hidden, d_weight, d_bias, d_log_weight, None, None, None, None, None


Average = tuple[Tensor, Tensor, Tensor]
"""Per query the value; per row its derivative by the log-likelihood and by the log-weight."""


def log_average(log_weight: Tensor, log_p: Tensor, owner: Tensor, queries: int) -> Average:
    """log sum_k w_k p_k; both derivatives are the posterior of the alignment."""
    joint = log_weight + log_p
    peak = joint.new_full((queries,), float("-inf")).scatter_reduce(0, owner, joint, "amax")
    peak = peak.masked_fill(peak == float("-inf"), 0.0)
    total = joint.new_zeros(queries).index_add(0, owner, (joint - peak[owner]).exp())
    value = total.log() + peak
    posterior = (joint - value[owner]).exp().nan_to_num(0.0)
    return value, posterior, posterior


def mean_average(log_weight: Tensor, log_p: Tensor, owner: Tensor, queries: int) -> Average:
    """sum_k w_k log p_k."""
    weight = log_weight.exp()
    each = (weight * log_p).masked_fill(weight == 0, 0.0)
    return log_p.new_zeros(queries).index_add(0, owner, each), weight, each


MIXTURE_ROWS = 256
"""Rows of a chunk when averaging over members: the product that sums them grows with the queries of a chunk."""


@torch.no_grad()
def add_mixture(
    out: Float[Tensor, "Q V"],
    hidden: Float[Tensor, "N H"],
    weight: Float[Tensor, "V H"],
    bias: Float[Tensor, "V"] | None,
    *,
    log_weight: Float[Tensor, "N"],
    owner: Int[Tensor, "N"],
    max_logits: int,
) -> None:
    """Add sum_k w_k softmax(h_k W' + b) of each owner, ascending in 0..Q-1, to its row of `out`; no gradient.

    Each chunk's weighted sum over its rows is one matrix product with the weights, which also divides by the
    softmax's sums: the logits are passed over three times and no more.
    """
    size = max(1, min(MIXTURE_ROWS, max_logits // weight.shape[0]))
    room = room_for(min(size, len(owner)), hidden, weight)
    for rows in chunks(len(owner), size):
        logits = logits_of(hidden[rows], weight, bias, room)
        total = logits.sub_(logits.amax(1, keepdim=True)).exp_().sum(1)
        first, last = int(owner[rows][0]), int(owner[rows][-1]) + 1
        share = torch.zeros(last - first, len(total), dtype=out.dtype, device=out.device)
        place = torch.arange(len(total), device=out.device)
        share[owner[rows] - first, place] = log_weight[rows].exp().to(out.dtype) / total
        out[first:last].addmm_(share, logits)
        del logits  # before the next chunk's exist


@torch.no_grad()
def single_log_prob(
    out: Float[Tensor, "N V"],
    hidden: Float[Tensor, "N H"],
    weight: Float[Tensor, "V H"],
    bias: Float[Tensor, "V"] | None,
    *,
    log_weight: Float[Tensor, "N"],
) -> None:
    """log w + log softmax(h W' + b) of every row into `out`; no gradient."""
    for rows in chunks(len(hidden), MIXTURE_ROWS):
        room = out[rows] if room_for(0, hidden, weight) is not None else None
        logits = logits_of(hidden[rows], weight, bias, room)
        logits -= (logits.logsumexp(1) - log_weight[rows].to(logits.dtype)).unsqueeze(1)
        if room is None:
            out[rows] = logits


def linear_log_prob(
    hidden: Float[Tensor, "N H"],
    weight: Float[Tensor, "V H"],
    bias: Float[Tensor, "V"] | None,
    target: Int[Tensor, "N"],
    *,
    max_logits: int,
) -> Float[Tensor, "N"]:
    """log softmax(h W' + b)[y] of every row, at most `max_logits` logits alive at once."""
    with no_autocast(hidden):
        log_p: Tensor = LinearLogProb.apply(hidden, weight, bias, target, max_logits)  # type: ignore[no-untyped-call]
    return log_p


def fused_average(
    hidden: Float[Tensor, "N H"],
    weight: Float[Tensor, "V H"],
    bias: Float[Tensor, "V"] | None,
    target: Int[Tensor, "N"],
    *,
    log_weight: Float[Tensor, "N"],
    owner: Int[Tensor, "N"],
    starts: list[int],
    marginal: bool,
) -> Float[Tensor, "Q"]:
    """log sum_k w_k p_k (`marginal`) or sum_k w_k log p_k per owner, in one pass over the logits."""
    log_weight = log_weight.to(torch.promote_types(log_weight.dtype, at_least_float32(hidden[:0]).dtype))
    differentiate = torch.is_grad_enabled()  # inside a Function it never is
    with no_autocast(hidden):
        value: Tensor = FusedAverage.apply(  # type: ignore[no-untyped-call]
            hidden, weight, bias, log_weight, target, owner, differentiate, starts, marginal
        )
    return value
