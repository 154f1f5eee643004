"""Output heads: logits of every output from a query and the context that an alignment selects."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

Emit = Callable[[Tensor, Tensor], Tensor]
"""emit(query (n, Dq), context (n, D)) -> logits (n, V)."""


class FactoredHead(nn.Module, ABC):
    """A head that separates what depends on memory from what depends on the query, and ends in a linear layer.

    Emission then computes the first part once per source position and the second once per query. It never keeps the
    logits of the linear layer.
    """

    output: nn.Linear

    @abstractmethod
    def memory_part(self, context: Float[Tensor, "*n D"]) -> Float[Tensor, "*n H"]:
        """The part of the hidden layer that depends on the source alone."""

    @abstractmethod
    def query_part(self, query: Float[Tensor, "*n Dq"]) -> Float[Tensor, "*n H"]:
        """The part of the hidden layer that depends on the query alone."""

    @abstractmethod
    def hidden(
        self, query_part: Float[Tensor, "*n H"], memory_part: Float[Tensor, "*n H"]
    ) -> Float[Tensor, "*n H"]:
        """The input of the last layer, from both parts."""

    def adds_members(self) -> bool:
        """Whether `memory_part` of a sum of members is the sum of their parts, dropout aside.

        Then two looks at the source need one memory part for each member, not for each pair of members.
        """
        return False

    def hidden_by_row(self) -> bool:
        """Whether `hidden` treats every row alone and uses no tensor except its arguments.

        Then the rows of a large batch are computed and freed piece by piece.
        """
        return False

    def draw_noise(self, rows: int) -> Bool[Tensor, "n H"] | None:
        """Which numbers of some hidden layers dropout keeps, drawn anew; None if it keeps all.

        `hidden_with_noise` repeats a hidden layer with it.
        """
        return None

    def hidden_with_noise(
        self,
        query_part: Float[Tensor, "*n H"],
        memory_part: Float[Tensor, "*n H"],
        kept: Bool[Tensor, "*n H"] | None,
    ) -> Float[Tensor, "*n H"]:
        """`hidden` with given noise."""
        return self.hidden(query_part, memory_part)

    def is_repeatable(self) -> bool:
        """Whether `hidden_with_noise` gives the same result again.

        By default, a head is if dropout is off. A head whose `hidden` is noisy in training defines all three methods.
        """
        dropout = torch.nn.modules.dropout._DropoutNd
        return not any(isinstance(m, dropout) and m.training and m.p > 0 for m in self.modules())

    def forward(self, query: Float[Tensor, "*n Dq"], context: Float[Tensor, "*n D"]) -> Float[Tensor, "*n V"]:
        """Logits of every output."""
        logits: Tensor = self.output(self.hidden(self.query_part(query), self.memory_part(context)))
        return logits
