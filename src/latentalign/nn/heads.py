"""Output heads: f(x, z) from a query and the context that an alignment selects."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from latentalign.core.heads import FactoredHead
from latentalign.core.linear import Linear
from latentalign.nn.dropout import Dropout

BY_ROW = (nn.Tanh, nn.ReLU, nn.GELU)
"""Activations that treat every row alone."""


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
        self.from_memory = Linear(memory_dim, hidden, bias=False)
        self.from_query = Linear(query_dim, hidden)
        self.activation = nn.Tanh() if activation is None else activation
        self.dropout = Dropout(dropout)
        self.output = Linear(hidden, outputs)

    def memory_part(self, context: Float[Tensor, "*n D"]) -> Float[Tensor, "*n H"]:
        part: Tensor = self.from_memory(context)
        return part

    def query_part(self, query: Float[Tensor, "*n Dq"]) -> Float[Tensor, "*n H"]:
        part: Tensor = self.from_query(query)
        return part

    def activated(
        self, query_part: Float[Tensor, "*n H"], memory_part: Float[Tensor, "*n H"]
    ) -> Float[Tensor, "*n H"]:
        """The hidden layer before dropout."""
        activated: Tensor = self.activation(query_part + memory_part)
        return activated

    def hidden(
        self, query_part: Float[Tensor, "*n H"], memory_part: Float[Tensor, "*n H"]
    ) -> Float[Tensor, "*n H"]:
        hidden: Tensor = self.dropout(self.activated(query_part, memory_part))
        return hidden

    def draw_noise(self, rows: int) -> Bool[Tensor, "n H"] | None:
        weight = self.output.weight
        return self.dropout.draw(torch.Size((rows, weight.shape[1])), weight.device)

    def hidden_with_noise(
        self,
        query_part: Float[Tensor, "*n H"],
        memory_part: Float[Tensor, "*n H"],
        kept: Bool[Tensor, "*n H"] | None,
    ) -> Float[Tensor, "*n H"]:
        activated = self.activated(query_part, memory_part)
        return activated if kept is None else self.dropout.keep(activated, kept)

    def is_repeatable(self) -> bool:
        return type(self).hidden is MLPHead.hidden and type(self.dropout) is Dropout

    def adds_members(self) -> bool:
        return type(self).memory_part is MLPHead.memory_part and type(self.from_memory) is Linear

    def hidden_by_row(self) -> bool:
        known = type(self).activated in (MLPHead.activated, ProductHead.activated)
        return known and type(self).hidden is MLPHead.hidden and type(self.activation) in BY_ROW


class ProductHead(MLPHead):
    """softmax(W (act(W1 X z) * act(W2 x~ + b2)) + b): the query says which properties of the member are asked for."""

    def activated(
        self, query_part: Float[Tensor, "*n H"], memory_part: Float[Tensor, "*n H"]
    ) -> Float[Tensor, "*n H"]:
        activated: Tensor = self.activation(query_part) * self.activation(memory_part)
        return activated


class ResidualHead(FactoredHead):
    """softmax(W norm(W1 x~ + W2 X z) + b): what a transformer would predict from its state plus the selected member.

    W may be tied to an embedding: `head.output.weight = embedding.weight`. Two options hide the query x~ from the
    output, so that z has more to explain: with a `bottleneck`, only so many numbers pass; `query_drop` is the share of
    queries that are left out altogether in training.
    """

    def __init__(
        self,
        query_dim: int,
        memory_dim: int,
        outputs: int,
        *,
        hidden: int = 256,
        dropout: float = 0.0,
        bottleneck: int | None = None,
        query_drop: float = 0.0,
    ) -> None:
        super().__init__()
        self.from_memory = Linear(memory_dim, hidden, bias=False)
        self.to_bottleneck = None if bottleneck is None else Linear(query_dim, bottleneck)
        self.from_query = Linear(query_dim if bottleneck is None else bottleneck, hidden)
        self.dropout = Dropout(dropout)
        self.output = Linear(hidden, outputs)
        self.query_drop = query_drop

    def memory_part(self, context: Float[Tensor, "*n D"]) -> Float[Tensor, "*n H"]:
        part: Tensor = self.dropout(self.from_memory(context))
        return part

    def query_part(self, query: Float[Tensor, "*n Dq"]) -> Float[Tensor, "*n H"]:
        query = query if self.to_bottleneck is None else self.to_bottleneck(query)
        part: Tensor = self.dropout(self.from_query(query))
        if self.training and self.query_drop:
            dropped = torch.rand(part.shape[:-1], device=part.device) < self.query_drop
            part = part.masked_fill(dropped.unsqueeze(-1), 0.0)
        return part

    def hidden(
        self, query_part: Float[Tensor, "*n H"], memory_part: Float[Tensor, "*n H"]
    ) -> Float[Tensor, "*n H"]:
        # Without learned scale and shift, which W1 and W2 can express: rows may then be computed piece by piece.
        return F.layer_norm(query_part + memory_part, query_part.shape[-1:]).to(query_part.dtype)

    def is_repeatable(self) -> bool:
        return type(self).hidden is ResidualHead.hidden  # dropout is in the parts

    def adds_members(self) -> bool:
        return type(self).memory_part is ResidualHead.memory_part and type(self.from_memory) is Linear

    def hidden_by_row(self) -> bool:
        return type(self).hidden is ResidualHead.hidden


class LinearHead(FactoredHead):
    """softmax(W X z): the paper's simplest f, whose curvature has a proven bound."""

    def __init__(self, memory_dim: int, outputs: int) -> None:
        super().__init__()
        self.output = Linear(memory_dim, outputs)

    def memory_part(self, context: Float[Tensor, "*n D"]) -> Float[Tensor, "*n D"]:
        return context

    def query_part(self, query: Float[Tensor, "*n Dq"]) -> Float[Tensor, "*n 1"]:
        return torch.zeros_like(query[..., :1])

    def hidden(
        self, query_part: Float[Tensor, "*n 1"], memory_part: Float[Tensor, "*n D"]
    ) -> Float[Tensor, "*n D"]:
        return memory_part

    def adds_members(self) -> bool:
        return type(self).memory_part is LinearHead.memory_part
