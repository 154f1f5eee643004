"""The hand-written recurrence equals PyTorch's, forward and backward, and never sees padding."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from latentalign.core.scores import MLPScore
from latentalign.nn import recurrent
from latentalign.nn.attention_decoder import AttentionDecoder
from latentalign.nn.recurrent import LSTMStack, compile_cells

LENGTHS = torch.tensor([2, 5, 1, 5, 3])
MASK = LENGTHS.unsqueeze(1) > torch.arange(5)


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


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_stack_equals_torch_on_ragged_sequences(layers, bidirectional):
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


def test_gradients_of_all_weights_are_right():
    stack = LSTMStack(2, 2, 2).double()
    x = torch.randn(3, 3, 2, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[1, 1, 0], [1, 1, 1], [1, 0, 0]]).bool()
    names = [n for n, _ in stack.named_parameters()]

    def run(x, *weights):
        return torch.func.functional_call(stack, dict(zip(names, weights, strict=True)), (x, mask))

    assert torch.autograd.gradcheck(run, (x, *[p.detach().requires_grad_() for p in stack.parameters()]))


def test_padding_is_zero_and_its_content_never_matters():
    stack = LSTMStack(3, 4, 2)
    x = torch.randn(5, 5, 3)
    clean = stack(x, MASK)
    dirty = stack(x.masked_fill(~MASK.unsqueeze(-1), float("nan")), MASK)
    assert torch.equal(clean[MASK], dirty[MASK])
    assert (clean[~MASK] == 0).all()


def test_sequences_of_no_length_get_zeros_and_no_gradient():
    stack = LSTMStack(3, 4, 2).double()
    x = torch.randn(3, 5, 3, dtype=torch.float64, requires_grad=True)
    for lengths in ([3, 0, 5], [0, 0, 0]):
        mask = torch.tensor(lengths).unsqueeze(1) > torch.arange(5)
        out = stack(x, mask)
        assert out.shape == (3, 5, 8)
        assert (out[~mask] == 0).all()
        gradient = torch.autograd.grad(out.sum(), x)[0]
        assert (gradient[~mask] == 0).all()


@pytest.mark.slow
def test_compiled_cells_compute_the_same(monkeypatch):
    """Everything that `torch.compile` does before it makes kernels: that no argument shares memory, above all."""
    recurrent.compiled_cell.cache_clear()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.stack = LSTMStack(3, 2, 2)
            self.decoder = AttentionDecoder(3, 4, 2, memory_dim=4, score=MLPScore(4, 4, 4))

        def forward(self, x):
            return sum(part.sum() for part in self.decoder(x, MASK, self.stack(x, MASK), mask=MASK))

    both, x = Both().double(), torch.randn(5, 5, 3, dtype=torch.float64, requires_grad=True)
    found = []
    try:
        for change in (lambda model: None, compile_cells):
            change(both)
            value = both(x)
            found.append([value, *torch.autograd.grad(value, [x, *both.parameters()])])
        assert both.stack.cell is both.decoder.cell is recurrent.compiled_cell()
    finally:
        recurrent.compiled_cell.cache_clear()
    for plain, compiled in zip(*found, strict=True):
        torch.testing.assert_close(plain, compiled)


def test_no_sequences_and_no_steps_are_fine():
    stack = LSTMStack(3, 4, 2)
    for shape in ((0, 5), (3, 0)):
        assert stack(torch.zeros(*shape, 3), torch.ones(shape).bool()).shape == (*shape, 8)


def test_small_states_keep_their_digits_in_half_precision():
    x = torch.linspace(-0.01, 0.01, 65).to(torch.bfloat16)
    ours = x.clone()
    recurrent.tanh_(ours)
    assert torch.equal(ours, x.tanh())
