"""LSTM layers whose weight gradients are one large product, and which compute nothing for padding.

Backpropagation through a loop of small matrix products forms each weight's gradient in as many small
products as there are steps. Here the loop keeps what it needs, and the weight gradients are formed after it.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


def cell_forward(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One LSTM step from pre-activations (n, 4H) in the order input, forget, output, candidate.

    Returns the new hidden state, the new cell and its tanh; `gates` is left holding the activations.
    """
    size = cell.shape[-1]
    gates[:, : 3 * size].sigmoid_()
    gates[:, 3 * size :].tanh_()
    i, f, o, g = gates.split(size, dim=-1)
    new_cell = torch.addcmul(f * cell, i, g)
    squashed = new_cell.tanh()
    return o * squashed, new_cell, squashed


def cell_backward(
    d_hidden: Tensor, d_cell: Tensor, gates: Tensor, cell: Tensor, squashed: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients by the pre-activations and by the previous cell, from those of the new hidden state and cell."""
    i, f, o, g = gates.split(cell.shape[-1], dim=-1)
    d_cell = torch.addcmul(d_cell, d_hidden * o, 1 - squashed * squashed)
    d_gates = torch.empty_like(gates)
    d_i, d_f, d_o, d_g = d_gates.split(cell.shape[-1], dim=-1)
    torch.mul(d_cell * g, i * (1 - i), out=d_i)
    torch.mul(d_cell * cell, f * (1 - f), out=d_f)
    torch.mul(d_hidden * squashed, o * (1 - o), out=d_o)
    torch.mul(d_cell * i, 1 - g * g, out=d_g)
    return d_gates, d_cell * f


class LSTMLoop(torch.autograd.Function):
    """The recurrence of one LSTM layer in one direction, over sequences sorted by falling length.

    At step t only the first `live[t]` rows exist, so that neither direction ever sees padding.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, live: list[int], reverse: bool) -> Tensor:
        steps, batch, size = inputs.shape[0], inputs.shape[1], weight.shape[1]
        hidden, cell = inputs.new_zeros(batch, size), inputs.new_zeros(batch, size)
        out = inputs.new_zeros(steps, batch, size)
        before, cells = inputs.new_zeros(steps, batch, size), inputs.new_zeros(steps, batch, size)
        gates, squashed = torch.zeros_like(inputs), inputs.new_zeros(steps, batch, size)
        for t in reversed(range(steps)) if reverse else range(steps):
            n = live[t]
            before[t, :n], cells[t, :n] = hidden[:n], cell[:n]
            torch.addmm(inputs[t, :n], hidden[:n], weight.t(), out=gates[t, :n])
            new_hidden, new_cell, squashed[t, :n] = cell_forward(gates[t, :n], cell[:n])
            hidden[:n], cell[:n], out[t, :n] = new_hidden, new_cell, new_hidden
        ctx.save_for_backward(weight, before, cells, gates, squashed)
        ctx.live, ctx.reverse = live, reverse
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor, Tensor, None, None]:
        weight, before, cells, gates, squashed = ctx.saved_tensors
        steps, batch, size = d_out.shape
        d_hidden, d_cell = d_out.new_zeros(batch, size), d_out.new_zeros(batch, size)
        d_gates = torch.zeros_like(gates)
        for t in range(steps) if ctx.reverse else reversed(range(steps)):
            n = ctx.live[t]
            d_gates[t, :n], d_cell[:n] = cell_backward(
                d_out[t, :n] + d_hidden[:n], d_cell[:n], gates[t, :n], cells[t, :n], squashed[t, :n]
            )
            torch.mm(d_gates[t, :n], weight, out=d_hidden[:n])
        d_weight = d_gates.flatten(0, 1).t() @ before.flatten(0, 1)
        return d_gates, d_weight, None, None


def lstm_loop(
    inputs: Float[Tensor, "S B G"], weight: Float[Tensor, "G H"], live: list[int], *, reverse: bool
) -> Float[Tensor, "S B H"]:
    """Hidden states of every step, zeros in padding; in the weights' precision, whatever comes in."""
    with torch.autocast(inputs.device.type, enabled=False):
        out: Tensor = LSTMLoop.apply(inputs.to(weight.dtype), weight, live, reverse)  # type: ignore[no-untyped-call]
    return out


class LSTMLayer(nn.Module):
    """One direction of one layer; gates in the order input, forget, output, candidate."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.from_input = nn.Linear(inputs, 4 * hidden)
        self.from_hidden = nn.Linear(hidden, 4 * hidden, bias=False)

    def forward(
        self, x: Float[Tensor, "S B D"], live: list[int], *, reverse: bool = False
    ) -> Float[Tensor, "S B H"]:
        return lstm_loop(self.from_input(x), self.from_hidden.weight, live, reverse=reverse)


class LSTMStack(nn.Module):
    """Layers of LSTM, one or both directions, with dropout between layers; padding gets zeros."""

    def __init__(
        self, inputs: int, hidden: int, layers: int, *, bidirectional: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__()
        directions = 2 if bidirectional else 1
        sizes = [inputs, *[directions * hidden] * (layers - 1)]
        self.forwards = nn.ModuleList([LSTMLayer(size, hidden) for size in sizes])
        self.backwards = nn.ModuleList([LSTMLayer(size, hidden) for size in sizes] if bidirectional else [])
        self.dropout = nn.Dropout(dropout)
        self.output_size = directions * hidden

    def forward(self, x: Float[Tensor, "B S D"], mask: Bool[Tensor, "B S"]) -> Float[Tensor, "B S H"]:
        order, live = by_length(mask)
        h = x.index_select(0, order).transpose(0, 1)
        for layer, forwards in enumerate(self.forwards):
            h = h if layer == 0 else self.dropout(h)
            parts = [forwards(h, live)]
            if len(self.backwards):
                parts.append(self.backwards[layer](h, live, reverse=True))
            h = torch.cat(parts, -1)
        return h.transpose(0, 1).index_select(0, order.argsort())


def by_length(mask: Bool[Tensor, "B S"]) -> tuple[Int[Tensor, "B"], list[int]]:
    """Rows in order of falling length, and how many of them are alive at each step."""
    lengths = mask.sum(1)
    order = lengths.argsort(descending=True, stable=True)
    live = (lengths.unsqueeze(0) > torch.arange(mask.shape[1], device=mask.device).unsqueeze(1)).sum(1)
    return order, live.tolist()
