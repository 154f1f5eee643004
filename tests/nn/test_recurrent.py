"""The hand-written recurrence equals PyTorch's, forward and backward, and never sees padding."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from latentalign.core.scores import MLPScore
from latentalign.nn import recurrent
from latentalign.nn.attention_decoder import AttentionDecoder
from latentalign.nn.recurrent import LSTMStack, compile_cells
from support.static_shapes import compute_as_on_a_cpu, compute_as_on_a_gpu

LENGTHS = torch.tensor([2, 5, 1, 5, 3])
MASK = LENGTHS.unsqueeze(1) > torch.arange(5)
KERNELS = ["our loop", "our loop with padding", "the path of cuDNN"]


def use_kernel(name, monkeypatch):
    """Compute layers as on a CPU, or on a GPU without or with cuDNN."""
    (compute_as_on_a_cpu if name == "our loop" else compute_as_on_a_gpu)(monkeypatch)
    layer = recurrent.cudnn_layer if name == "the path of cuDNN" else LOOP
    monkeypatch.setattr(recurrent, "loop_layer", layer)


LOOP = recurrent.loop_layer


def reordered(weight):
    """PyTorch keeps input, forget, candidate, output; we keep output before candidate."""
    i, f, g, o = weight.chunk(4)
    return torch.cat([i, f, o, g])


def pair(layers, bidirectional):
    """Our stack and PyTorch's with the same weights."""
    ours = LSTMStack(3, 4, layers, bidirectional=bidirectional).double()
    theirs = nn.LSTM(3, 4, layers, batch_first=True, bidirectional=bidirectional).double()
    with torch.no_grad():
        for layer in range(layers):
            for side, stack in (("", ours.forwards), ("_reverse", ours.backwards)):
                if side and not bidirectional:
                    continue
                one = stack[layer]
                bias = getattr(theirs, f"bias_ih_l{layer}{side}") + getattr(theirs, f"bias_hh_l{layer}{side}")
                one.from_input.weight.copy_(reordered(getattr(theirs, f"weight_ih_l{layer}{side}")))
                one.from_input.bias.copy_(reordered(bias))
                one.from_hidden.weight.copy_(reordered(getattr(theirs, f"weight_hh_l{layer}{side}")))
    return ours, theirs


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_stack_equals_torch_on_ragged_sequences(layers, bidirectional, kernel, monkeypatch):
    use_kernel(kernel, monkeypatch)
    ours, theirs = pair(layers, bidirectional)
    x = torch.randn(5, 5, 3, dtype=torch.float64, requires_grad=True)
    a = ours(x, MASK)
    packed = pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
    b, _ = pad_packed_sequence(theirs(packed)[0], batch_first=True)
    torch.testing.assert_close(a, b)
    weight = torch.randn_like(a)
    torch.testing.assert_close(
        torch.autograd.grad((a * weight).sum(), x)[0], torch.autograd.grad((b * weight).sum(), x)[0]
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_cudnn_layers_have_the_gradients_of_the_loop(dtype, monkeypatch):
    """The code that runs on CUDA, run here, in training with dropout and under autocast."""
    stack = LSTMStack(3, 4, 2, dropout=0.5).double()
    x = torch.randn(5, 5, 3, dtype=torch.float64, requires_grad=True)
    results = []
    for kernel in KERNELS[1:]:
        use_kernel(kernel, monkeypatch)
        torch.manual_seed(0)
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            out = stack(x, MASK)
        results.append([out, *torch.autograd.grad((out**2).sum(), [x, *stack.parameters()])])
    tolerance = 1e-12 if dtype == torch.float64 else 1e-2
    for loop, library in zip(*results, strict=True):
        torch.testing.assert_close(library, loop, atol=tolerance, rtol=tolerance)


@pytest.mark.slow
def test_gradients_of_all_weights_are_right():
    stack = LSTMStack(2, 2, 2).double()
    x = torch.randn(3, 3, 2, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[1, 1, 0], [1, 1, 1], [1, 0, 0]]).bool()
    names = [n for n, _ in stack.named_parameters()]

    def run(x, *weights):
        return torch.func.functional_call(stack, dict(zip(names, weights, strict=True)), (x, mask))

    assert torch.autograd.gradcheck(run, (x, *[p.detach().requires_grad_() for p in stack.parameters()]))


@pytest.mark.parametrize("kernel", KERNELS)
def test_padding_is_zero_and_its_content_never_matters(kernel, monkeypatch):
    use_kernel(kernel, monkeypatch)
    stack = LSTMStack(3, 4, 2)
    x = torch.randn(5, 5, 3)
    clean = stack(x, MASK)
    dirty = stack(x.masked_fill(~MASK.unsqueeze(-1), float("nan")), MASK)
    assert torch.equal(clean[MASK], dirty[MASK])
    assert (clean[~MASK] == 0).all()


@pytest.mark.parametrize(
    ("kernel", "lengths"),
    [*((kernel, [3, 0, 5]) for kernel in KERNELS), ("our loop", [0, 0, 0])],
)
def test_sequences_of_no_length_get_zeros_and_no_gradient(kernel, lengths, monkeypatch):
    use_kernel(kernel, monkeypatch)
    stack = LSTMStack(3, 4, 2).double()
    x = torch.randn(3, 5, 3, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor(lengths).unsqueeze(1) > torch.arange(5)
    out = stack(x, mask)
    assert out.shape == (3, 5, 8)
    assert (out[~mask] == 0).all()
    gradient = torch.autograd.grad(out.sum(), x)[0]
    assert (gradient[~mask] == 0).all()


@pytest.mark.slow
def test_compiled_steps_compute_the_same():
    """Everything that `torch.compile` does before it makes kernels, with rows that are not contiguous."""

    def stepped(forward, backward):
        torch.manual_seed(0)
        gates, d_gates = (
            torch.randn(2, 9, 12, dtype=torch.float64),
            torch.zeros(2, 9, 12, dtype=torch.float64),
        )
        squashed, hidden = (torch.zeros(2, 9, 3, dtype=torch.float64) for _ in range(2))
        cell, d_hidden, d_cell = (torch.randn(2, 4, 3, dtype=torch.float64) for _ in range(3))
        new, rows = torch.empty_like(cell), slice(3, 7)
        forward(gates[:, rows], cell, new, squashed[:, rows], hidden[:, rows])
        backward(d_hidden, d_cell, gates[:, rows], cell, squashed[:, rows], d_gates[:, rows])
        return gates, new, squashed, hidden, d_cell, d_gates

    compiled = [
        torch.compile(step, dynamic=True, backend="aot_eager")
        for step in (recurrent.cell_forward, recurrent.cell_backward)
    ]
    plain = stepped(recurrent.cell_forward, recurrent.cell_backward)
    for ours, expected in zip(stepped(*compiled), plain, strict=True):
        torch.testing.assert_close(ours, expected)


def test_every_recurrence_takes_compiled_steps(monkeypatch):
    calls = []

    def counted(step):
        return lambda *tensors: calls.append(step) or step(*tensors)

    cell = recurrent.Cell(counted(recurrent.cell_forward), counted(recurrent.cell_backward))
    monkeypatch.setattr(recurrent, "compiled_cell", lambda: cell)
    stack = LSTMStack(3, 2, 1)
    decoder = AttentionDecoder(3, 4, 1, memory_dim=4, score=MLPScore(4, 4, 4))
    model = nn.ModuleList([stack, decoder])
    compile_cells(model)
    x = torch.randn(5, 5, 3, requires_grad=True)
    sum(part.sum() for part in decoder(x, MASK, stack(x, MASK), mask=MASK)).backward()
    assert calls == [recurrent.cell_forward] * 10 + [recurrent.cell_backward] * 10


def test_no_sequences_and_no_steps_are_fine():
    stack = LSTMStack(3, 4, 2)
    for shape in ((0, 5), (3, 0)):
        assert stack(torch.zeros(*shape, 3), torch.ones(shape).bool()).shape == (*shape, 8)


def test_small_states_keep_their_digits_in_half_precision():
    x = torch.linspace(-0.01, 0.01, 65).to(torch.bfloat16)
    ours = x.clone()
    recurrent.tanh_(ours)
    assert torch.equal(ours, x.tanh())
