"""The optimizer is PyTorch's fused Adam, without what PyTorch loads for compiled code."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from latentalign.training.adam import FusedAdam


def model(dtype=torch.float64):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).to(dtype)


def backward(net, step):
    net.zero_grad()
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(step)).to(net[0].weight.dtype)
    part = net if step % 2 else net[0]  # in every other step one layer has no gradient
    part(x).square().sum().backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_updates_equal_those_of_pytorch_to_the_last_bit(dtype):
    ours, theirs = model(dtype), model(dtype)
    adam, reference = FusedAdam(ours.parameters()), torch.optim.Adam(theirs.parameters(), fused=True)
    for step in range(6):
        rate = 0.1 / (step + 1)
        backward(ours, step)
        backward(theirs, step)
        adam.step(rate)
        for group in reference.param_groups:
            group["lr"] = rate
        reference.step()
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert torch.equal(a, b)
    state = reference.state_dict()["state"]
    expected = {f"{i}.{name}": x for i, part in state.items() for name, x in part.items()}
    assert adam.tensors().keys() == expected.keys()
    assert all(torch.equal(adam.tensors()[name], expected[name]) for name in expected)


def test_a_saved_state_continues_exactly():
    whole, cut = model(), model()
    first, second = FusedAdam(whole.parameters()), FusedAdam(cut.parameters())
    for step in range(4):
        if step == 2:
            saved = {name: tensor.clone() for name, tensor in second.tensors().items()}
            second = FusedAdam(cut.parameters())
            second.load_tensors(saved)
        for net, adam in ((whole, first), (cut, second)):
            backward(net, step)
            adam.step(0.1)
    for a, b in zip(whole.parameters(), cut.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.slow
def test_an_update_does_not_load_the_compiler():
    code = (
        "import sys, torch; from latentalign.training.adam import FusedAdam\n"
        "p = torch.nn.Parameter(torch.ones(2)); a = FusedAdam([p]); p.sum().backward(); a.step(0.1); a.zero_grad()\n"
        "assert 'torch._dynamo' not in sys.modules and p.grad is None"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
