"""LSTM layers whose weight gradients are one large product, and which compute nothing for padding.

Backpropagation through a loop of small matrix products forms each weight's gradient in as many small
products as there are steps. Here the loop keeps what it needs, and the weight gradients are formed after it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from latentalign.nn.dropout import Dropout
from latentalign.nn.packing import Packing


def tanh_(x: Tensor) -> None:
    """tanh in place, as 2 sigmoid(2x) - 1: half the time on a CPU, but in half precision few digits near zero."""
    if x.element_size() < 4:
        x.tanh_()
    else:
        x.mul_(2).sigmoid_().mul_(2).sub_(1)


def cell_forward(gates: Tensor, cell: Tensor, new_cell: Tensor, squashed: Tensor, hidden: Tensor) -> None:
    """One LSTM step from pre-activations (..., 4H) in the order input, forget, output, candidate.

    `gates` is left holding the activations; the new cell, its tanh and the new hidden state are written where told.
    """
    size = cell.shape[-1]
    i, f, o, g = gates.split(size, dim=-1)
    gates[..., : 3 * size].sigmoid_()
    tanh_(g)
    torch.mul(f, cell, out=new_cell).addcmul_(i, g)
    tanh_(squashed.copy_(new_cell))
    hidden.copy_(o).mul_(
        squashed
    )  # not out=hidden, which a compiled kernel loses where rows are not contiguous


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


@dataclass(frozen=True)
class Cell:
    """A step of an LSTM and its backward pass; arguments never share memory."""

    forward: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], None] = cell_forward
    backward: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], None] = cell_backward


@cache
def compiled_cell() -> Cell:
    """The same as kernels of `torch.compile`."""
    from torch._dynamo import config  # loaded when it is wanted: it takes two seconds

    # A kernel each for single rows, first rows, one direction or two: more than are made without being asked.
    config.recompile_limit = max(64, config.recompile_limit)
    return Cell(torch.compile(cell_forward, dynamic=True), torch.compile(cell_backward, dynamic=True))


def compile_cells(model: nn.Module) -> None:
    """Let every recurrence of a model take its steps in compiled kernels."""
    for module in model.modules():
        if isinstance(getattr(module, "cell", None), Cell):
            module.cell = compiled_cell()  # type: ignore[assignment]


class LSTMLoop(torch.autograd.Function):
    """The recurrences of R independent layers of one size over the same sequences, packed."""

    @staticmethod
    def forward(
        ctx: Any, gates: Tensor, weight: Tensor, packing: Packing, step: Cell
    ) -> tuple[Tensor, Tensor]:
        """Hidden states; `gates` comes as what the inputs give and is left as activations, which saves its memory."""
        hidden = gates.new_empty(*gates.shape[:2], weight.shape[-1])
        squashed = torch.empty_like(hidden)
        cells: list[Tensor] = []
        first = hidden.new_zeros(len(hidden), packing.first, hidden.shape[-1])
        across, plain = weight.transpose(1, 2).contiguous(), gates.detach()
        for rows, before in packing.walk():
            if before is not None:
                plain[:, rows].baddbmm_(hidden[:, before], across)
            n = rows.stop - rows.start
            cell = first if before is None else cells[-1][:, :n]
            cells.append(torch.empty_like(cell))
            step.forward(plain[:, rows], cell, cells[-1], squashed[:, rows], hidden[:, rows])
        ctx.mark_dirty(gates)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(weight, hidden, gates, squashed)
        ctx.kept = packing, step, [first, *cells]
        return hidden, gates

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        if d_out is None:
            return None, None, None, None
        weight, hidden, gates, squashed = (x.detach() for x in ctx.saved_tensors)
        packing, step, cells = ctx.kept
        d_hidden, d_cell = torch.zeros_like(cells[0]), torch.zeros_like(cells[0])
        d_gates = torch.empty_like(gates)
        for t, (rows, _) in reversed([*enumerate(packing.walk())]):
            n = rows.stop - rows.start
            above, now = d_out[:, rows] + d_hidden[:, :n], d_gates[:, rows]
            step.backward(above, d_cell[:, :n], gates[:, rows], cells[t][:, :n], squashed[:, rows], now)
            torch.bmm(now, weight, out=d_hidden[:, :n])
        later = d_gates[:, packing.first :].transpose(1, 2)
        return d_gates, later @ hidden.index_select(1, packing.before()), None, None


def lstm_loop(
    inputs: Float[Tensor, "R N G"], weight: Float[Tensor, "R G H"], packing: Packing, *, cell: Cell
) -> Float[Tensor, "R N H"]:
    """Hidden states of every step, in the weights' precision, whatever comes in; `inputs` are consumed."""
    with torch.autocast(inputs.device.type, enabled=False):
        out: Tensor = LSTMLoop.apply(inputs.to(weight.dtype), weight, packing, cell)[0]  # type: ignore[no-untyped-call]
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
        self.cell = Cell()
        self.output_size = directions * hidden

    def forward(self, x: Float[Tensor, "B S D"], mask: Bool[Tensor, "B S"]) -> Float[Tensor, "B S H"]:
        packing = Packing.of(mask)
        flip = packing.backwards()
        h = packing.pack(x)
        for layer in range(len(self.forwards)):
            h = h if layer == 0 else self.dropout(h)
            sides = [cast(LSTMLayer, stack[layer]) for stack in (self.forwards, self.backwards) if len(stack)]
            h = self.layer(h, sides, flip, packing)
        return packing.unpack(h)

    def layer(
        self, h: Float[Tensor, "N D"], sides: list[LSTMLayer], flip: Int[Tensor, "N"], packing: Packing
    ) -> Float[Tensor, "N H"]:
        """One layer: input projections of all directions in one product, then their loops in one."""
        each = torch.stack([h, h.index_select(0, flip)][: len(sides)])
        weight = torch.stack([side.from_input.weight for side in sides])
        bias = torch.stack([side.from_input.bias for side in sides])
        inputs = torch.baddbmm(bias.unsqueeze(1), each, weight.transpose(1, 2))
        recurrent = torch.stack([side.from_hidden.weight for side in sides])
        out = lstm_loop(inputs, recurrent, packing, cell=self.cell)
        return out[0] if len(sides) == 1 else torch.cat([out[0], out[1].index_select(0, flip)], -1)
