"""log p(y | x, x~) of every output y, averaged over alignments in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from latentalign.core.alignments import Alignments
from latentalign.core.heads import Emit, FactoredHead
from latentalign.core.kernels.fused_softmax import aligned, chunks, meta_log_probs
from latentalign.core.kernels.likelihood import MAX_LOGITS, count_outputs
from latentalign.core.kernels.mixture import add_mixture, single_log_prob
from latentalign.core.kernels.pairs import HiddenParts, Pairs, context_rows, is_factored
from latentalign.core.numerics import NEG_INF, at_least_float32, flat_rows, log_sum_exp

LOG_SPACE_BUFFERS = 6
"""Tensors of the size of the logits that an average in log space and its backward pass hold at once."""


def predictive_log_prob(
    emit: Emit,
    query: Float[Tensor, "*batch Dq"],
    memory: Float[Tensor, "*sources T D"],
    alignments: Alignments,
    *,
    source: Int[Tensor, "*batch"] | None = None,
    max_logits: int = MAX_LOGITS,
) -> Float[Tensor, "*batch V"]:
    """log p(y | x, x~) = log E[f(x, z)_y] of every output y; zeros for queries without members.

    Memory broadcasts over the queries, or query i reads memory[source[i]]. Apart from the result, at most
    `max_logits` numbers are in memory at once, and V for each query that they belong to (with gradient, a few rows
    of V per chunk). A device that prefers static shapes computes whole queries: at least K V numbers.
    """
    pairs = Pairs.of(query, alignments)
    if not is_factored(emit):
        queries = pairs.query_rows(query).index_select(0, pairs.owner)
        rows = queries, context_rows(alignments, memory, pairs, source)
        outputs = count_outputs(emit, flat_rows(query)[:1], memory.flatten(0, -2)[:1])
        return average_in_log_space(
            emit, rows, alignments, pairs=pairs, outputs=outputs, max_logits=max_logits
        )
    parts = HiddenParts.of(emit, query, memory, alignments, pairs=pairs, source=source)
    if parts.from_memory.is_meta:
        log_p = meta_log_probs(parts.rows(), emit.output.weight, emit.output.bias)
        return log_p.view(*alignments.log_weight.shape, -1).logsumexp(-2)
    sizes = {"outputs": emit.output.out_features, "max_logits": max_logits}
    pieces = parts.pieces()
    hidden = parts.rows() if len(pieces) == 1 else None
    if not torch.is_grad_enabled() and len(pairs.slot) and pairs.exists is None:
        each = ((rows, parts.rows(rows) if hidden is None else hidden) for rows in pieces)
        found = average_probabilities(emit, each, alignments, pairs=pairs, max_logits=max_logits)
        if found is not None:
            return found
    if hidden is not None:
        return average_in_log_space(emit.output, (hidden,), alignments, pairs=pairs, **sizes)
    every_row = torch.arange(len(pairs.slot), device=pairs.slot.device)
    return average_in_log_space(
        lambda rows: emit.output(parts.rows(rows)), (every_row,), alignments, pairs=pairs, **sizes
    )


def average_in_log_space(
    logits: Callable[..., Tensor],
    inputs: tuple[Tensor, ...],
    alignments: Alignments,
    *,
    pairs: Pairs,
    outputs: int,
    max_logits: int,
) -> Float[Tensor, "*batch V"]:
    """log E[softmax(logits(*inputs))] per query, with gradient, for one row of inputs per pair."""
    batch = alignments.log_weight.shape[:-1]
    log_weight = pairs.log_weights(alignments)
    if pairs.exists is not None and len(log_weight):
        size = max(1, max_logits // (LOG_SPACE_BUFFERS * outputs * pairs.width))
        found = average_whole_queries(logits, inputs, log_weight.view(-1, pairs.width), size=size)
        return found.masked_fill(~pairs.has_pair().unsqueeze(-1), 0.0).view(*batch, outputs)

    def average(log_weight: Tensor, owner: Tensor, before: Tensor | None, *rows: Tensor) -> Tensor:
        log_p = at_least_float32(logits(*rows)).log_softmax(-1) + log_weight.unsqueeze(-1)
        here = segment_log_sum_exp(log_p, owner)
        if before is None:
            return here
        first = segment_log_sum_exp(torch.cat([before, here[:1]]), owner.new_zeros(2))
        return torch.cat([first, here[1:]])

    parts: list[Tensor] = []
    owners: list[int] = []
    for rows in chunks(len(pairs.slot), max(1, max_logits // (LOG_SPACE_BUFFERS * outputs))):
        owner, local = pairs.query[rows].unique_consecutive(return_inverse=True)
        chunk = tuple(x[rows] for x in inputs)
        # If the border of a chunk cuts a query, join both sums in log space.
        cut = owners[-1:] == owner[:1].tolist()
        before, owners = (parts.pop(), owners[:-1]) if cut else (None, owners)
        part = checkpoint(average, log_weight[rows], local, before, *chunk, use_reentrant=False)
        parts += part.split(1)
        owners += owner.tolist()
    if not parts:
        return inputs[0].new_zeros(*batch, outputs)
    found = torch.cat(parts)
    return scatter_rows(found, torch.tensor(owners, device=found.device), batch)


def average_whole_queries(
    logits: Callable[..., Tensor],
    inputs: tuple[Tensor, ...],
    log_weight: Float[Tensor, "Q K"],
    *,
    size: int,
) -> Float[Tensor, "Q V"]:
    """The same for queries that all have K rows, `size` queries at a time: no size depends on values."""
    width = log_weight.shape[1]

    def average(log_weight: Tensor, *rows: Tensor) -> Tensor:
        log_p = at_least_float32(logits(*rows)).log_softmax(-1).unflatten(0, log_weight.shape)
        return log_sum_exp((log_p + log_weight.unsqueeze(-1)).transpose(1, 2))

    parts = [
        checkpoint(
            average,
            log_weight[queries],
            *(x[queries.start * width : queries.stop * width] for x in inputs),
            use_reentrant=False,
        )
        for queries in chunks(len(log_weight), size)
    ]
    return torch.cat(parts)


def average_probabilities(
    head: FactoredHead,
    pieces: Iterable[tuple[slice, Tensor]],
    alignments: Alignments,
    *,
    pairs: Pairs,
    max_logits: int,
) -> Float[Tensor, "*batch V"] | None:
    """The same in probability space, without gradient, for decoding; None if that would underflow.

    `pieces` are consecutive rows of pairs with their hidden layer.
    """
    batch = alignments.log_weight.shape[:-1]
    used, owner = pairs.used, pairs.owner
    log_weight = alignments.log_weight.flatten()[pairs.slot]
    weight, bias = head.output.weight, head.output.bias
    single = len(used) == len(owner)  # one alignment per query: nothing to sum
    found: Tensor | None = None
    for rows, hidden in pieces:
        if found is None:
            found = aligned(len(used), at_least_float32(hidden[:0]), head.output.out_features)
            found = found if single else found.zero_()
        if single:
            single_log_prob(found[rows], hidden, weight, bias, log_weight=log_weight[rows])
        else:
            mixture = {"log_weight": log_weight[rows], "owner": owner[rows]}
            add_mixture(found, hidden, weight, bias, max_logits=max_logits, **mixture)
    assert found is not None
    if single:
        return scatter_rows(found, used, batch)
    return None if found.log_().amin() == NEG_INF else scatter_rows(found, used, batch)


def scatter_rows(
    found: Float[Tensor, "m V"], rows: Int[Tensor, "m"], batch: torch.Size
) -> Float[Tensor, "*batch V"]:
    """Rows of some queries, ascending, at their places in *batch; zeros elsewhere."""
    if len(rows) == batch.numel():
        return found.view(*batch, -1)
    out = torch.zeros(batch.numel(), found.shape[1], dtype=found.dtype, device=found.device)
    return out.index_copy(0, rows, found).view(*batch, -1)


def segment_log_sum_exp(value: Float[Tensor, "n V"], owner: Int[Tensor, "n"]) -> Float[Tensor, "m V"]:
    """log sum exp over the rows of each owner 0..m-1."""
    segments = int(owner[-1]) + 1
    index = owner.unsqueeze(1).expand_as(value)
    peak = value.detach().new_full((segments, value.shape[1]), NEG_INF)
    peak = peak.scatter_reduce(0, index, value.detach(), "amax")
    peak = peak.masked_fill(peak == NEG_INF, 0.0)
    total = value.new_zeros(segments, value.shape[1]).index_add(0, owner, (value - peak[owner]).exp())
    banned = total == 0  # an output of probability zero: -inf, without gradient
    return total.masked_fill(banned, 1.0).log().masked_fill(banned, NEG_INF) + peak
