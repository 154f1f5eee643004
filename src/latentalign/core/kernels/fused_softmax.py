"""log softmax(h W' + b)[y] for many rows without storing their logits.

Rows are processed in chunks of at most `max_logits` logits. Each chunk is turned into probabilities and then into
gradients in place, in one buffer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentalign.core.devices import prefers_static_shapes
from latentalign.core.kernels.borders import Borders
from latentalign.core.numerics import NEG_INF, at_least_float32
from latentalign.core.products import add_product_over_rows, product, suits_onednn

CACHE_LINE = 64
PAGE = 4096


def aligned(rows: int, like: Tensor, outputs: int) -> Float[Tensor, "rows outputs"]:
    """Uninitialised memory whose rows start at cache lines, at different offsets within a page.

    On a CPU, matrix products with other rows are a third slower.
    """
    line = CACHE_LINE // like.element_size()
    width = -(-outputs // line) * line
    if width * like.element_size() % PAGE == 0:
        width += line
    return like.new_empty(rows, width)[:, :outputs]


def logits_of(
    hidden: Float[Tensor, "n H"],
    weight: Float[Tensor, "V H"],
    room: Float[Tensor, "m V"] | None = None,
    bias: Float[Tensor, "V"] | None = None,
) -> Float[Tensor, "n V"]:
    """h W' (+ b) in the precision of h, then in float32 at least; in the first rows of `room` if MKL fills them."""
    if room is None or suits_onednn(hidden, weight.t()):
        logits = at_least_float32(product(hidden, weight.to(hidden.dtype).t()))
    else:
        logits = torch.mm(hidden, weight.t(), out=room[: len(hidden)])
    return logits if bias is None else logits.add_(bias)


def largest_bias(outputs: int, dtype: torch.dtype) -> float:
    """The largest |b| that may be taken out of exp(h W' + b) = e exp(b): log(eps / (V tiny)) / 2.

    A term of the sum e . exp(b) is lost if its e is below `tiny`, the smallest normal number. V lost terms hold at
    most V tiny exp(|b|). If the largest logit without bias is shifted to 0, its own term is at least exp(-|b|), and so
    is the sum. The lost share V tiny exp(2 |b|) must not exceed a rounding error, eps. For 10,000 outputs, this allows
    31 nats in float32 and 331 in float64, but none in float16.
    """
    info = torch.finfo(dtype)
    return math.log(info.eps / info.tiny / max(1, outputs)) / 2


def safe_sums(outputs: int, bias: float, dtype: torch.dtype) -> tuple[float, float]:
    """Limits between which a sum e . exp(b) with |b| <= `bias` needs no shift.

    Below V tiny exp(|b|) / eps, lost terms would count; see `largest_bias`. The upper limit keeps sum / exp(b), which
    the gradient needs, representable after a product with weights of up to exp(20).
    """
    info = torch.finfo(dtype)
    return outputs * info.tiny * math.exp(bias) / info.eps, info.max * math.exp(-bias - 20)


class Outputs:
    """The output layer, computed as softmax(h W' + b) = e * boost / (e . boost) with e = exp(h W'), boost = exp(b).

    With exp(b) outside the exponent, and no shift unless it is needed, the logits are read or written only four times
    between the product that makes them and the products that use them. `rows` is the largest number of rows of a
    chunk: the logits of all chunks share one buffer, `room`, if the hidden layer `like` allows that.

    exp(b) is outside only if |b| <= `largest_bias` after subtracting the mean, and e is shifted unless its sums are
    within `sums`. Then no probability is above 1, except for rounding. A larger bias is added to the logits.

    To find out whether a shift is needed, values are read. On a device that prefers static shapes, the bias is always
    added and every row is shifted.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, *, like: Tensor, rows: int) -> None:
        in_place = like.device.type == "cpu" and like.dtype == weight.dtype and like.element_size() >= 4
        in_place = in_place and not suits_onednn(like[:rows], weight.t())  # it chooses its own memory
        self.room = aligned(rows, like, len(weight)) if in_place else None
        self.weight, self.bias, self.boost = weight, bias, None
        size, exponentials = 0.0, at_least_float32(like[:0]).dtype
        self.always_shift = prefers_static_shapes(like.device)
        if bias is not None and bias.numel() and not self.always_shift:
            wide = bias.to(torch.promote_types(bias.dtype, torch.float32))
            centred = wide - wide.mean()
            found = float(centred.abs().max())
            if found <= min(largest_bias(len(weight), dtype) for dtype in (like.dtype, exponentials)):
                self.bias, self.boost, size = centred, centred.exp(), found
        self.added = self.bias if self.boost is None else None
        self.sums = safe_sums(len(weight), size, exponentials)

    def exponentials(
        self, hidden: Float[Tensor, "n H"], target: Int[Tensor, "n"] | None
    ) -> tuple[Float[Tensor, "n V"], Float[Tensor, "n"], Float[Tensor, "n"] | None]:
        """e of every row up to a factor, its sum with the boost, and log p(target)."""
        logits, shift = logits_of(hidden, self.weight, self.room, self.added), None
        place = None if target is None else (torch.arange(len(target), device=target.device), target)
        own = None if place is None else logits[place]
        total, safe = (logits, False) if self.always_shift else self.totals(logits.exp_())
        if not safe:
            if not self.always_shift:
                logits = logits_of(hidden, self.weight, self.room, self.added)
            shift = logits.amax(1, keepdim=True)
            total = self.sum(logits.sub_(shift).exp_())
        if own is None or target is None:
            return logits, total, None
        own = own if shift is None else own - shift.squeeze(1)
        own = own if self.boost is None or self.bias is None else own + self.bias[target]
        return logits, total, own - total.log()

    def sum(self, e: Float[Tensor, "n V"]) -> Float[Tensor, "n"]:
        """Sums of exponentials with the boost."""
        return e.sum(1) if self.boost is None else e @ self.boost

    def totals(self, e: Float[Tensor, "n V"]) -> tuple[Float[Tensor, "n"], bool]:
        """Sums of exponentials with the boost, and whether none is close to overflow or underflow."""
        total = self.sum(e)
        low, high = self.sums
        return total, bool(((total > low) & (total < high)).all())


class Gradients:
    """Sums of d log p(target) / d(hidden, weight, bias) over chunks, each row with its own factor."""

    def __init__(self, hidden: Tensor, outputs: Outputs) -> None:
        self.inputs, self.outputs = hidden, outputs
        boost, weight = outputs.boost, outputs.weight
        self.scaled = (weight if boost is None else weight * boost.unsqueeze(1)).to(hidden.dtype)
        self.hidden = torch.empty_like(hidden)
        wide = torch.promote_types(weight.dtype, torch.float32)
        self.by_output = weight.new_zeros(
            weight.shape[::-1], dtype=wide
        ).t()  # as its products come from oneDNN
        self.by_bias = None if outputs.bias is None else self.by_output.new_zeros(len(outputs.bias))

    def add(self, rows: slice, e: Tensor, total: Tensor, target: Tensor, factor: Tensor) -> None:
        """Add the gradients of a chunk, and overwrite its exponentials.

        factor * (onehot(target) - p) = -factor / total * boost * (e - total / boost * onehot(target)).
        """
        boost = self.outputs.boost
        own = total if boost is None else total / boost[target]
        e[torch.arange(len(target), device=target.device), target] -= own
        scale, hidden = -factor / total, self.inputs[rows]
        if e.dtype != hidden.dtype:  # half precision: the products need numbers of the size of probabilities
            d = e.mul_(scale.unsqueeze(1)).to(hidden.dtype)
            torch.mm(d, self.scaled, out=self.hidden[rows])
            self.by_output += d.t() @ hidden
            if self.by_bias is not None:
                self.by_bias += e.sum(0)
            return
        torch.mul(product(e, self.scaled), scale.unsqueeze(1), out=self.hidden[rows])
        add_product_over_rows(self.by_output, e, hidden * scale.unsqueeze(1))
        if self.by_bias is not None:
            self.by_bias.addmv_(e.t(), scale)

    def all(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """The sums for hidden, weight and bias; call it once."""
        boost = self.outputs.boost
        if boost is not None:
            self.by_output.mul_(boost.unsqueeze(1))
            self.by_bias = None if self.by_bias is None else self.by_bias.mul_(boost)
        return self.hidden, self.by_output, self.by_bias


def chunks(n: int, size: int) -> Iterator[slice]:
    """Consecutive slices of at most `size` of n rows, all of about the same length: a short last one would be slow."""
    size = -(-n // -(-n // size)) if n else size
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def refuse_second_derivatives() -> None:
    """Raise in a backward pass with create_graph=True: a second pass would treat its result as constant."""
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise RuntimeError(
            "fused emission has no second derivatives (create_graph=True); use the head's own logits, "
            "for p(y | x, x~, z) as a function of z latentalign.dense_probability"
        )


class LinearLogProb(torch.autograd.Function):
    """log softmax(h W' + b)[y] per row; the backward pass recomputes the logits of each chunk."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, max_logits: int
    ) -> Tensor:
        ctx.save_for_backward(hidden, weight, bias, target)
        ctx.rows = max(1, max_logits // weight.shape[0])
        outputs = Outputs(weight, bias, like=hidden, rows=min(ctx.rows, len(target)))
        out = at_least_float32(hidden.new_zeros(len(target)))
        for rows in chunks(len(target), ctx.rows):
            log_p = outputs.exponentials(hidden[rows], target[rows])[2]
            assert log_p is not None
            out[rows] = log_p
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        hidden, weight, bias, target = ctx.saved_tensors
        kept = rows_above_rounding(grad)
        if kept is None:
            return *log_prob_gradients(hidden, weight, bias, target, grad, ctx.rows), None, None
        some = hidden[kept], weight, bias, target[kept], grad[kept]
        d_hidden, d_weight, d_bias = log_prob_gradients(*some, ctx.rows)
        return torch.zeros_like(hidden).index_copy_(0, kept, d_hidden), d_weight, d_bias, None, None


def rows_above_rounding(grad: Float[Tensor, "N"]) -> Int[Tensor, "m"] | None:
    """Rows that count for more than the rounding error of the largest one; None if (nearly) all do.

    Where the rows are weighted by a posterior, most of them count for nothing and need not be computed again.
    """
    if torch.compiler.is_compiling() or len(grad) == 0 or prefers_static_shapes(grad.device):
        return None
    size = grad.detach().abs()
    kept = (size > torch.finfo(grad.dtype).eps * size.amax()).nonzero().squeeze(-1)
    return kept if len(kept) < 0.95 * len(grad) else None


def log_prob_gradients(
    hidden: Float[Tensor, "N H"],
    weight: Float[Tensor, "V H"],
    bias: Float[Tensor, "V"] | None,
    target: Int[Tensor, "N"],
    grad: Float[Tensor, "N"],
    chunk: int,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients of sum_n grad_n log softmax(h_n W' + b)[y_n] for hidden, weight and bias."""
    outputs = Outputs(weight, bias, like=hidden, rows=min(chunk, len(target)))
    sums = Gradients(hidden, outputs)
    for rows in chunks(len(target), chunk):
        e, total, _ = outputs.exponentials(hidden[rows], None)
        sums.add(rows, e, total, target[rows], grad[rows].to(e.dtype))
        del e  # free them before the next chunk
    return sums.all()


def is_even(grad: Float[Tensor, "N"]) -> bool:
    """Whether all numbers are equal, as in the gradient of a sum.

    On a device that prefers static shapes, only such a gradient that was never written to memory counts.
    """
    if len(grad) and grad.stride(0) == 0:
        return True
    return len(grad) > 0 and not prefers_static_shapes(grad.device) and bool((grad == grad[0]).all())


class FusedAverage(torch.autograd.Function):
    """log E[p(y|z)] or E[log p(y|z)] per query, with gradients computed while the logits are in memory.

    The weight of each alignment in the average is a cheap function of the log-likelihoods of its own query. So the
    gradients of a chunk of whole queries can be computed at once: 6*H*V operations per pair instead of 8 with
    recomputation. This assumes that all queries have the same weight in the loss, as in a sum. If the backward pass
    finds different weights, the gradients of the output layer are computed again.
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
        borders: Borders,
        marginal: bool,
    ) -> Tensor:
        """Rows are sorted by query: `owner` is each row's query."""
        differentiate = differentiate and any(ctx.needs_input_grad[:4])
        outputs = Outputs(weight, bias, like=hidden, rows=borders.largest)
        sums = Gradients(hidden, outputs) if differentiate else None
        value = log_weight.new_zeros(borders.queries[-1])
        factor, slope = torch.empty_like(log_weight), torch.empty_like(log_weight)
        average = log_average if marginal else mean_average
        for rows, queries in borders.pieces():
            e, sizes, log_p = outputs.exponentials(hidden[rows], target[rows])
            assert log_p is not None
            value[queries], factor[rows], slope[rows] = average(
                log_weight[rows],
                log_p.to(log_weight.dtype),
                owner[rows] - queries.start,
                queries.stop - queries.start,
            )
            if sums:
                sums.add(rows, e, sizes, target[rows], factor[rows].to(e.dtype))
            del e  # free them before the next chunk
        if sums:
            ctx.save_for_backward(hidden, weight, bias, target, owner, factor, slope, *sums.all())
            ctx.borders = borders
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        hidden, weight, bias, target, owner, factor, slope, d_hidden, d_weight, d_bias = ctx.saved_tensors
        each = grad[owner]
        d_hidden = d_hidden * each.unsqueeze(1).to(d_hidden.dtype)
        d_log_weight = slope * each
        if is_even(grad):
            scale = grad[0].to(d_weight.dtype)
            d_weight = d_weight * scale
            d_bias = None if d_bias is None else d_bias * scale
        else:
            outputs = Outputs(weight, bias, like=hidden, rows=ctx.borders.largest)
            again = Gradients(hidden, outputs)
            for rows, _ in ctx.borders.pieces():
                e, total, _ = outputs.exponentials(hidden[rows], None)
                again.add(rows, e, total, target[rows], (factor * each)[rows].to(e.dtype))
                del e
            _, d_weight, d_bias = again.all()
        return d_hidden, d_weight, d_bias, d_log_weight, None, None, None, None, None


Average = tuple[Tensor, Tensor, Tensor]
"""Per query the value; per row its derivative by the log-likelihood and by the log-weight."""


def log_average(log_weight: Tensor, log_p: Tensor, owner: Tensor, queries: int) -> Average:
    """log sum_k w_k p_k; both derivatives are the posterior of the alignment."""
    joint = log_weight + log_p
    peak = joint.new_full((queries,), NEG_INF).scatter_reduce(0, owner, joint, "amax")
    peak = peak.masked_fill(peak == NEG_INF, 0.0)
    each = (joint - peak[owner]).exp()
    total = joint.new_zeros(queries).index_add(0, owner, each)
    posterior = (each / total[owner]).nan_to_num(0.0)
    value = total.log() + peak
    if prefers_static_shapes(value.device):  # a query without members may have rows, all of weight zero
        heaviest = log_weight.new_full((queries,), NEG_INF).scatter_reduce(0, owner, log_weight, "amax")
        value = value.masked_fill(heaviest == NEG_INF, 0.0)
    return value, posterior, posterior


def mean_average(log_weight: Tensor, log_p: Tensor, owner: Tensor, queries: int) -> Average:
    """sum_k w_k log p_k."""
    weight = log_weight.exp()
    each = (weight * log_p).masked_fill(weight == 0, 0.0)
    return log_p.new_zeros(queries).index_add(0, owner, each), weight, each


def meta_log_probs(
    hidden: Float[Tensor, "N H"], weight: Float[Tensor, "V H"], bias: Float[Tensor, "V"] | None
) -> Float[Tensor, "N V"]:
    """log softmax(h W' + b) of meta tensors, which have no values to look at; memory does not matter there."""
    logits = at_least_float32(hidden @ weight.to(hidden.dtype).t())
    return (logits if bias is None else logits + bias).log_softmax(-1)


def linear_log_prob(
    hidden: Float[Tensor, "N H"],
    weight: Float[Tensor, "V H"],
    bias: Float[Tensor, "V"] | None,
    target: Int[Tensor, "N"],
    *,
    max_logits: int,
) -> Float[Tensor, "N"]:
    """log softmax(h W' + b)[y] of every row, at most `max_logits` logits alive at once."""
    if hidden.is_meta:
        return meta_log_probs(hidden, weight, bias).gather(1, target.unsqueeze(1)).squeeze(1)
    # The inputs fix the precision, forward and backward.
    with torch.autocast(hidden.device.type, enabled=False):
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
    borders: Borders,
    marginal: bool,
) -> Float[Tensor, "Q"]:
    """log sum_k w_k p_k (`marginal`) or sum_k w_k log p_k per owner, in one pass over the logits."""
    single_at_least = torch.promote_types(hidden.dtype, torch.float32)
    log_weight = log_weight.to(torch.promote_types(log_weight.dtype, single_at_least))
    differentiate = torch.is_grad_enabled()  # inside a Function it never is
    # The inputs fix the precision, forward and backward.
    with torch.autocast(hidden.device.type, enabled=False):
        value: Tensor = FusedAverage.apply(  # type: ignore[no-untyped-call]
            hidden, weight, bias, log_weight, target, owner, differentiate, borders, marginal
        )
    return value
