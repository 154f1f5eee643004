"""NULL: one more member, which outputs come from that belong to no position of the source."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from latentalign.core.linear import Linear
from latentalign.core.numerics import masked_log_softmax


def append_member(members: Float[Tensor, "B N D"], member: Float[Tensor, " D"]) -> Float[Tensor, "B T D"]:
    """The members of each example, and the same one more at their end."""
    row = member.to(members.dtype).expand(len(members), 1, -1)
    return torch.cat([members, row], 1)


class NullMember(nn.Module):
    """NULL for alignments that are independent of each other: a learned member, and a chance that the query decides.

    The chance is sigmoid(w . x~ + b), whatever the length of the source, as in a chain with NULL.
    """

    def __init__(self, query_dim: int, member_dim: int) -> None:
        super().__init__()
        self.score = Linear(query_dim, 1)
        self.member = nn.Parameter(torch.zeros(member_dim))

    def extend(
        self,
        scores: Float[Tensor, "*batch N"],
        exists: Bool[Tensor, "*batch N"],
        query: Float[Tensor, "*batch Dq"],
    ) -> tuple[Float[Tensor, "*batch T"], Bool[Tensor, "*batch T"]]:
        """Scores and existence of the members with NULL at the end; queries without members have no NULL either."""
        normalised = masked_log_softmax(scores, exists).masked_fill(~exists, 0.0)
        chance = self.score(query).to(scores.dtype)
        return (
            torch.cat([normalised, chance], -1),
            torch.cat([exists, exists.any(-1, keepdim=True)], -1),
        )

    def append_to(self, members: Float[Tensor, "B N D"]) -> Float[Tensor, "B T D"]:
        """The members of each example with NULL at the end."""
        return append_member(members, self.member)
