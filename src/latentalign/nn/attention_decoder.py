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
from latentalign.nn.packing import Packing
from latentalign.nn.recurrent import Cell


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
        self.cell = Cell()
        self.hidden_size, self.memory_dim, self.layers = hidden, memory_dim, layers

    def start(self, n: int, like: Tensor) -> DecoderState:
        """Zeros: there is no bridge from the encoder."""
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
        """Every query and every score, for a target known beforehand; what stands in padding means nothing."""
        # The recurrence is in the weights' precision, whatever autocast makes of what comes in.
        dtype = self.first.weight.dtype
        memory, projected = memory.to(dtype), self.score.project(memory).to(dtype)
        if not isinstance(self.score, MLPScore) or memory.element_size() < 4:
            words = words.masked_fill(~word_mask.unsqueeze(-1), 0.0)
            inputs = self.from_word(words).transpose(0, 1).to(dtype)
            with torch.autocast(memory.device.type, enabled=False):
                return self.plain_loop(inputs, memory, projected, mask)
        packing = Packing.of(word_mask)
        inputs = self.from_word(packing.pack(words)).to(dtype)
        with torch.autocast(memory.device.type, enabled=False):
            queries, scores = self.packed_loop(inputs, memory, projected, mask=mask, packing=packing)
            return packing.unpack(queries), packing.unpack(scores)

    def packed_loop(
        self,
        inputs: Float[Tensor, "N G"],
        memory: Tensor,
        projected: Tensor,
        *,
        mask: Tensor,
        packing: Packing,
    ) -> tuple[Float[Tensor, "N H"], Float[Tensor, "N T"]]:
        """The fast recurrence, of words that exist; `inputs` are consumed."""
        assert isinstance(self.score, MLPScore)
        noise = [self.dropout(torch.ones_like(inputs[:, : self.hidden_size])) for _ in self.upper]
        weights = [x for layer in self.upper for x in (layer.weight, layer.bias)]
        to_score = self.score.to_score.weight.squeeze(0)
        queries, scores, _ = AttentionLoop.apply(  # type: ignore[no-untyped-call]
            inputs,
            *(x.index_select(0, packing.order) for x in (memory, projected, mask)),
            self.first.weight,
            2 * self.score.from_query.weight,  # as in MLPScore: tanh(a) = 2 sigmoid(2a) - 1
            2 * to_score,
            noise,
            packing,
            self.cell,
            *weights,
        )
        return queries, scores - to_score.sum()

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
    """The decoder's recurrence with MLP attention, packed; weight gradients are formed after it, one product each."""

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
        packing: Packing,
        step: Cell,
        *upper: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and scores; `inputs` are left as the first layer's activations, which saves their memory."""
        words, size = len(inputs), from_query.shape[1]
        new, layers = inputs.new_empty, range(1 + len(noise))
        ins = [new(words, first.shape[1]), *[new(words, 2 * size) for _ in noise]]
        gates = [inputs.detach(), *[new(words, 4 * size) for _ in noise]]
        squashed, hidden = ([new(words, size) for _ in layers] for _ in range(2))
        nothing = inputs.new_zeros(packing.first, size)
        cells = [[nothing] for _ in layers]
        context = inputs.new_zeros(packing.first, 1, memory.shape[2])
        bent = new(words, *projected.shape[1:])
        scores, weights = new(words, mask.shape[1]), new(words, mask.shape[1])
        absent, across = ~mask, from_query.t()
        for rows, before in packing.walk():
            n = rows.stop - rows.start
            for k in layers:
                below = context[:n].squeeze(1) if k == 0 else hidden[k - 1][rows] * noise[k - 1][rows]
                torch.cat([below, nothing if before is None else hidden[k][before]], -1, out=ins[k][rows])
                if k == 0:
                    gates[k][rows].addmm_(ins[k][rows], first.t())
                else:
                    torch.addmm(upper[2 * k - 1], ins[k][rows], upper[2 * k - 2].t(), out=gates[k][rows])
                cell = cells[k][-1][:n]
                cells[k].append(torch.empty_like(cell))
                step.forward(gates[k][rows], cell, cells[k][-1], squashed[k][rows], hidden[k][rows])
            asked = (hidden[-1][rows] @ across).unsqueeze(1)
            torch.add(projected[:n], asked, out=bent[rows]).sigmoid_()
            torch.matmul(bent[rows], to_score, out=scores[rows])
            torch.softmax(scores[rows].masked_fill(absent[:n], NEG_INF), -1, out=weights[rows])
            torch.bmm(weights[rows].unsqueeze(1), memory[:n], out=context[:n])
        ctx.mark_dirty(inputs)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(memory, first, from_query, to_score, bent, weights, hidden[-1], inputs, *upper)
        ctx.kept = ins, gates[1:], cells, squashed, noise, packing, step
        return hidden[-1], scores, inputs

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, d_queries: Tensor | None, d_scores: Tensor | None, _: None
    ) -> tuple[Tensor | None, ...]:
        memory, first, from_query, to_score, bent, weights, queries, gates, *upper = ctx.saved_tensors
        ins, upper_gates, cells, squashed, noise, packing, step = ctx.kept
        gates, size, width = [gates.detach(), *upper_gates], queries.shape[1], memory.shape[2]
        d_queries = torch.zeros_like(queries) if d_queries is None else d_queries
        d_scores = torch.zeros_like(weights) if d_scores is None else d_scores
        d_gates = [torch.empty_like(g) for g in gates]
        d_hidden, d_cell = ([torch.zeros_like(c[0]) for c in cells] for _ in range(2))
        d_contexts = queries.new_zeros(len(queries), width)  # of the context that each step made
        d_asked = queries.new_empty(len(queries), bent.shape[-1])
        d_projected, d_to_score = bent.new_zeros(len(memory), *bent.shape[1:]), torch.zeros_like(to_score)
        for t, (rows, before) in reversed([*enumerate(packing.walk())]):
            n = rows.stop - rows.start
            # A row vector times the transposed memory: nine times as fast as the memory times a column.
            d_weight = torch.bmm(d_contexts[rows].unsqueeze(1), memory[:n].transpose(1, 2)).squeeze(1)
            inner = (weights[rows] * d_weight).sum(-1, keepdim=True)
            d_score = torch.addcmul(d_scores[rows], weights[rows], d_weight - inner)
            d_to_score.addmv_(bent[rows].flatten(0, 1).t(), d_score.flatten())
            d_bent = torch.ops.aten.sigmoid_backward(d_score.unsqueeze(2) * to_score, bent[rows])
            d_projected[:n] += d_bent
            torch.sum(d_bent, 1, out=d_asked[rows])
            d_hidden[-1][:n] += d_queries[rows]
            d_hidden[-1][:n].addmm_(d_asked[rows], from_query)
            for k in reversed(range(len(gates))):
                states = gates[k][rows], cells[k][t][:n], squashed[k][rows], d_gates[k][rows]
                step.backward(d_hidden[k][:n], d_cell[k][:n], *states)
                d_in = d_gates[k][rows] @ (first if k == 0 else upper[2 * k - 2])
                d_hidden[k][:n] = d_in[:, -size:]
                if k > 0:
                    d_hidden[k - 1][:n].addcmul_(d_in[:, :size], noise[k - 1][rows])
                elif before is not None:
                    d_contexts[before] = d_in[:, :width]
        # Each step's context was the weighted memory of the step before it reached: gradients, all at once.
        d_memory = packing.by_step(weights).permute(1, 2, 0) @ packing.by_step(d_contexts).transpose(0, 1)
        d_upper = [g for d, x in zip(d_gates[1:], ins[1:], strict=True) for g in (d.t() @ x, d.sum(0))]
        d_weights = d_gates[0].t() @ ins[0], d_asked.t() @ queries, d_to_score
        return d_gates[0], d_memory, d_projected, None, *d_weights, None, None, None, *d_upper
