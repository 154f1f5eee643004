"""log p(y | x, x~, z) of the observed output for many z, in bounded memory."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from latentalign.core.alignments import Alignments
from latentalign.core.checks import check_targets
from latentalign.core.heads import Emit
from latentalign.core.kernels.fused_softmax import chunks, linear_log_prob
from latentalign.core.kernels.pairs import HiddenParts, Pairs, context_rows, is_factored
from latentalign.core.numerics import at_least_float32

MAX_LOGITS = 2**22
"""Default for the number of logits in memory at once."""


def target_log_prob(
    emit: Emit,
    query: Float[Tensor, "*batch Dq"],
    memory: Float[Tensor, "*#batch T D"],
    target: Int[Tensor, "*batch"],
    alignments: Alignments,
    *,
    query_exists: Bool[Tensor, "*batch"] | None = None,
    max_logits: int = MAX_LOGITS,
) -> Float[Tensor, "*batch K"]:
    """log p(y | x, x~, z_k); 0 for absent alignments and masked queries."""
    pairs = Pairs.of(query, alignments, target=target, query_exists=query_exists)
    row_target = pairs.targets(target)
    if is_factored(emit):
        check_targets(row_target, emit.output.out_features)
        parts = HiddenParts.of(emit, query, memory, alignments, pairs=pairs)
        log_p = factored_log_prob(parts, row_target, max_logits=max_logits)
    else:
        contexts = context_rows(alignments, memory, pairs)
        queries = pairs.query_rows(query).index_select(0, pairs.owner)
        log_p = emit_rows(emit, queries, contexts, row_target, max_logits=max_logits)
    return pairs.spread_pairs(log_p, alignments.log_weight.shape)


def factored_log_prob(parts: HiddenParts, target: Int[Tensor, "N"], *, max_logits: int) -> Float[Tensor, "N"]:
    """log p(target) of every row of a factored head; several pieces are recomputed in the backward pass."""
    output = parts.head.output

    def evaluate(rows: slice) -> Tensor:
        hidden = parts.rows(rows)
        return linear_log_prob(hidden, output.weight, output.bias, target[rows], max_logits=max_logits)

    pieces = parts.pieces()
    if len(pieces) == 1:
        return evaluate(pieces[0])
    return torch.cat([checkpoint(evaluate, rows, use_reentrant=False) for rows in pieces])


def emit_rows(
    emit: Emit, query: Tensor, context: Tensor, target: Tensor, *, max_logits: int
) -> Float[Tensor, "N"]:
    """log p(target) of every row under any head, chunk by chunk; the backward pass recomputes each chunk."""

    def chosen(query: Tensor, context: Tensor, target: Tensor) -> Tensor:
        logits = emit(query, context)
        check_targets(target, logits.shape[-1])
        return at_least_float32(logits).log_softmax(-1).gather(1, target.unsqueeze(1)).squeeze(1)

    if len(target) == 0:
        return query.sum() * 0 + query.new_zeros(0)
    # The backward pass holds three buffers of the size of the logits: log p, its gradient and the logits' gradient.
    size = max(1, max_logits // (3 * count_outputs(emit, query[:1], context[:1])))
    parts = [
        checkpoint(chosen, query[rows], context[rows], target[rows], use_reentrant=False)
        for rows in chunks(len(target), size)
    ]
    return torch.cat(parts)


def count_outputs(emit: Emit, query: Tensor, context: Tensor) -> int:
    """V, without changing the random state."""
    with torch.no_grad(), torch.random.fork_rng(devices=[query.device] if query.is_cuda else []):
        return emit(query, context).shape[-1]
