"""Weighted sets of alignments; every average over z goes through them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentalign.core.checks import may_check
from latentalign.core.numerics import NEG_INF, log_sum_exp


def source_rows(
    memory: Float[Tensor, "*sources T D"], batch: torch.Size, source: Int[Tensor, "*batch"] | None = None
) -> Int[Tensor, "*batch"]:
    """The source that each query reads, as its number among the flattened leading dimensions of memory.

    By default memory broadcasts over the queries; with `source`, query i reads memory[source[i]].
    """
    if source is not None:
        return source
    lead = memory.shape[:-2]
    if len(lead) != len(batch) or any(m not in (1, b) for m, b in zip(lead, batch, strict=True)):
        raise ValueError(
            f"memory must be (*batch, T, D) with batch dimensions that broadcast over {tuple(batch)}, "
            f"got {tuple(memory.shape)}; a source shared by all queries of an example is "
            f"memory.unsqueeze(1), of shape (B, 1, T, D)"
        )
    rows = torch.arange(lead.numel(), device=memory.device).view(lead)
    return rows.expand(batch)


class Alignments(ABC):
    """K weighted alignments for every query; weights sum to one, or are all zero where there is no member."""

    log_weight: Float[Tensor, "*batch K"]

    @property
    def present(self) -> Bool[Tensor, "*batch K"]:
        """True where an alignment has weight; a NaN weight counts, so that it is noticed."""
        return self.log_weight != NEG_INF

    @abstractmethod
    def contexts(
        self, memory: Float[Tensor, "*sources T D"], source: Int[Tensor, "*batch"] | None = None
    ) -> Float[Tensor, "*batch K D"]:
        """X z_k: what each alignment selects from the source that its query reads; zeros for absent alignments."""

    @abstractmethod
    def select(self, value: Float[Tensor, "*batch T"]) -> Float[Tensor, "*batch K"]:
        """v . z_k: what each alignment selects from one number per member."""

    @abstractmethod
    def spread(self, mass: Float[Tensor, "*batch K"], members: int) -> Float[Tensor, "*batch T"]:
        """sum_k m_k z_k: the mass of each alignment, given to the members that it selects."""

    def flat_index(
        self, memory: Float[Tensor, "*sources T D"], source: Int[Tensor, "*batch"] | None = None
    ) -> Int[Tensor, "*batch K"] | None:
        """The row of flattened memory that each alignment selects; None if alignments mix several rows."""
        return None

    def expect(self, value: Float[Tensor, "*batch K"]) -> Float[Tensor, "*batch"]:
        """E[v] = sum_k w_k v_k; an alignment of weight zero counts nothing, even if its value is infinite."""
        weight = self.log_weight.exp()
        return (weight * value.masked_fill(weight == 0, 0.0)).sum(-1)

    def log_expect_exp(self, value: Float[Tensor, "*batch K"]) -> Float[Tensor, "*batch"]:
        """log E[exp v]; 0 where there is no member."""
        total = log_sum_exp((self.log_weight + value).masked_fill(~self.present, NEG_INF))
        return total.masked_fill(~self.present.any(-1), 0.0)


@dataclass(frozen=True, eq=False)
class OneHot(Alignments):
    """Alignments that select one member each: z_k = onehot(index_k).

    With several looks, each selects one member per look, and z_k has as many ones. The source then has the members as
    the first look sees them, followed by the members as the second sees them, and so on.
    """

    index: Int[Tensor, "*batch K"]
    """The member; with several looks, the number whose digits to the base T / looks are their members."""
    log_weight: Float[Tensor, "*batch K"]
    log_prob: Float[Tensor, "*batch K"]
    """log-probability under the distribution that produced them (its gradient is the score function)."""
    looks: int = 1
    """How many members each alignment selects."""

    def selected(self, members: int) -> Int[Tensor, "*batch K looks"]:
        """The members of the source that each alignment selects, one for each look."""
        return digits(self.index, members, self.looks)

    def flat_index(
        self, memory: Float[Tensor, "*sources T D"], source: Int[Tensor, "*batch"] | None = None
    ) -> Int[Tensor, "..."]:
        """The row of memory, flattened to (rows, D), that each alignment selects; with looks, one for each look."""
        rows = source_rows(memory, self.index.shape[:-1], source)
        members = memory.shape[-2]
        if self.index.numel() and may_check(self.index):
            last, count = (
                int(self.index.masked_fill(~self.present, 0).max()),
                (members // self.looks) ** self.looks,
            )
            if last >= count:
                raise ValueError(
                    f"an alignment selects member {last}, but memory {tuple(memory.shape)} has members 0..{count - 1}"
                )
        if self.looks == 1:
            return rows.unsqueeze(-1) * members + self.index
        return rows[..., None, None] * members + self.selected(members)

    def select(self, value: Float[Tensor, "*batch T"]) -> Float[Tensor, "*batch K"]:
        return sum(value.gather(-1, index) for index in self.selected(value.shape[-1]).unbind(-1))  # type: ignore[return-value]

    def spread(self, mass: Float[Tensor, "*batch K"], members: int) -> Float[Tensor, "*batch T"]:
        out = mass.new_zeros(*mass.shape[:-1], members)
        for index in self.selected(members).unbind(-1):
            out = out.scatter_add(-1, index, mass)
        return out

    def first_of_equals(self) -> Int[Tensor, "*batch K"]:
        """For every alignment, the position of the first one that selects the same member."""
        same = self.index.unsqueeze(-1) == self.index.unsqueeze(-2)
        return same.long().argmax(-1)

    def merged(self) -> OneHot:
        """The same average with equal members merged: the first of them carries the weight of all."""
        first = self.first_of_equals()
        k = first.shape[-1]
        together = first.unsqueeze(-2) == torch.arange(k, device=first.device).unsqueeze(-1)
        weight = self.log_weight.unsqueeze(-2).expand(together.shape).masked_fill(~together, NEG_INF)
        return replace(self, log_weight=log_sum_exp(weight))

    def contexts(
        self, memory: Float[Tensor, "*sources T D"], source: Int[Tensor, "*batch"] | None = None
    ) -> Float[Tensor, "*batch K D"]:
        selected = memory.flatten(0, -2)[self.flat_index(memory, source)]
        selected = selected if self.looks == 1 else selected.sum(-2)
        # Replaced, not multiplied away: padding affects neither values nor gradients.
        return selected.masked_fill(~self.present.unsqueeze(-1), 0.0)


def digits(index: Int[Tensor, "*n"], members: int, looks: int) -> Int[Tensor, "*n looks"]:
    """The members that tuples with these numbers select, among `members` that contain each look's own in turn."""
    each = members // looks
    return torch.stack([index // each ** (looks - 1 - k) % each + k * each for k in range(looks)], -1)


@dataclass(frozen=True, eq=False)
class Mixed(Alignments):
    """Alignments that are points of the simplex; soft attention is one of these."""

    z: Float[Tensor, "*batch K T"]
    log_weight: Float[Tensor, "*batch K"]
    exists: Bool[Tensor, "*batch T"]
    """True where a member exists."""

    @classmethod
    def point(cls, mean: Float[Tensor, "*batch T"], *, exists: Bool[Tensor, "*batch T"]) -> Mixed:
        """The single alignment z = E[z]."""
        log_weight = torch.zeros_like(mean[..., :1]).detach()
        log_weight = log_weight.masked_fill(~exists.any(-1, keepdim=True), NEG_INF)
        return cls(mean.unsqueeze(-2), log_weight, exists)

    @classmethod
    def draws(cls, z: Float[Tensor, "*batch n T"], *, exists: Bool[Tensor, "*batch T"]) -> Mixed:
        """n draws of weight 1/n, without gradient in the weights; no weight for queries without members."""
        log_weight = torch.full_like(z[..., 0], -math.log(z.shape[-2])).detach()
        return cls(z, log_weight.masked_fill(~exists.any(-1, keepdim=True), NEG_INF), exists)

    def select(self, value: Float[Tensor, "*batch T"]) -> Float[Tensor, "*batch K"]:
        clean = value.masked_fill(~self.exists, 0.0)
        return (self.z.to(value.dtype) @ clean.unsqueeze(-1)).squeeze(-1)

    def spread(self, mass: Float[Tensor, "*batch K"], members: int) -> Float[Tensor, "*batch T"]:
        return (mass.unsqueeze(-2) @ self.z.to(mass.dtype)).squeeze(-2)

    def contexts(
        self, memory: Float[Tensor, "*sources T D"], source: Int[Tensor, "*batch"] | None = None
    ) -> Float[Tensor, "*batch K D"]:
        if source is not None:
            memory = memory[source]
        source_rows(memory, self.z.shape[:-2])
        *lead, members, features = memory.shape
        if self.z.shape[-1] != members:
            raise ValueError(f"alignments are over T = {self.z.shape[-1]} members, memory has T = {members}")
        used = self.exists
        for axis, size in enumerate(lead):
            if size == 1:  # a shared member is padding if no query has it
                used = used.any(axis, keepdim=True)
        clean = memory.masked_fill(~used.unsqueeze(-1), 0.0)
        # Queries that share a source become rows of one product; broadcasting would copy the source.
        while lead and lead[-1] == 1:
            lead.pop()
        mixed = self.z.to(memory.dtype).flatten(len(lead), -2) @ clean.view(*lead, members, features)
        return mixed.reshape(*self.z.shape[:-1], features)
