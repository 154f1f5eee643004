"""An LSTM decoder that is fed the expected context of its own attention.

The prior's mean is fed back, never a chosen z, so the recurrence needs no output layer. It runs first and gives every
query and every score; all emissions follow at once.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from latentalign.core.linear import Linear
from latentalign.core.numerics import NEG_INF
from latentalign.core.products import add_product_of_rows, product_of_rows, product_over_rows
from latentalign.core.score_steps import ScoreSteps
from latentalign.core.scores import resolve_score, score_steps
from latentalign.nn.dropout import Dropout
from latentalign.nn.packing import Packing
from latentalign.nn.recurrent import Cell

DecoderState = dict[str, Tensor]
"""`hidden.0`, `cell.0` and so on for every layer, and the `context` that the next step is fed: all (n, ...)."""


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
        self.from_word = Linear(inputs, 4 * hidden)
        # [context; own hidden state] for the first layer, [state below; own hidden state] above it.
        self.first = Linear(memory_dim + hidden, 4 * hidden, bias=False)
        self.upper = nn.ModuleList([Linear(2 * hidden, 4 * hidden) for _ in range(layers - 1)])
        self.score = resolve_score(score, query_dim=hidden, memory_dim=memory_dim, hidden=hidden)
        self.dropout = Dropout(dropout)
        self.cell = Cell()
        self.hidden_size, self.memory_dim, self.layers = hidden, memory_dim, layers

    def start(self, n: int, like: Tensor) -> DecoderState:
        """The state before the first word: zeros, as the encoder's state is not passed on."""
        names = [f"{kind}.{layer}" for kind in ("hidden", "cell") for layer in range(self.layers)]
        state = {name: like.new_zeros(n, self.hidden_size) for name in names}
        return {**state, "context": like.new_zeros(n, self.memory_dim)}

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
        packing = Packing.of(word_mask)
        mask = mask | ~mask.any(1, keepdim=True)  # softmax needs a member
        inputs = self.from_word(packing.pack(words)).to(dtype)
        memory, projected = memory.to(dtype), self.score.project(memory).to(dtype)
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
            scores = steps.finish(scores)
            return packing.unpack(queries), packing.unpack(scores)

    def project(self, memory: Float[Tensor, "B T D"]) -> Float[Tensor, "B T A"]:
        """What `step` needs of the source, computed once."""
        return self.score.project(memory)

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
        gates = self.from_word(words) + self.first(torch.cat([state["context"], state["hidden.0"]], -1))
        after: DecoderState = {}
        size = self.hidden_size
        for layer in range(self.layers):
            if layer > 0:
                below = self.dropout(after[f"hidden.{layer - 1}"])
                gates = self.upper[layer - 1](torch.cat([below, state[f"hidden.{layer}"]], -1))
            i, f, o = gates[:, : 3 * size].sigmoid().chunk(3, -1)
            cell = f * state[f"cell.{layer}"] + i * gates[:, 3 * size :].tanh()
            hidden = o * cell.tanh()
            after[f"hidden.{layer}"], after[f"cell.{layer}"] = hidden, cell
        scores = self.score.scores(hidden, projected)
        weight = scores.masked_fill(~mask, NEG_INF).softmax(-1)
        after["context"] = (weight.unsqueeze(1) @ memory).squeeze(1)
        return hidden, scores, after


class AttentionLoop(torch.autograd.Function):
    """The packed recurrence, forward and backward: queries and scores of every step.

    Autograd through such a loop would form each weight's gradient in as many small products as there are steps. Here
    the loop keeps what it needs, and each weight's gradient is one large product after it. `weights` are those of the
    upper layers, then the score's parameters.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        memory: Tensor,
        projected: Tensor,
        mask: Tensor,
        first: Tensor,
        noise: list[Tensor],
        packing: Packing,
        step: Cell,
        score: ScoreSteps,
        *weights: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """`inputs` are overwritten with the first layer's activations, which saves their memory."""
        upper = weights[: 2 * len(noise)]
        words, size = len(inputs), inputs.shape[1] // 4
        new, layers = inputs.new_empty, range(1 + len(noise))
        ins = [new(words, first.shape[1]), *[new(words, 2 * size) for _ in noise]]
        gates = [inputs.detach(), *[new(words, 4 * size) for _ in noise]]
        squashed, hidden = ([new(words, size) for _ in layers] for _ in range(2))
        zeros = inputs.new_zeros(packing.first, size)
        cells = [[zeros] for _ in layers]
        context = inputs.new_zeros(packing.first, 1, memory.shape[2])
        scores, attention = new(words, mask.shape[1]), new(words, mask.shape[1])
        absent = ~mask
        for rows, before in packing.steps:
            n = rows.stop - rows.start
            for k in layers:
                below = context[:n].squeeze(1) if k == 0 else hidden[k - 1][rows] * noise[k - 1][rows]
                torch.cat([below, zeros if before is None else hidden[k][before]], -1, out=ins[k][rows])
                if k > 0:
                    gates[k][rows] = upper[2 * k - 1]
                add_product_of_rows(gates[k][rows], ins[k], rows, (upper[2 * k - 2] if k else first).t())
                cell = cells[k][-1][:n]
                cells[k].append(torch.empty_like(cell))
                step.forward(gates[k][rows], cell, cells[k][-1], squashed[k][rows], hidden[k][rows])
            score.forward(rows, hidden[-1][rows], scores[rows])
            torch.softmax(scores[rows].masked_fill(absent[:n], NEG_INF), -1, out=attention[rows])
            torch.bmm(attention[rows].unsqueeze(1), memory[:n], out=context[:n])
        ctx.mark_dirty(inputs)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(memory, first, attention, hidden[-1], inputs, *upper, *score.saved)
        score.saved = ()
        ctx.kept = ins, gates[1:], cells, squashed, noise, packing, step, score
        return hidden[-1], scores, inputs

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, d_queries: Tensor | None, d_scores: Tensor | None, _: None
    ) -> tuple[Tensor | None, ...]:
        """Gradients of the inputs, the source and all weights."""
        ins, upper_gates, cells, squashed, noise, packing, step, score = ctx.kept
        memory, first, attention, queries, gates, *others = ctx.saved_tensors
        upper, score.saved = others[: 2 * len(noise)], tuple(others[2 * len(noise) :])
        gates, size, width = [gates.detach(), *upper_gates], queries.shape[1], memory.shape[2]
        d_queries = torch.zeros_like(queries) if d_queries is None else d_queries
        d_scores = torch.zeros_like(attention) if d_scores is None else d_scores.clone()
        d_gates = [torch.empty_like(g) for g in gates]
        d_hidden, d_cell = ([torch.zeros_like(c[0]) for c in cells] for _ in range(2))
        d_contexts = queries.new_zeros(len(queries), width)  # of the context that each step computes
        score.begin_backward()
        for t, (rows, before) in reversed([*enumerate(packing.steps)]):
            n = rows.stop - rows.start
            # A row vector times the transposed memory: nine times as fast as the memory times a column.
            d_attention = torch.bmm(d_contexts[rows].unsqueeze(1), memory[:n].transpose(1, 2)).squeeze(1)
            inner = (attention[rows] * d_attention).sum(-1, keepdim=True)
            d_scores[rows].addcmul_(attention[rows], d_attention - inner)
            d_hidden[-1][:n] += d_queries[rows]
            score.backward(rows, d_scores[rows], d_hidden[-1][:n])
            for k in reversed(range(len(gates))):
                states = gates[k][rows], cells[k][t][:n], squashed[k][rows], d_gates[k][rows]
                step.backward(d_hidden[k][:n], d_cell[k][:n], *states)
                d_in = product_of_rows(d_gates[k], rows, first if k == 0 else upper[2 * k - 2])
                d_hidden[k][:n] = d_in[:, -size:]
                if k > 0:
                    d_hidden[k - 1][:n].addcmul_(d_in[:, :size], noise[k - 1][rows])
                elif before is not None:
                    d_contexts[before] = d_in[:, :width]
        # Each step's context is its attention times the memory; the gradient of the memory sums over steps.
        d_memory = packing.by_step(attention).permute(1, 2, 0) @ packing.by_step(d_contexts).transpose(0, 1)
        d_upper = [
            g for d, x in zip(d_gates[1:], ins[1:], strict=True) for g in (product_over_rows(d, x), d.sum(0))
        ]
        d_projected, d_score = score.gradients(queries, d_scores, packing.by_step)
        score.saved = ()
        d_first = product_over_rows(d_gates[0], ins[0])
        return d_gates[0], d_memory, d_projected, None, d_first, None, None, None, None, *d_upper, *d_score
