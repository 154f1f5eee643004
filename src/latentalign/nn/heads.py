"""Output heads: f(x, z) from a query and the context that an alignment selects."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from latentalign.core.heads import FactoredHead
from latentalign.nn.dropout import Dropout


class MLPHead(FactoredHead):
    """softmax(W act(W1 [X z; x~] + b1) + b) with dropout on the hidden layer, independent for every alignment."""

    def __init__(
        self,
        query_dim: int,
        memory_dim: int,
        outputs: int,
        *,
        hidden: int = 256,
        dropout: float = 0.0,
        activation: nn.Module | None = None,
    ) -> None:
        super().__init__()
        # One matrix over [context; query], stored as two, because each part is applied once per position or query.
        self.from_memory = nn.Linear(memory_dim, hidden, bias=False)
        self.from_query = nn.Linear(query_dim, hidden)
        self.activation = nn.Tanh() if activation is None else activation
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(hidden, outputs)

    def memory_part(self, context: Float[Tensor, "*n D"]) -> Float[Tensor, "*n H"]:
        part: Tensor = self.from_memory(context)
        return part

    def query_part(self, query: Float[Tensor, "*n Dq"]) -> Float[Tensor, "*n H"]:
        part: Tensor = self.from_query(query)
        return part

    def hidden(
        self, query_part: Float[Tensor, "*n H"], memory_part: Float[Tensor, "*n H"]
    ) -> Float[Tensor, "*n H"]:
        hidden: Tensor = self.dropout(self.activation(query_part + memory_part))
        return hidden

    def hidden_by_row(self) -> bool:
        return type(self).hidden is MLPHead.hidden and type(self.activation) in (nn.Tanh, nn.ReLU, nn.GELU)


class LinearHead(FactoredHead):
    """softmax(W X z): the paper's simplest f, whose curvature has a proven bound."""

    def __init__(self, memory_dim: int, outputs: int) -> None:
        super().__init__()
        self.output = nn.Linear(memory_dim, outputs)

    def memory_part(self, context: Float[Tensor, "*n D"]) -> Float[Tensor, "*n D"]:
        return context

    def query_part(self, query: Float[Tensor, "*n Dq"]) -> Float[Tensor, "*n 1"]:
        return torch.zeros_like(query[..., :1])

    def hidden(
        self, query_part: Float[Tensor, "*n 1"], memory_part: Float[Tensor, "*n D"]
    ) -> Float[Tensor, "*n D"]:
        return memory_part
