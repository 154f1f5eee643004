"""The (query, alignment) pairs that exist, and the hidden layer of a factored head for each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from latentalign.core.alignments import Alignments
from latentalign.core.devices import prefers_static_shapes
from latentalign.core.heads import FactoredHead
from latentalign.core.kernels.borders import Borders
from latentalign.core.linear import Linear
from latentalign.core.numerics import NEG_INF, flat_rows

MAX_HIDDEN = 2**21
"""Numbers of the hidden layer in memory at once when it is computed piece by piece."""
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def is_factored(emit: object) -> TypeGuard[FactoredHead]:
    """Whether a head is exactly its parts and a plain linear layer, so that the fast path may bypass `forward`."""
    if not isinstance(emit, FactoredHead) or type(emit.output) not in (nn.Linear, Linear):
        return False
    if type(emit).forward is not FactoredHead.forward:
        return False
    return not any("forward" in vars(m) or any(vars(m)[h] for h in HOOKS) for m in (emit, emit.output))


@dataclass(frozen=True, eq=False)
class Pairs:
    """The (query, alignment) pairs that exist: nothing is computed for any other.

    A device that prefers static shapes computes all pairs. `exists` then says which of them count; the others have
    weight zero, target 0 and a hidden layer of zeros.
    """

    slot: Int[Tensor, "N"]
    """Position of each pair in the flattened (*batch, K)."""
    query: Int[Tensor, "N"]
    """Query of each pair in the flattened (*batch), ascending."""
    used: Int[Tensor, "Q"]
    """The queries that have a pair, ascending."""
    owner: Int[Tensor, "N"]
    """Position of each pair's query in `used`."""
    width: int
    """K."""
    exists: Bool[Tensor, "N"] | None = None

    @classmethod
    def of(
        cls,
        query: Float[Tensor, "*batch Dq"],
        alignments: Alignments,
        *,
        target: Int[Tensor, "*batch"] | None = None,
        query_exists: Bool[Tensor, "*batch"] | None = None,
    ) -> Pairs:
        """The pairs of queries that exist; raises unless query, alignments and target agree on *batch."""
        batch, weights = query.shape[:-1], alignments.log_weight.shape
        if weights[:-1] != batch or (target is not None and target.shape != batch):
            and_target = "" if target is None else f", target (*batch) {tuple(target.shape)}"
            raise ValueError(
                f"query, alignments and target must agree on *batch, got query (*batch, Dq) "
                f"{tuple(query.shape)}, alignments (*batch, K) {tuple(weights)}{and_target}"
            )
        present = alignments.log_weight != NEG_INF
        if query_exists is not None:
            present = present & query_exists.unsqueeze(-1)
        if prefers_static_shapes(query.device):
            row = torch.arange(batch.numel(), device=query.device)
            owner = row.repeat_interleave(weights[-1], output_size=weights.numel())
            slot = torch.arange(weights.numel(), device=query.device)
            return cls(slot, owner, row, owner, weights[-1], present.flatten())
        slot = present.flatten().nonzero().squeeze(-1)
        row = slot.div(weights[-1], rounding_mode="floor")
        used, owner = row.unique_consecutive(return_inverse=True)
        return cls(slot, row, used, owner, weights[-1])

    def borders(self, rows: int) -> Borders:
        """Where to cut the pairs so that no query is split and no piece of several queries has more than `rows`."""
        if len(self.owner) == 0:
            return Borders([0], [0])
        if self.exists is not None:
            step = max(1, rows // self.width)
            cuts = [*range(0, len(self.used), step), len(self.used)]
            return Borders([cut * self.width for cut in cuts], cuts)
        found, last = Borders([0], [0]), 0
        ends = self.owner.bincount().cumsum(0).tolist()
        for query, end in enumerate(ends):
            if end - found.rows[-1] > rows and last > found.rows[-1]:
                found.rows.append(last)
                found.queries.append(query)
            last = end
        return Borders([*found.rows, last], [*found.queries, len(ends)])

    def query_rows(self, query: Float[Tensor, "*batch Dq"]) -> Float[Tensor, "Q Dq"]:
        """The queries in `used`."""
        flat = flat_rows(query)
        if self.exists is None:
            return flat.index_select(0, self.used)
        return flat.masked_fill(~self.has_pair().unsqueeze(-1), 0.0)

    def has_pair(self) -> Bool[Tensor, "Q"]:
        """Whether a query in `used` has a pair that exists."""
        if self.exists is None:
            return torch.ones_like(self.used, dtype=torch.bool)
        return self.exists.view(len(self.used), self.width).any(1)

    def log_weights(self, alignments: Alignments) -> Float[Tensor, "N"]:
        """The log-weight of each pair."""
        flat = alignments.log_weight.flatten()
        if self.exists is None:
            return flat.index_select(0, self.slot)
        return flat.masked_fill(~self.exists, NEG_INF)

    def targets(self, target: Int[Tensor, "*batch"]) -> Int[Tensor, "N"]:
        """The output of each pair's query."""
        rows = target.flatten()[self.query]
        return rows if self.exists is None else rows.masked_fill(~self.exists, 0)

    def spread_pairs(self, value: Float[Tensor, "N"], shape: torch.Size) -> Float[Tensor, "*batch K"]:
        """A value of each pair at its place; zeros elsewhere."""
        if self.exists is not None:
            return value.masked_fill(~self.exists, 0.0).view(shape)
        out = torch.zeros(shape.numel(), dtype=value.dtype, device=value.device)
        return out.index_copy(0, self.slot, value).view(shape)

    def spread_queries(self, value: Float[Tensor, "Q"], shape: torch.Size) -> Float[Tensor, "*batch"]:
        """A value of each query in `used` at its place; zeros elsewhere."""
        if self.exists is not None:
            return value.view(shape)
        out = torch.zeros(shape.numel(), dtype=value.dtype, device=value.device)
        return out.index_copy(0, self.used, value).view(shape)


@dataclass(frozen=True, eq=False)
class HiddenParts:
    """Both parts of the hidden layer of a factored head, each computed once, and which of them every pair combines."""

    head: FactoredHead
    from_query: Float[Tensor, "Q Hq"]
    query_place: Int[Tensor, "N"]
    from_memory: Float[Tensor, "M Hm"]
    memory_place: Int[Tensor, "N *looks"] | None
    """None if every pair has a context of its own. With several looks, the parts of all of them are summed."""

    @classmethod
    def of(
        cls,
        head: FactoredHead,
        query: Tensor,
        memory: Tensor,
        alignments: Alignments,
        *,
        pairs: Pairs,
        source: Tensor | None = None,
    ) -> HiddenParts:
        """The parts that the pairs need."""
        flat, place = alignments.flat_index(memory, source), None
        single = flat is not None and flat.dim() == query.dim()
        if flat is None or not (single or head.adds_members()):
            contexts = alignments.contexts(memory, source).flatten(0, -2).index_select(0, pairs.slot)
        elif pairs.exists is not None:
            place, rows = flat.flatten(0, query.dim() - 1), memory.flatten(0, -2)
            exists = pairs.exists.view(-1, *(1,) * (place.dim() - 1)).expand_as(place).flatten()
            count = torch.zeros(len(rows), device=rows.device).index_add(0, place.flatten(), exists.float())
            contexts = rows.masked_fill((count == 0).unsqueeze(-1), 0.0)
        else:  # a row of memory that several pairs select is computed once
            selected = flat.flatten(0, query.dim() - 1)[pairs.slot]
            used = torch.zeros(memory.shape[:-1].numel(), dtype=torch.bool, device=memory.device)
            used[selected] = True
            contexts = memory.flatten(0, -2).index_select(0, used.nonzero().squeeze(-1))
            place = (used.cumsum(0) - 1)[selected]
        from_query = head.query_part(pairs.query_rows(query))
        return cls(head, from_query, pairs.owner, head.memory_part(contexts), place)

    def by_row(self) -> bool:
        """Whether rows can be computed and freed piece by piece."""
        return self.memory_place is not None and self.head.hidden_by_row()

    def rows(self, rows: slice | Tensor = slice(None)) -> Float[Tensor, "n H"]:
        """The hidden layer of some pairs."""
        return self.head.hidden(*self.parts_of(rows))

    def rows_with_noise(
        self, rows: Int[Tensor, "n"], kept: Bool[Tensor, "n H"] | None
    ) -> Float[Tensor, "n H"]:
        """The hidden layer of some pairs with given noise."""
        return self.head.hidden_with_noise(*self.parts_of(rows), kept)

    def parts_of(self, rows: slice | Tensor) -> tuple[Float[Tensor, "n Hq"], Float[Tensor, "n Hm"]]:
        """Both parts of some pairs."""
        from_query = self.from_query.index_select(0, self.query_place[rows])
        if self.memory_place is None:
            return from_query, self.from_memory[rows]
        place = self.memory_place[rows]
        first, *others = [place] if place.dim() == 1 else place.unbind(-1)
        from_memory = self.from_memory.index_select(0, first)
        for other in others:
            from_memory = from_memory + self.from_memory.index_select(0, other)
        return from_query, from_memory

    def pieces(self) -> list[slice]:
        """Consecutive rows whose hidden layer has at most `MAX_HIDDEN` numbers, if pairs of members make them many."""
        count, size = len(self.query_place), MAX_HIDDEN // self.head.output.in_features
        several_looks = self.memory_place is not None and self.memory_place.dim() == 2
        if not (several_looks and self.by_row() and count > size >= 1):
            return [slice(0, count)]
        return [slice(start, start + size) for start in range(0, count, size)]


def context_rows(
    alignments: Alignments, memory: Tensor, pairs: Pairs, source: Tensor | None = None
) -> Float[Tensor, "N D"]:
    """X z for every pair."""
    flat = alignments.flat_index(memory, source)
    if flat is not None and flat.dim() == alignments.log_weight.dim():
        rows = memory.flatten(0, -2).index_select(0, flat.flatten()[pairs.slot])
        return rows if pairs.exists is None else rows.masked_fill(~pairs.exists.unsqueeze(-1), 0.0)
    return alignments.contexts(memory, source).flatten(0, -2).index_select(0, pairs.slot)
