"""Sums in log space that stay finite when members are absent, forward and backward; top-k of long rows."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentalign.core.devices import prefers_static_shapes, widest_float

NEG_INF = float("-inf")


def at_least_float32(value: Tensor) -> Tensor:
    """The value in its own precision, or in float32 if that is a 16-bit one."""
    return value.float() if value.dtype in (torch.bfloat16, torch.float16) else value


def in_float64(value: Tensor) -> Tensor:
    """The value in float64 if the device supports it."""
    return value.double() if widest_float(value.device) == torch.float64 else value


def flat_rows(value: Float[Tensor, "*batch D"]) -> Float[Tensor, "n D"]:
    """All leading dimensions flattened into one (of size 1 if there are none)."""
    return value.reshape(value.shape[:-1].numel(), value.shape[-1])


def log_sum_exp(value: Float[Tensor, "*batch K"]) -> Float[Tensor, "*batch"]:
    """log sum_k exp(v_k); a row of nothing but -inf gives -inf with zero gradient, never NaN."""
    peak = value.detach().amax(-1, keepdim=True)
    peak = peak.masked_fill(peak == NEG_INF, 0.0)
    total = (value - peak).exp().sum(-1)
    empty = total == 0
    return total.masked_fill(empty, 1.0).log().masked_fill(empty, NEG_INF) + peak.squeeze(-1)


def draw_members(weights: Float[Tensor, "*batch T"], n: int) -> Int[Tensor, "*batch n"]:
    """n independent draws of a member in proportion to its weight; every row has a positive one.

    The first of independent exponential clocks to ring, each as fast as its weight. `torch.multinomial` reads the
    weights to check them, for which a GPU would have to finish its work.
    """
    if not prefers_static_shapes(weights.device):
        flat = weights.reshape(-1, weights.shape[-1])
        return torch.multinomial(flat, n, replacement=True).view(*weights.shape[:-1], n)
    shape = (*weights.shape[:-1], n, weights.shape[-1])
    clocks = torch.empty(shape, dtype=weights.dtype, device=weights.device).exponential_()
    return (weights.unsqueeze(-2) / clocks.clamp_min_(torch.finfo(weights.dtype).tiny)).argmax(-1)


def masked_log_softmax(
    scores: Float[Tensor, "*batch T"], exists: Bool[Tensor, "*batch T"]
) -> Float[Tensor, "*batch T"]:
    """Log of the softmax over the members that exist; -inf, without gradient, elsewhere."""
    # log_sum_exp subtracts the row maximum of the existing members, so masked values never enter a sum.
    finite = scores.masked_fill(~exists, NEG_INF)
    normalizer = log_sum_exp(finite).unsqueeze(-1)
    normalizer = normalizer.masked_fill(normalizer == NEG_INF, 0.0)
    return (finite - normalizer).masked_fill(~exists, NEG_INF)


BLOCK = 64
"""Columns per block in `top_values`."""


def top_values(values: Float[Tensor, "n V"], k: int) -> tuple[Float[Tensor, "n k"], Int[Tensor, "n k"]]:
    """`topk`; long rows are searched only in the k blocks of columns with the largest maxima."""
    blocks = values.shape[1] // BLOCK
    if blocks <= 2 * k:
        value, column = values.topk(k)
        return value, column
    whole, inside = blocks * BLOCK, torch.arange(BLOCK, device=values.device)
    highest = values[:, :whole].unflatten(1, (blocks, BLOCK)).amax(-1).topk(k, sorted=False).indices
    columns = (highest.unsqueeze(-1) * BLOCK + inside).flatten(1)
    rest = torch.arange(whole, values.shape[1], device=values.device).expand(len(values), -1)
    columns = torch.cat([columns, rest], dim=1)
    value, at = values.gather(1, columns).topk(k)
    return value, columns.gather(1, at)
