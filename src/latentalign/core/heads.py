"""Output heads: logits of every output from a query and the context that an alignment selects."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from jaxtyping import Float
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

    def forward(self, query: Float[Tensor, "*n Dq"], context: Float[Tensor, "*n D"]) -> Float[Tensor, "*n V"]:
        """Logits of every output."""
        logits: Tensor = self.output(self.hidden(self.query_part(query), self.memory_part(context)))
        return logits
