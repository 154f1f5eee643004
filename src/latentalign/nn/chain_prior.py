"""A prior in which alignments depend on each other: it turns the scores of queries into a `Chain`."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from latentalign.core.distributions import Chain, Dense, Jump, Monotone
from latentalign.core.distributions.transitions import Transition
from latentalign.core.linear import Linear
from latentalign.nn.null_member import append_member

ChainKind = Literal["jump", "monotone", "dense"]
"""`jump`: a learned table of jump widths. `monotone`: never backwards. `dense`: learned for every pair of members."""


class ChainPrior(nn.Module):
    """p(z_1) prod_j p(z_j | z_{j-1}, x, y_<j) from the scores of every query and learned preferences for moves.

    `jump` learns log weights of the jumps -widest_jump..widest_jump, which the query changes if `by_query` is set.
    `monotone` may limit its steps to `max_step` members. `dense` scores a move from member i to i' by
    (U x_i * tanh(W x~)) . (V x_i'), with `hidden` products. With `null`, an output may come from no member: then the
    query decides how likely that is, and `append_null` adds the member that such outputs are generated from. Its size
    is `member_dim` if the head sees other members than `memory`. A chain that generates no outputs, such as q, has no
    such member: `emits` is False.
    """

    def __init__(
        self,
        kind: ChainKind,
        query_dim: int,
        memory_dim: int,
        *,
        null: bool = False,
        member_dim: int | None = None,
        emits: bool = True,
        widest_jump: int = 10,
        by_query: bool = False,
        max_step: int | None = None,
        hidden: int = 64,
    ) -> None:
        super().__init__()
        if kind not in get_args(ChainKind):
            raise ValueError(f"a chain is one of {', '.join(get_args(ChainKind))}, got {kind!r}")
        self.kind, self.null, self.by_query, self.max_step = kind, null, by_query, max_step
        if kind == "jump":
            self.table = nn.Parameter(torch.zeros(2 * widest_jump + 1))
        if kind == "jump" and by_query:
            self.table_of_query = Linear(query_dim, 2 * widest_jump + 1, bias=False)
        if kind == "dense":
            self.origin = Linear(memory_dim, hidden, bias=False)
            self.end = Linear(memory_dim, hidden, bias=False)
            self.gate = Linear(query_dim, hidden)
        if null:
            self.null_score = Linear(query_dim, 1)
        if null and emits:
            self.null_member = nn.Parameter(torch.zeros(member_dim or memory_dim))

    def forward(
        self,
        scores: Float[Tensor, "B S N"],
        exists: Bool[Tensor, "B S N"],
        query: Float[Tensor, "B S Dq"],
        memory: Float[Tensor, "B N D"],
    ) -> Chain:
        """The chain of every example. Memory has no member for NULL yet."""
        return self.chain(scores, exists, query, self.transition(query[:, 1:], memory))

    def step(
        self,
        scores: Float[Tensor, "n N"],
        exists: Bool[Tensor, "n N"],
        query: Float[Tensor, "n Dq"],
        memory: Float[Tensor, "n N D"],
    ) -> Chain:
        """A chain of the next query alone, with the move that leads to it: for decoding."""
        scores, exists, query = scores.unsqueeze(1), exists.unsqueeze(1), query.unsqueeze(1)
        return self.chain(scores, exists, query, self.transition(query, memory))

    def chain(self, scores: Tensor, exists: Tensor, query: Tensor, transition: Transition) -> Chain:
        """A chain with this prior's chance of NULL."""
        null_scores = self.null_score(query).squeeze(-1) if self.null else None
        return Chain.from_scores(scores, exists=exists, transition=transition, null_scores=null_scores)

    def transition(self, query: Float[Tensor, "B moves Dq"], memory: Float[Tensor, "B N D"]) -> Transition:
        """The transition of the moves that lead to these queries."""
        if self.kind == "monotone":
            return Monotone(self.max_step)
        if self.kind == "jump":
            return Jump(self.table + self.table_of_query(query) if self.by_query else self.table)
        origin = self.origin(memory).unsqueeze(1) * torch.tanh(self.gate(query)).unsqueeze(2)
        return Dense(origin @ self.end(memory).transpose(1, 2).unsqueeze(1))

    def append_null(self, members: Float[Tensor, "B N Dm"]) -> Float[Tensor, "B T Dm"]:
        """Members with the one that stands for NULL at their end; unchanged without NULL."""
        return append_member(members, self.null_member) if self.null else members
