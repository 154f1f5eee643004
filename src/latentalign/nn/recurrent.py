"""LSTM layers whose weight gradients are one large product, and which compute nothing for padding.

Autograd through a loop of small matrix products would form each weight's gradient in as many small products as there
are steps. Here the loop keeps what it needs, and each weight's gradient is one product after it. On a CPU this is
faster than `torch.nn.LSTM` (`python benchmarks/lstm.py` prints both); on CUDA, cuDNN runs the layers. It computes
padding too, because it would have to know the lengths on the host.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from latentalign.core.linear import Linear
from latentalign.core.products import add_product_of_rows, product_of_rows, product_over_rows
from latentalign.nn.dropout import Dropout
from latentalign.nn.packing import Packing


def tanh_(x: Tensor) -> None:
    """tanh in place, as 2 sigmoid(2x) - 1, which takes half the time on a CPU.

    In half precision that form has few digits near zero, so tanh itself is used.
    """
    if x.element_size() < 4:
        x.tanh_()
    else:
        x.mul_(2).sigmoid_().mul_(2).sub_(1)


def cell_forward(gates: Tensor, cell: Tensor, new_cell: Tensor, squashed: Tensor, hidden: Tensor) -> None:
    """One LSTM step from pre-activations (..., 4H) in the order input, forget, output, candidate.

    Overwrites `gates` with the activations and writes the new cell, its tanh and the new hidden state.
    """
    size = cell.shape[-1]
    i, f, o, g = gates.split(size, dim=-1)
    gates[..., : 3 * size].sigmoid_()
    tanh_(g)
    torch.mul(f, cell, out=new_cell).addcmul_(i, g)
    tanh_(squashed.copy_(new_cell))
    # Not out=hidden: a compiled kernel loses it where rows are not contiguous.
    hidden.copy_(o).mul_(squashed)


def cell_backward(
    d_hidden: Tensor, d_cell: Tensor, gates: Tensor, cell: Tensor, squashed: Tensor, d_gates: Tensor
) -> None:
    """The backward pass of `cell_forward`, from the gradients of the new hidden state and the new cell.

    Writes the gradient of the pre-activations into `d_gates` and replaces `d_cell` by that of the previous cell.
    """
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
    """One LSTM step and its backward pass. The arguments of a call never share memory."""

    forward: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], None] = cell_forward
    backward: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], None] = cell_backward


@cache
def compiled_cell() -> Cell:
    """The same step as kernels of `torch.compile`."""
    from torch._dynamo import config  # imported here, because it takes two seconds

    # Single rows, first rows, one direction and two need a kernel each: more than the default limit allows.
    config.recompile_limit = max(64, config.recompile_limit)
    return Cell(torch.compile(cell_forward, dynamic=True), torch.compile(cell_backward, dynamic=True))


def compile_cells(model: nn.Module) -> None:
    """Let every recurrence of a model use compiled steps."""
    for module in model.modules():
        if isinstance(getattr(module, "cell", None), Cell):
            module.cell = compiled_cell()  # type: ignore[assignment]


class LSTMLoop(torch.autograd.Function):
    """The recurrences of R independent layers of one size over the same packed sequences."""

    @staticmethod
    def forward(
        ctx: Any, gates: Tensor, weight: Tensor, packing: Packing, step: Cell
    ) -> tuple[Tensor, Tensor]:
        """Hidden states. `gates` holds the projected inputs and is overwritten with activations, to save memory."""
        hidden = gates.new_empty(*gates.shape[:2], weight.shape[-1])
        squashed = torch.empty_like(hidden)
        cells: list[Tensor] = []
        first = hidden.new_zeros(len(hidden), packing.first, hidden.shape[-1])
        across, plain = weight.transpose(1, 2).contiguous(), gates.detach()
        for rows, before in packing.steps:
            if before is not None:
                for side, weights in enumerate(across):
                    add_product_of_rows(plain[side, rows], hidden[side], before, weights)
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
        for t, (rows, _) in reversed([*enumerate(packing.steps)]):
            n = rows.stop - rows.start
            above, now = d_out[:, rows] + d_hidden[:, :n], d_gates[:, rows]
            step.backward(above, d_cell[:, :n], gates[:, rows], cells[t][:, :n], squashed[:, rows], now)
            for side, weights in enumerate(weight):
                d_hidden[side, :n] = product_of_rows(d_gates[side], rows, weights)
        later, before = d_gates[:, packing.first :], hidden.index_select(1, packing.before())
        d_weight = [product_over_rows(d, h) for d, h in zip(later, before, strict=True)]
        return d_gates, torch.stack(d_weight), None, None


class LSTMLayer(nn.Module):
    """The weights of one direction of one layer; gates in the order input, forget, output, candidate."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.from_input = Linear(inputs, 4 * hidden)
        self.from_hidden = Linear(hidden, 4 * hidden, bias=False)


class LSTMStack(nn.Module):
    """LSTM layers in one or both directions, with dropout between layers; the output is zero in padding.

    The backward direction reads every sequence reversed within its own length, so both directions of a layer are one
    loop of two independent recurrences.
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
        run = cudnn_layer if x.is_cuda and packing.first else loop_layer  # cuDNN refuses an empty batch
        flip, h = packing.reversed_rows(), packing.pack(x)
        for layer in range(len(self.forwards)):
            h = h if layer == 0 else self.dropout(h)
            sides = [cast(LSTMLayer, stack[layer]) for stack in (self.forwards, self.backwards) if len(stack)]
            h = run(h, sides, packing, flip=flip, cell=self.cell)
        return packing.unpack(h)


def loop_layer(
    h: Float[Tensor, "N D"], sides: list[LSTMLayer], packing: Packing, *, flip: Int[Tensor, "N"], cell: Cell
) -> Float[Tensor, "N H"]:
    """One layer by `LSTMLoop`: the loops of all directions are one loop."""
    each = [h, h.index_select(0, flip)] if len(sides) > 1 else [h]
    inputs = torch.stack([side.from_input(x) for side, x in zip(sides, each, strict=True)])
    recurrent = torch.stack([side.from_hidden.weight for side in sides])
    with torch.autocast(h.device.type, enabled=False):  # the loop runs in the weights' precision
        out, _ = LSTMLoop.apply(inputs.to(recurrent.dtype), recurrent, packing, cell)  # type: ignore[no-untyped-call]
    return out[0] if len(sides) == 1 else torch.cat([out[0], out[1].index_select(0, flip)], -1)


def cudnn_layer(
    h: Float[Tensor, "N D"], sides: list[LSTMLayer], packing: Packing, *, flip: Int[Tensor, "N"], cell: Cell
) -> Float[Tensor, "N H"]:
    """The same layer by the kernel of `torch.nn.LSTM`, with the same parameters; every sequence has all steps.

    Each direction is a call of its own. In one call for both, the backward direction would begin in the padding.
    """
    batch, steps = packing.shape
    each = [h, h.index_select(0, flip)]
    found = [lstm_kernel(x.view(steps, batch, -1), side) for x, side in zip(each, sides, strict=False)]
    out = [x.flatten(0, 1) for x in found]
    return out[0] if len(out) == 1 else torch.cat([out[0], out[1].index_select(0, flip)], -1)


def lstm_kernel(x: Float[Tensor, "S B D"], side: LSTMLayer) -> Float[Tensor, "S B H"]:
    """One direction of a layer by the kernel of `torch.nn.LSTM`."""
    bias = side.from_input.bias
    weights = side.from_input.weight, side.from_hidden.weight, bias, torch.zeros_like(bias)
    zeros = x.new_zeros(1, x.shape[1], side.from_hidden.in_features, dtype=bias.dtype)
    with torch.autocast(x.device.type, enabled=False), warnings.catch_warnings():
        # The kernel copies the reordered weights into one block, and warns that this takes time.
        warnings.filterwarnings("ignore", "RNN module weights")
        return torch.lstm(
            x.to(bias.dtype),
            (zeros, zeros),
            [torch_order(weight) for weight in weights],
            has_biases=True,
            num_layers=1,
            dropout=0.0,
            train=torch.is_grad_enabled(),  # cuDNN keeps what its backward pass needs only in training mode
            bidirectional=False,
            batch_first=False,
        )[0]


def torch_order(gates: Float[Tensor, "G *n"]) -> Float[Tensor, "G *n"]:
    """Rows in PyTorch's order: input, forget, candidate, output."""
    i, f, o, g = gates.chunk(4)
    return torch.cat([i, f, g, o])
