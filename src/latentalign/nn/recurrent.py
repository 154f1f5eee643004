"""LSTM layers whose weight gradients are one large product, and which compute nothing for padding.

Backpropagation through a loop of small matrix products forms each weight's gradient in as many small
products as there are steps. Here the loop keeps what it needs, and the weight gradients are formed after it.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from latentalign.nn.dropout import Dropout


def cell_forward(gates: Tensor, cell: Tensor, new_cell: Tensor, squashed: Tensor, hidden: Tensor) -> None:
    """One LSTM step from pre-activations (..., 4H) in the order input, forget, output, candidate.

    `gates` is left holding the activations; the new cell, its tanh and the new hidden state are written where told.
    """
    size = cell.shape[-1]
    gates[..., : 3 * size].sigmoid_()
    gates[..., 3 * size :].tanh_()
    i, f, o, g = gates.split(size, dim=-1)
    torch.mul(f, cell, out=new_cell).addcmul_(i, g)
    torch.tanh(new_cell, out=squashed)
    torch.mul(o, squashed, out=hidden)


def cell_backward(
    d_hidden: Tensor, d_cell: Tensor, gates: Tensor, cell: Tensor, squashed: Tensor, d_gates: Tensor
) -> None:
    """From the gradients of new hidden state and cell: those of the pre-activations, written into `d_gates`, and of
    the previous cell, in the place of `d_cell`."""
    size = cell.shape[-1]
    i, f, o, g = gates.split(size, dim=-1)
    d_cell += torch.ops.aten.tanh_backward(d_hidden * o, squashed)
    d_i, d_f, d_o, d_g = d_gates.split(size, dim=-1)
    torch.mul(d_cell, g, out=d_i)
    torch.mul(d_cell, cell, out=d_f)
    torch.mul(d_hidden, squashed, out=d_o)
    torch.mul(d_cell, i, out=d_g)
    d_smooth = d_gates[..., : 3 * size]
    torch.ops.aten.sigmoid_backward.grad_input(d_smooth, gates[..., : 3 * size], grad_input=d_smooth)
    torch.ops.aten.tanh_backward.grad_input(d_g, g, grad_input=d_g)
    d_cell *= f


class LSTMLoop(torch.autograd.Function):
    """The recurrences of R independent layers of one size, over sequences sorted by falling length.

    At step t only the first `live[t]` rows exist, so that padding is never computed.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, live: list[int]) -> Tensor:
        runs, steps, batch, _ = inputs.shape
        size = weight.shape[-1]
        hidden = inputs.new_zeros(runs, steps + 1, batch, size)  # before the first step, and after each
        cells, squashed = torch.zeros_like(hidden), inputs.new_empty(runs, steps, batch, size)
        gates = torch.empty_like(inputs)
        across = weight.transpose(1, 2).contiguous()
        for t, n in enumerate(live):
            now, before = gates[:, t, :n], cells[:, t, :n]
            torch.baddbmm(inputs[:, t, :n], hidden[:, t, :n], across, out=now)
            cell_forward(now, before, cells[:, t + 1, :n], squashed[:, t, :n], hidden[:, t + 1, :n])
        ctx.save_for_backward(weight, hidden, cells, gates, squashed)
        ctx.live = live
        return hidden[:, 1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor, Tensor, None]:
        weight, hidden, cells, gates, squashed = ctx.saved_tensors
        d_hidden, d_cell = torch.zeros_like(hidden[:, 0]), torch.zeros_like(hidden[:, 0])
        d_gates = torch.zeros_like(gates)
        for t, n in reversed([*enumerate(ctx.live)]):
            above, now = d_out[:, t, :n] + d_hidden[:, :n], d_gates[:, t, :n]
            cell_backward(above, d_cell[:, :n], gates[:, t, :n], cells[:, t, :n], squashed[:, t, :n], now)
            torch.bmm(now, weight, out=d_hidden[:, :n])
        d_weight = d_gates.flatten(1, 2).transpose(1, 2) @ hidden[:, :-1].reshape(
            len(weight), -1, weight.shape[-1]
        )
        return d_gates, d_weight, None


def lstm_loop(
    inputs: Float[Tensor, "R S B G"], weight: Float[Tensor, "R G H"], live: list[int]
) -> Float[Tensor, "R S B H"]:
    """Hidden states of every step, zeros in padding; in the weights' precision, whatever comes in."""
    with torch.autocast(inputs.device.type, enabled=False):
        out: Tensor = LSTMLoop.apply(inputs.to(weight.dtype), weight, live)  # type: ignore[no-untyped-call]
    return out


class LSTMLayer(nn.Module):
    """The weights of one direction of one layer; gates in the order input, forget, output, candidate."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.from_input = nn.Linear(inputs, 4 * hidden)
        self.from_hidden = nn.Linear(hidden, 4 * hidden, bias=False)


class LSTMStack(nn.Module):
    """Layers of LSTM, one or both directions, with dropout between layers; padding gets zeros.

    The backward direction reads every sentence reversed within its own length, so that both directions of a layer
    are one loop of two independent recurrences.
    """

    def __init__(
        self, inputs: int, hidden: int, layers: int, *, bidirectional: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__()
        directions = 2 if bidirectional else 1
        sizes = [inputs, *[directions * hidden] * (layers - 1)]
        self.forwards = nn.ModuleList([LSTMLayer(size, hidden) for size in sizes])
        self.backwards = nn.ModuleList([LSTMLayer(size, hidden) for size in sizes] if bidirectional else [])
        self.dropout = Dropout(dropout)
        self.output_size = directions * hidden

    def forward(self, x: Float[Tensor, "B S D"], mask: Bool[Tensor, "B S"]) -> Float[Tensor, "B S H"]:
        order, live = by_length(mask)
        flip = reversal(mask.index_select(0, order))
        h = x.index_select(0, order).transpose(0, 1)
        for layer in range(len(self.forwards)):
            h = h if layer == 0 else self.dropout(h)
            sides = [cast(LSTMLayer, stack[layer]) for stack in (self.forwards, self.backwards) if len(stack)]
            h = self.layer(h, sides, flip, live)
        return h.transpose(0, 1).index_select(0, order.argsort())

    def layer(
        self, h: Float[Tensor, "S B D"], sides: list[LSTMLayer], flip: Int[Tensor, "n"], live: list[int]
    ) -> Float[Tensor, "S B H"]:
        """One layer: input projections of all directions in one product, then their loops in one."""
        steps, batch, _ = h.shape
        rows = h.reshape(steps * batch, -1)
        each = torch.stack([rows, rows.index_select(0, flip)][: len(sides)])
        weight = torch.stack([side.from_input.weight for side in sides])
        bias = torch.stack([side.from_input.bias for side in sides])
        inputs = torch.baddbmm(bias.unsqueeze(1), each, weight.transpose(1, 2))
        recurrent = torch.stack([side.from_hidden.weight for side in sides])
        out = lstm_loop(inputs.view(len(sides), steps, batch, -1), recurrent, live)
        if len(sides) == 1:
            return out[0]
        back = out[1].reshape(steps * batch, -1).index_select(0, flip).view(steps, batch, -1)
        return torch.cat([out[0], back], -1)


def reversal(mask: Bool[Tensor, "B S"]) -> Int[Tensor, "n"]:
    """Where to read each place of (S, B), flattened, to have every sentence backwards within its length."""
    batch, steps = mask.shape
    lengths = mask.sum(1)
    t = torch.arange(steps, device=mask.device).unsqueeze(1)
    source = torch.where(t < lengths, lengths - 1 - t, t)
    return (source * batch + torch.arange(batch, device=mask.device)).flatten()


def by_length(mask: Bool[Tensor, "B S"]) -> tuple[Int[Tensor, "B"], list[int]]:
    """Rows in order of falling length, and how many of them are alive at each step."""
    lengths = mask.sum(1)
    order = lengths.argsort(descending=True, stable=True)
    live = (lengths.unsqueeze(0) > torch.arange(mask.shape[1], device=mask.device).unsqueeze(1)).sum(1)
    return order, live.tolist()
