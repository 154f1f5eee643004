"""An LSTM decoder that is fed the expected context of its own attention.

The prior's mean is fed back, never a chosen z, so the recurrence needs no output layer. It runs first and gives every
query and every score; all emissions follow at once.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from latentalign.core.numerics import NEG_INF
from latentalign.core.scores import resolve_score, score_steps
from latentalign.nn.attention_loop import AttentionLoop
from latentalign.nn.dropout import Dropout
from latentalign.nn.packing import Packing
from latentalign.nn.recurrent import Cell


class DecoderState:
    """Hidden states and cells of every layer, and the context that the next step is fed: all (n, ...)."""

    def __init__(self, hidden: list[Tensor], cell: list[Tensor], context: Tensor) -> None:
        self.hidden, self.cell, self.context = hidden, cell, context


class AttentionDecoder(nn.Module):
    """LSTM layers over [previous word; expected context], with scores of the source at every step.

    `score` is a registered name or a module; see `latentalign.core.scores`.
    """

    def __init__(
        self,
        inputs: int,
        hidden: int,
        layers: int,
        *,
        memory_dim: int,
        score: str | nn.Module = "mlp",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.from_word = nn.Linear(inputs, 4 * hidden)
        # [context; own hidden state] for the first layer, [state below; own hidden state] above it.
        self.first = nn.Linear(memory_dim + hidden, 4 * hidden, bias=False)
        self.upper = nn.ModuleList([nn.Linear(2 * hidden, 4 * hidden) for _ in range(layers - 1)])
        self.score = resolve_score(score, query_dim=hidden, memory_dim=memory_dim, hidden=hidden)
        self.dropout = Dropout(dropout)
        self.cell = Cell()
        self.hidden_size, self.memory_dim, self.layers = hidden, memory_dim, layers

    def start(self, n: int, like: Tensor) -> DecoderState:
        """The state before the first word: zeros, as the encoder's state is not passed on."""
        zeros = [like.new_zeros(n, self.hidden_size) for _ in range(2 * self.layers)]
        return DecoderState(zeros[: self.layers], zeros[self.layers :], like.new_zeros(n, self.memory_dim))

    def forward(
        self,
        words: Float[Tensor, "B S E"],
        word_mask: Bool[Tensor, "B S"],
        memory: Float[Tensor, "B T D"],
        *,
        mask: Bool[Tensor, "B T"],
    ) -> tuple[Float[Tensor, "B S H"], Float[Tensor, "B S T"]]:
        """Queries and scores of every step of a known target; their values in padding have no meaning."""
        # The recurrence runs in the weights' precision, whatever autocast has done to its inputs.
        dtype = self.first.weight.dtype
        memory, projected = memory.to(dtype), self.score.project(memory).to(dtype)
        packing = Packing.of(word_mask)
        inputs = self.from_word(packing.pack(words)).to(dtype)
        with torch.autocast(memory.device.type, enabled=False):
            noise = [self.dropout(torch.ones_like(inputs[:, : self.hidden_size])) for _ in self.upper]
            memory, projected, mask = (x.index_select(0, packing.order) for x in (memory, projected, mask))
            steps = score_steps(self.score, projected, len(inputs))
            queries, scores, _ = AttentionLoop.apply(  # type: ignore[no-untyped-call]
                inputs,
                memory,
                projected,
                mask,
                self.first.weight,
                noise,
                packing,
                self.cell,
                steps,
                *[x for layer in self.upper for x in (layer.weight, layer.bias)],
                *steps.parameters,
            )
            return packing.unpack(queries), packing.unpack(steps.finish(scores))

    def step(
        self,
        words: Float[Tensor, "n E"],
        state: DecoderState,
        memory: Float[Tensor, "n T D"],
        projected: Float[Tensor, "n T A"],
        *,
        mask: Bool[Tensor, "n T"],
    ) -> tuple[Float[Tensor, "n H"], Float[Tensor, "n T"], DecoderState]:
        """Query, scores and next state of one step, for decoding."""
        gates = self.from_word(words) + self.first(torch.cat([state.context, state.hidden[0]], -1))
        hidden: list[Tensor] = []
        cells: list[Tensor] = []
        for layer in range(self.layers):
            if layer > 0:
                below = self.dropout(hidden[-1])
                gates = self.upper[layer - 1](torch.cat([below, state.hidden[layer]], -1))
            size = self.hidden_size
            i, f, o = gates[:, : 3 * size].sigmoid().chunk(3, -1)
            cells.append(f * state.cell[layer] + i * gates[:, 3 * size :].tanh())
            hidden.append(o * cells[-1].tanh())
        scores = self.score.scores(hidden[-1], projected)
        weight = scores.masked_fill(~mask, NEG_INF).softmax(-1)
        context = (weight.unsqueeze(1) @ memory).squeeze(1)
        return hidden[-1], scores, DecoderState(hidden, cells, context)
