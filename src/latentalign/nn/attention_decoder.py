"""An LSTM decoder that is fed the expected context of its own attention, with all emissions left for later.

What is fed back is the prior's mean, never a chosen z, so the recurrence needs no output layer: it runs
first and gives every query and every score; all emissions follow at once.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from latentalign.core.numerics import NEG_INF
from latentalign.core.scores import MLPScore, Score
from latentalign.nn.dropout import Dropout
from latentalign.nn.recurrent import cell_backward, cell_forward


class DecoderState:
    """Hidden states and cells of every layer, and the context to be fed in: all (n, ...)."""

    def __init__(self, hidden: list[Tensor], cell: list[Tensor], context: Tensor) -> None:
        self.hidden, self.cell, self.context = hidden, cell, context


class AttentionDecoder(nn.Module):
    """Layers of LSTM over [previous word; expected context], and scores of the source at every step."""

    def __init__(
        self, inputs: int, hidden: int, layers: int, *, memory_dim: int, score: Score, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.from_word = nn.Linear(inputs, 4 * hidden)
        # [context; own hidden state] for the first layer, [state below; own hidden state] above it.
        self.first = nn.Linear(memory_dim + hidden, 4 * hidden, bias=False)
        self.upper = nn.ModuleList([nn.Linear(2 * hidden, 4 * hidden) for _ in range(layers - 1)])
        self.score = score
        self.dropout = Dropout(dropout)
        self.hidden_size, self.memory_dim, self.layers = hidden, memory_dim, layers

    def start(self, n: int, like: Tensor) -> DecoderState:
        """Zeros: there is no bridge from the encoder."""
        zeros = [like.new_zeros(n, self.hidden_size) for _ in range(2 * self.layers)]
        return DecoderState(zeros[: self.layers], zeros[self.layers :], like.new_zeros(n, self.memory_dim))

    def forward(
        self,
        words: Float[Tensor, "B S E"],
        memory: Float[Tensor, "B T D"],
        mask: Bool[Tensor, "B T"],
    ) -> tuple[Float[Tensor, "B S H"], Float[Tensor, "B S T"]]:
        """Every query and every score, for a target known beforehand."""
        # The recurrence is in the weights' precision, whatever autocast makes of what comes in.
        dtype = self.first.weight.dtype
        memory, projected = memory.to(dtype), self.score.project(memory).to(dtype)
        inputs = self.from_word(words).transpose(0, 1).to(dtype).contiguous()
        with torch.autocast(memory.device.type, enabled=False):
            return self.loop(inputs, memory, projected, mask)

    def loop(
        self, inputs: Float[Tensor, "S B G"], memory: Tensor, projected: Tensor, mask: Tensor
    ) -> tuple[Float[Tensor, "B S H"], Float[Tensor, "B S T"]]:
        """The fast recurrence where score and precision allow it, else the plain one."""
        if not isinstance(self.score, MLPScore) or inputs.element_size() < 4:
            return self.plain_loop(inputs, memory, projected, mask)
        noise = [self.dropout(torch.ones_like(inputs[..., : self.hidden_size])) for _ in self.upper]
        weights = [x for layer in self.upper for x in (layer.weight, layer.bias)]
        to_score = self.score.to_score.weight.squeeze(0)
        queries, scores = AttentionLoop.apply(  # type: ignore[no-untyped-call]
            inputs,
            memory,
            projected,
            mask,
            self.first.weight,
            2 * self.score.from_query.weight,  # as in MLPScore: tanh(a) = 2 sigmoid(2a) - 1
            2 * to_score,
            noise,
            *weights,
        )
        return queries.transpose(0, 1), scores.transpose(0, 1) - to_score.sum()

    def plain_loop(
        self, inputs: Float[Tensor, "S B G"], memory: Tensor, projected: Tensor, mask: Tensor
    ) -> tuple[Float[Tensor, "B S H"], Float[Tensor, "B S T"]]:
        """The same by autograd, one step after the other: for any score, and the yardstick of the fast loop."""
        state = self.start(memory.shape[0], memory)
        queries, scores = [], []
        for one in inputs:
            query, score, state = self.advance(one, state, memory, projected, mask=mask)
            queries.append(query)
            scores.append(score)
        return torch.stack(queries, 1), torch.stack(scores, 1)

    def step(
        self,
        words: Float[Tensor, "n E"],
        state: DecoderState,
        memory: Float[Tensor, "n T D"],
        projected: Float[Tensor, "n T A"],
        *,
        mask: Bool[Tensor, "n T"],
    ) -> tuple[Float[Tensor, "n H"], Float[Tensor, "n T"], DecoderState]:
        """One step for decoding: query, scores and the next state."""
        return self.advance(self.from_word(words), state, memory, projected, mask=mask)

    def advance(
        self, inputs: Tensor, state: DecoderState, memory: Tensor, projected: Tensor, *, mask: Tensor
    ) -> tuple[Tensor, Tensor, DecoderState]:
        gates = inputs + self.first(torch.cat([state.context, state.hidden[0]], -1))
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


class AttentionLoop(torch.autograd.Function):
    """The decoder's recurrence with MLP attention; weight gradients are formed after the loop, one product each."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        memory: Tensor,
        projected: Tensor,
        mask: Tensor,
        first: Tensor,
        from_query: Tensor,
        to_score: Tensor,
        noise: list[Tensor],
        *upper: Tensor,
    ) -> tuple[Tensor, Tensor]:
        steps, batch, _ = inputs.shape
        layers, size = 1 + len(upper) // 2, from_query.shape[1]
        new = inputs.new_empty
        ins = [new(steps, batch, first.shape[1]), *[new(steps, batch, 2 * size) for _ in noise]]
        gates = [new(steps, batch, 4 * size) for _ in range(layers)]
        cells = [inputs.new_zeros(steps + 1, batch, size) for _ in range(layers)]
        squashed = [new(steps, batch, size) for _ in range(layers)]
        hidden = [inputs.new_zeros(steps + 1, batch, size) for _ in range(layers)]
        context = inputs.new_zeros(batch, 1, memory.shape[2])
        bent = new(steps, *projected.shape)
        scores, weights = new(steps, *mask.shape), new(steps, *mask.shape)
        absent = ~mask
        across = from_query.t()
        for t in range(steps):
            for k in range(layers):
                below = context.squeeze(1) if k == 0 else hidden[k - 1][t + 1] * noise[k - 1][t]
                torch.cat([below, hidden[k][t]], -1, out=ins[k][t])
                base, weight = (inputs[t], first) if k == 0 else (upper[2 * k - 1], upper[2 * k - 2])
                torch.addmm(base, ins[k][t], weight.t(), out=gates[k][t])
                cell_forward(gates[k][t], cells[k][t], cells[k][t + 1], squashed[k][t], hidden[k][t + 1])
            torch.add(projected, (hidden[-1][t + 1] @ across).unsqueeze(1), out=bent[t]).sigmoid_()
            torch.matmul(bent[t], to_score, out=scores[t])
            torch.softmax(scores[t].masked_fill(absent, NEG_INF), -1, out=weights[t])
            torch.bmm(weights[t].unsqueeze(1), memory, out=context)
        queries = hidden[-1][1:]
        ctx.save_for_backward(memory, first, from_query, to_score, bent, weights, queries, *upper)
        ctx.kept = ins, gates, cells, squashed, noise
        return queries, scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_queries: Tensor, d_scores: Tensor) -> tuple[Tensor | None, ...]:
        memory, first, from_query, to_score, bent, weights, queries, *upper = ctx.saved_tensors
        ins, gates, cells, squashed, noise = ctx.kept
        steps, batch, size = queries.shape
        layers, width = len(gates), memory.shape[2]
        d_gates = [torch.empty_like(g) for g in gates]
        d_hidden = [torch.zeros_like(queries[0]) for _ in range(layers)]
        d_cell = [torch.zeros_like(queries[0]) for _ in range(layers)]
        d_contexts = queries.new_zeros(steps + 1, batch, width)  # of the context that each step made
        d_asked = queries.new_empty(steps, batch, bent.shape[-1])
        d_projected, d_to_score = torch.zeros_like(bent[0]), torch.zeros_like(to_score)
        for t in reversed(range(steps)):
            d_weight = (memory @ d_contexts[t + 1].unsqueeze(2)).squeeze(2)
            inner = (weights[t] * d_weight).sum(-1, keepdim=True)
            d_score = torch.addcmul(d_scores[t], weights[t], d_weight - inner)
            d_to_score.addmv_(bent[t].flatten(0, 1).t(), d_score.flatten())
            d_bent = torch.ops.aten.sigmoid_backward(d_score.unsqueeze(2) * to_score, bent[t])
            d_projected += d_bent
            torch.sum(d_bent, 1, out=d_asked[t])
            d_top = d_queries[t] + d_hidden[-1]
            d_hidden[-1] = torch.addmm(d_top, d_asked[t], from_query)
            for k in reversed(range(layers)):
                cell_backward(d_hidden[k], d_cell[k], gates[k][t], cells[k][t], squashed[k][t], d_gates[k][t])
                d_in = d_gates[k][t] @ (first if k == 0 else upper[2 * k - 2])
                d_hidden[k] = d_in[:, -size:]
                if k == 0:
                    d_contexts[t] = d_in[:, :width]
                else:
                    d_hidden[k - 1] = torch.addcmul(d_hidden[k - 1], d_in[:, :size], noise[k - 1][t])
        # Each step's context was the weighted memory of the step before it reached: gradients, all at once.
        d_memory = weights.permute(1, 2, 0) @ d_contexts[1:].transpose(0, 1)
        d_from_query = d_asked.flatten(0, 1).t() @ queries.flatten(0, 1)
        flat = [(d.flatten(0, 1), x.flatten(0, 1)) for d, x in zip(d_gates, ins, strict=True)]
        d_first = flat[0][0].t() @ flat[0][1]
        d_upper = [g for d, x in flat[1:] for g in (d.t() @ x, d.sum(0))]
        return d_gates[0], d_memory, d_projected, None, d_first, d_from_query, d_to_score, None, *d_upper
