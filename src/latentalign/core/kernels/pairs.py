"""The (query, alignment) pairs that exist, and the hidden layer of a factored head for each of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentalign.core.alignments import Alignments
from latentalign.core.heads import FactoredHead
from latentalign.core.numerics import flat_rows


@dataclass(frozen=True, eq=False)
class Pairs:
    """The (query, alignment) pairs that exist: nothing is computed for any other."""

    slot: Int[Tensor, "N"]
    """Position of each pair in the flattened (*batch, K)."""
    query: Int[Tensor, "N"]
    """Query of each pair in the flattened (*batch), ascending."""

    @classmethod
    def of(cls, alignments: Alignments, query_mask: Bool[Tensor, "*batch"] | None = None) -> Pairs:
        """The pairs of a weighted set of alignments whose query is not masked."""
        present = alignments.present
        if query_mask is not None:
            present = present & query_mask.unsqueeze(-1)
        slot = present.flatten().nonzero().squeeze(-1)
        return cls(slot, slot.div(present.shape[-1], rounding_mode="floor"))


def compact(rows: Int[Tensor, "N"], total: int) -> tuple[Int[Tensor, "M"], Int[Tensor, "N"]]:
    """The distinct rows in ascending order, and the position of every row among them."""
    used = torch.zeros(total, dtype=torch.bool, device=rows.device)
    used[rows] = True
    return used.nonzero().squeeze(-1), (used.cumsum(0) - 1)[rows]


def context_rows(
    alignments: Alignments, memory: Tensor, pairs: Pairs, source: Tensor | None = None
) -> Float[Tensor, "N D"]:
    """X z for every pair."""
    flat = alignments.flat_index(memory, source)
    if flat is not None:
        return memory.flatten(0, -2).index_select(0, flat.flatten()[pairs.slot])
    return alignments.contexts(memory, source).flatten(0, -2).index_select(0, pairs.slot)


@dataclass(frozen=True, eq=False)
class HiddenParts:
    """Both parts of the hidden layer of a factored head, each computed once, and which of them every pair combines."""

    head: FactoredHead
    from_query: Float[Tensor, "Q Hq"]
    query_place: Int[Tensor, "N"]
    from_memory: Float[Tensor, "M Hm"]
    memory_place: Int[Tensor, "N"] | None
    """None if every pair has a context of its own."""

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
        used, query_place = compact(pairs.query, query.shape[:-1].numel())
        from_query = head.query_part(flat_rows(query).index_select(0, used))
        flat = alignments.flat_index(memory, source)
        if flat is None:
            contexts = alignments.contexts(memory, source).flatten(0, -2)
            from_memory = head.memory_part(contexts.index_select(0, pairs.slot))
            return cls(head, from_query, query_place, from_memory, None)
        used, place = compact(flat.flatten()[pairs.slot], memory.shape[:-1].numel())
        from_memory = head.memory_part(memory.flatten(0, -2).index_select(0, used))
        return cls(head, from_query, query_place, from_memory, place)

    def by_row(self) -> bool:
        """Whether rows can be computed and freed piece by piece."""
        return self.memory_place is not None and self.head.hidden_by_row()

    def rows(self, rows: slice = slice(None)) -> Float[Tensor, "n H"]:
        """The hidden layer of some pairs."""
        place = self.memory_place
        return self.head.hidden(
            self.from_query.index_select(0, self.query_place[rows]),
            self.from_memory[rows] if place is None else self.from_memory.index_select(0, place[rows]),
        )


def check_shapes(query: Tensor, alignments: Alignments, target: Tensor | None = None) -> None:
    """Raise unless query, alignments and target agree on *batch."""
    batch, weights = query.shape[:-1], alignments.log_weight.shape
    if weights[:-1] != batch or (target is not None and target.shape != batch):
        and_target = "" if target is None else f", target (*batch) {tuple(target.shape)}"
        raise ValueError(
            f"query, alignments and target must agree on *batch, got query (*batch, Dq) {tuple(query.shape)}, "
            f"alignments (*batch, K) {tuple(weights)}{and_target}"
        )


def check_targets(target: Int[Tensor, "N"], outputs: int) -> None:
    """Raise if a target is not one of the outputs of the head."""
    if len(target) and not torch.compiler.is_compiling():
        low, high = int(target.min()), int(target.max())
        if low < 0 or high >= outputs:
            raise ValueError(
                f"targets must lie in 0..{outputs - 1} (the head's outputs), got {low if low < 0 else high}; "
                f"mask the padding"
            )
