"""log p(y | x, x~, z) for many z in bounded memory: the only place that knows that K x V logits are expensive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from latentalign.core.alignments import Alignments, OneHot
from latentalign.core.factored import FactoredHead as FactoredHead
from latentalign.core.factored import is_factored
from latentalign.core.kernels.fused_softmax import (
    add_mixture,
    aligned,
    chunks,
    fused_average,
    linear_log_prob,
    single_log_prob,
)
from latentalign.core.kernels.pieces import piecewise
from latentalign.core.latent import D, Latent
from latentalign.core.numerics import NEG_INF, at_least_float32, flat_rows

MAX_LOGITS = 2**22
MAX_HIDDEN = 2**21
"""Numbers of a hidden layer that are alive at once where queries are averaged piece by piece."""
LOG_SPACE_BUFFERS = 6
"""How many tensors of the logits' size an average in log space and its backward pass hold at once."""

Emit = Callable[[Tensor, Tensor], Tensor]
"""emit(query (n, Dq), context (n, D)) -> logits (n, V)."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """The (query, alignment) pairs that exist: nothing is computed for any other."""

    slot: Int[Tensor, "N"]
    """Where each pair stands in the flattened (*batch, K)."""
    query: Int[Tensor, "N"]
    """Which query it belongs to, in the flattened (*batch), ascending."""

    @classmethod
    def of(cls, alignments: Alignments, query_mask: Bool[Tensor, "*batch"] | None) -> Pairs:
        present = alignments.present
        if query_mask is not None:
            present = present & query_mask.unsqueeze(-1)
        slot = present.flatten().nonzero().squeeze(-1)
        return cls(slot, slot.div(present.shape[-1], rounding_mode="floor"))


def compact(rows: Int[Tensor, "N"], total: int) -> tuple[Int[Tensor, "M"], Int[Tensor, "N"]]:
    """The distinct rows in ascending order, and for each given row its place among them."""
    used = torch.zeros(total, dtype=torch.bool, device=rows.device)
    used[rows] = True
    return used.nonzero().squeeze(-1), (used.cumsum(0) - 1)[rows]


def context_rows(alignments: Alignments, memory: Tensor, pairs: Pairs) -> Float[Tensor, "N D"]:
    """X z for every pair."""
    if isinstance(alignments, OneHot):
        return memory.flatten(0, -2).index_select(0, alignments.flat_index(memory).flatten()[pairs.slot])
    return alignments.contexts(memory).flatten(0, -2).index_select(0, pairs.slot)


@dataclass(frozen=True, eq=False)
class HiddenParts:
    """The head's last hidden layer for every pair: each part computed once for what it depends on, the sum not yet."""

    head: FactoredHead
    from_query: Float[Tensor, "Q Hq"]
    query_place: Int[Tensor, "N"]
    from_memory: Float[Tensor, "M Hm"]
    memory_place: Int[Tensor, "N"] | None
    """None where every pair has a context of its own."""

    @classmethod
    def of(
        cls, head: FactoredHead, query: Tensor, memory: Tensor, alignments: Alignments, *, pairs: Pairs
    ) -> HiddenParts:
        used, query_place = compact(pairs.query, query.shape[:-1].numel())
        from_query = head.query_part(flat_rows(query).index_select(0, used))
        if not isinstance(alignments, OneHot):
            from_memory = head.memory_part(context_rows(alignments, memory, pairs))
            return cls(head, from_query, query_place, from_memory, None)
        flat = alignments.flat_index(memory).flatten()[pairs.slot]
        used, place = compact(flat, memory.shape[:-1].numel())
        return cls(
            head,
            from_query,
            query_place,
            head.memory_part(memory.flatten(0, -2).index_select(0, used)),
            place,
        )

    def by_row(self) -> bool:
        """Whether rows can be formed and forgotten piece by piece."""
        return self.memory_place is not None and self.head.hidden_by_row()

    def rows(self, rows: slice) -> Float[Tensor, "n H"]:
        """The hidden layer of some pairs."""
        place = self.memory_place
        return self.head.hidden(
            self.from_query.index_select(0, self.query_place[rows]),
            self.from_memory[rows] if place is None else self.from_memory.index_select(0, place[rows]),
        )


def hidden_rows(
    head: FactoredHead, query: Tensor, memory: Tensor, alignments: Alignments, *, pairs: Pairs
) -> Float[Tensor, "N H"]:
    """The head's last hidden layer for every pair."""
    return HiddenParts.of(head, query, memory, alignments, pairs=pairs).rows(slice(None))


def target_log_prob(
    emit: Emit,
    query: Float[Tensor, "*batch Dq"],
    memory: Float[Tensor, "*#batch T D"],
    target: Int[Tensor, "*batch"],
    alignments: Alignments,
    *,
    query_mask: Bool[Tensor, "*batch"] | None = None,
    max_logits: int = MAX_LOGITS,
) -> Float[Tensor, "*batch K"]:
    """log p(y | x, x~, z_k); 0 for alignments that are absent and queries that are masked."""
    check_shapes(query, alignments, target)
    pairs = Pairs.of(alignments, query_mask)
    row_target = target.flatten()[pairs.query]
    if is_factored(emit):
        hidden = hidden_rows(emit, query, memory, alignments, pairs=pairs)
        check_targets(row_target, emit.output.out_features)
        output = emit.output
        log_p = linear_log_prob(hidden, output.weight, output.bias, row_target, max_logits=max_logits)
    else:
        contexts = context_rows(alignments, memory, pairs)
        queries = flat_rows(query).index_select(0, pairs.query)
        log_p = emit_rows(emit, queries, contexts, row_target, max_logits=max_logits)
    log_weight = alignments.log_weight
    out = torch.zeros(log_weight.numel(), dtype=log_p.dtype, device=log_p.device)
    return out.index_copy(0, pairs.slot, log_p).view(log_weight.shape)


def emit_rows(
    emit: Emit, query: Tensor, context: Tensor, target: Tensor, *, max_logits: int
) -> Float[Tensor, "N"]:
    """log p(target) of every row under any head, chunk by chunk; the backward pass runs each chunk again."""

    def chosen(query: Tensor, context: Tensor, target: Tensor) -> Tensor:
        logits = emit(query, context)
        check_targets(target, logits.shape[-1])
        return at_least_float32(logits).log_softmax(-1).gather(1, target.unsqueeze(1)).squeeze(1)

    if len(target) == 0:
        return query.sum() * 0 + query.new_zeros(0)
    # The backward pass holds three buffers of the logits' size: log p, its gradient and the logits' gradient.
    size = max(1, max_logits // (3 * outputs_of(emit, query[:1], context[:1])))
    parts = [
        checkpoint(chosen, query[rows], context[rows], target[rows], use_reentrant=False)
        for rows in chunks(len(target), size)
    ]
    return torch.cat(parts)


def outputs_of(emit: Emit, query: Tensor, context: Tensor) -> int:
    """V, without touching the random state."""
    with torch.no_grad(), torch.random.fork_rng(devices=[query.device] if query.is_cuda else []):
        return emit(query, context).shape[-1]


def predictive_log_prob(
    emit: Emit,
    query: Float[Tensor, "*batch Dq"],
    memory: Float[Tensor, "*#batch T D"],
    alignments: Alignments,
    *,
    max_logits: int = MAX_LOGITS,
) -> Float[Tensor, "*batch V"]:
    """log p(y | x, x~) = log E[f(x, z)_y] of every output y; zeros where a query has no member.

    Beside the result, `max_logits` numbers are alive at once and V for each query that they belong to (with gradient,
    a few rows of V per chunk).
    """
    check_shapes(query, alignments)
    batch = query.shape[:-1]
    pairs = Pairs.of(alignments, None)
    rows_log_weight = alignments.log_weight.flatten()[pairs.slot]
    if is_factored(emit) and not torch.is_grad_enabled() and len(pairs.slot):
        found = decoding_log_prob(emit, query, memory, alignments, pairs=pairs, max_logits=max_logits)
        if found is not None:
            return found
    if is_factored(emit):
        inputs: tuple[Tensor, ...] = (hidden_rows(emit, query, memory, alignments, pairs=pairs),)
        logits: Callable[..., Tensor] = emit.output
        outputs = emit.output.out_features
    else:
        inputs = (flat_rows(query).index_select(0, pairs.query), context_rows(alignments, memory, pairs))
        logits = emit
        outputs = outputs_of(emit, flat_rows(query)[:1], memory.flatten(0, -2)[:1])

    def averaged(log_weight: Tensor, owner: Tensor, before: Tensor | None, *rows: Tensor) -> Tensor:
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
        # Where the chunk's border cuts a query, what was found of it before is joined in log space.
        cut = owners[-1:] == owner[:1].tolist()
        before, owners = (parts.pop(), owners[:-1]) if cut else (None, owners)
        part = checkpoint(averaged, rows_log_weight[rows], local, before, *chunk, use_reentrant=False)
        parts += part.split(1)
        owners += owner.tolist()
    if not parts:
        return query.new_zeros(*batch, outputs)
    found = torch.cat(parts)
    if len(owners) < batch.numel():
        out = torch.zeros(batch.numel(), outputs, dtype=found.dtype, device=found.device)
        found = out.index_copy(0, torch.tensor(owners, device=found.device), found)
    return found.view(*batch, outputs)


def decoding_log_prob(
    head: FactoredHead,
    query: Tensor,
    memory: Tensor,
    alignments: Alignments,
    *,
    pairs: Pairs,
    max_logits: int,
) -> Float[Tensor, "*batch V"] | None:
    """The predictive distribution in probability space, for decoding; None where that would underflow."""
    used, owner = compact(pairs.query, query.shape[:-1].numel())
    hidden = hidden_rows(head, query, memory, alignments, pairs=pairs)
    log_weight = alignments.log_weight.flatten()[pairs.slot]
    output = head.output
    found = aligned(len(used), at_least_float32(hidden[:0]), output.out_features)
    if len(used) == len(owner):  # one alignment a query: nothing to sum
        single_log_prob(found, hidden, output.weight, output.bias, log_weight=log_weight)
    else:
        add_mixture(
            found.zero_(),
            hidden,
            output.weight,
            output.bias,
            log_weight=log_weight,
            owner=owner,
            max_logits=max_logits,
        )
        if found.log_().amin() == NEG_INF:
            return None
    batch = query.shape[:-1]
    if len(used) == batch.numel():
        return found.view(*batch, -1)
    out = torch.zeros(batch.numel(), found.shape[1], dtype=found.dtype, device=found.device)
    return out.index_copy(0, used, found).view(*batch, -1)


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


class EmissionLatent(Latent[D]):
    """A latent choice whose likelihood is an emission head over a source; averages are fused where they can be."""

    def __init__(
        self,
        prior: D,
        emit: Emit,
        query: Float[Tensor, "*batch Dq"],
        *,
        memory: Float[Tensor, "*#batch T D"],
        target: Int[Tensor, "*batch"],
        inferred: D | None = None,
        query_mask: Bool[Tensor, "*batch"] | None = None,
        max_logits: int = MAX_LOGITS,
    ) -> None:
        if prior.mask.shape[-1] != memory.shape[-2]:
            raise ValueError(
                f"the prior is over T = {prior.mask.shape[-1]} members, memory {tuple(memory.shape)} has "
                f"T = {memory.shape[-2]}"
            )
        if query_mask is not None:  # a query that does not exist has no member, whoever looks at it
            prior = prior.where(query_mask)
            inferred = None if inferred is None else inferred.where(query_mask)
        # Not through super().__init__: a bound method kept as a field would be a cycle that holds the tensors.
        self.prior, self.inferred, self.query = prior, inferred, query
        self.emit, self.memory, self.target = emit, memory, target
        self.query_mask, self.max_logits = query_mask, max_logits

    def log_likelihood(self, alignments: Alignments) -> Float[Tensor, "*batch K"]:
        """log p(y | x, x~, z_k) of any weighted set of alignments."""
        assert self.query is not None
        return target_log_prob(
            self.emit,
            self.query,
            self.memory,
            self.target,
            alignments,
            query_mask=self.query_mask,
            max_logits=self.max_logits,
        )

    def log_marginal(self, alignments: Alignments) -> Float[Tensor, "*batch"]:
        return self._average(alignments, marginal=True)

    def mean_log_likelihood(self, alignments: Alignments) -> Float[Tensor, "*batch"]:
        return self._average(alignments, marginal=False)

    def _average(self, alignments: Alignments, *, marginal: bool) -> Float[Tensor, "*batch"]:
        """The fused average when the head is factored and a query's logits fit the bound; else the plain one."""
        k = alignments.log_weight.shape[-1]
        if not is_factored(self.emit) or k * self.emit.output.out_features > self.max_logits:
            plain = super().log_marginal if marginal else super().mean_log_likelihood
            return plain(alignments)
        head, query = self.emit, self.query
        assert query is not None
        check_shapes(query, alignments, self.target)
        return self.average_rows(
            lambda pairs: HiddenParts.of(head, query, self.memory, alignments, pairs=pairs),
            alignments,
            marginal=marginal,
        )

    def average_rows(
        self, hidden: Callable[[Pairs], Tensor | HiddenParts], alignments: Alignments, *, marginal: bool
    ) -> Float[Tensor, "*batch"]:
        """The fused average of a factored head whose hidden layer is given for every pair that exists."""
        assert is_factored(self.emit)
        pairs = Pairs.of(alignments, self.query_mask)
        used, owner = compact(pairs.query, self.target.numel())
        target = self.target.flatten()[pairs.query]
        output = self.emit.output
        check_targets(target, output.out_features)
        log_weight = alignments.log_weight.flatten().index_select(0, pairs.slot)
        borders = query_borders(owner, self.max_logits // output.out_features)
        layer = hidden(pairs)

        def average(
            borders: list[int], rows: Tensor, log_weight: Tensor, weight: Tensor, bias: Tensor | None
        ) -> Tensor:
            part = slice(borders[0], borders[-1])
            return fused_average(
                rows,
                weight,
                bias,
                target[part],
                log_weight=log_weight[part],
                owner=owner[part] - owner[part.start] if part.start else owner[part],
                starts=[border - part.start for border in borders],
                marginal=marginal,
            )

        pieces = grouped(borders, MAX_HIDDEN // output.in_features)
        if isinstance(layer, HiddenParts) and len(pieces) > 1 and layer.by_row():
            parts = layer

            def one(piece: list[int], by_query: Tensor, by_memory: Tensor, *others: Any) -> Tensor:
                formed = replace(parts, from_query=by_query, from_memory=by_memory)
                return average(piece, formed.rows(slice(piece[0], piece[-1])), *others)

            inputs = (parts.from_query, parts.from_memory, log_weight, output.weight, output.bias)
            value = piecewise(one, pieces, inputs)
        else:
            rows = layer.rows(slice(None)) if isinstance(layer, HiddenParts) else layer
            value = average(borders, rows, log_weight, output.weight, output.bias)
        out = torch.zeros(self.target.numel(), dtype=value.dtype, device=value.device)
        return out.index_copy(0, used, value).view(self.target.shape)


def grouped(borders: list[int], rows: int) -> list[list[int]]:
    """Consecutive pieces as groups of at most `rows` rows each, or of a single piece; a group is its borders."""
    groups: list[list[int]] = []
    for start, stop in pairwise(borders):
        if groups and stop - groups[-1][0] <= rows:
            groups[-1].append(stop)
        else:
            groups.append([start, stop])
    return groups or [borders]


def query_borders(owner: Int[Tensor, "N"], rows: int) -> list[int]:
    """Where to cut rows sorted by owner so that no owner is split and no piece is longer than `rows`."""
    if len(owner) == 0:
        return [0]
    ends = owner.bincount().cumsum(0).tolist()
    borders, last = [0], 0
    for end in ends:
        if end - borders[-1] > rows and last > borders[-1]:
            borders.append(last)
        last = end
    return [*borders, last]


def check_shapes(query: Tensor, alignments: Alignments, target: Tensor | None = None) -> None:
    """Raise unless query, alignments and target agree on *batch."""
    batch, weights = query.shape[:-1], alignments.log_weight.shape
    if weights[:-1] != batch or (target is not None and target.shape != batch):
        shown = "" if target is None else f", target (*batch) {tuple(target.shape)}"
        raise ValueError(
            f"what belongs to a query must agree on *batch, got query (*batch, Dq) {tuple(query.shape)}, "
            f"alignments (*batch, K) {tuple(weights)}{shown}"
        )


def check_targets(target: Int[Tensor, "N"], outputs: int) -> None:
    """Raise when an output that must be predicted is not one of the head's."""
    if len(target) and not torch.compiler.is_compiling():
        low, high = int(target.min()), int(target.max())
        if low < 0 or high >= outputs:
            raise ValueError(
                f"targets must lie in 0..{outputs - 1} (the head's outputs), got {low if low < 0 else high}; "
                f"mask what is padding"
            )
