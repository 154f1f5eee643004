"""Mixtures of softmax distributions over all outputs, without gradient: what decoding computes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from latentalign.core.devices import prefers_static_shapes
from latentalign.core.kernels.fused_softmax import Outputs, aligned, chunks, logits_of


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

    The rows of an owner in a chunk form one bag of embeddings. The weights of the bag include the softmax's divisors.
    """
    size = max(1, max_logits // weight.shape[0])
    outputs = Outputs(weight, bias, like=hidden, rows=min(size, len(owner)))
    for rows in chunks(len(owner), size):
        e, total, _ = outputs.exponentials(hidden[rows], None)
        share = log_weight[rows].exp().to(e.dtype) / total
        used, counts = owner[rows].unique_consecutive(return_counts=True)
        mixed = weighted_sums(e, share, counts).to(out.dtype)
        mixed = mixed if outputs.boost is None else mixed.mul_(outputs.boost)
        if int(used[-1]) - int(used[0]) + 1 == len(used):  # the owners are consecutive
            out[int(used[0]) : int(used[-1]) + 1] += mixed
        else:
            out.index_add_(0, used, mixed)
        del e, mixed  # free them before the next chunk


def weighted_sums(
    rows: Float[Tensor, "n V"], weight: Float[Tensor, "n"], counts: Int[Tensor, "q"]
) -> Float[Tensor, "q V"]:
    """Sums of consecutive groups of weighted rows, `counts` rows each; rows are contiguous or from `aligned`."""
    n, width = len(rows), rows.stride(0)
    # Together with their padding, aligned rows are contiguous too, so nothing is copied.
    whole = rows.as_strided((n, width), (width, 1)) if width > rows.shape[1] else rows
    index, offsets = torch.arange(n, device=rows.device), counts.cumsum(0) - counts
    sums = F.embedding_bag(index, whole, offsets, mode="sum", per_sample_weights=weight)
    return sums[:, : rows.shape[1]]


SINGLE_ROWS = 256
"""Rows per chunk of `single_log_prob`: few enough for their exponentials to stay in the cache."""


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
    if prefers_static_shapes(hidden.device):
        torch.add(logits_of(hidden, weight, None, bias).log_softmax(1), log_weight.unsqueeze(1), out=out)
        return
    outputs, size = Outputs(weight, bias, like=hidden, rows=0), min(SINGLE_ROWS, len(hidden))
    e = aligned(size, out, len(weight))
    room = None if outputs.room is None else out
    for rows in chunks(len(hidden), SINGLE_ROWS):
        logits = logits_of(hidden[rows], weight, None if room is None else room[rows], outputs.added)
        total, safe = outputs.totals(torch.exp(logits, out=e[: len(logits)]))
        if outputs.boost is not None and outputs.bias is not None:
            logits += outputs.bias
        normaliser = total.log() if safe else logits.logsumexp(1)
        shift = (normaliser - log_weight[rows].to(logits.dtype)).unsqueeze(1)
        torch.sub(logits, shift, out=out[rows])  # the logits may be in its memory already
