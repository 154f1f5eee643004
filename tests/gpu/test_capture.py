"""A step of a decoder is one graph without a break: what a compiler, or a captured CUDA graph, needs."""

import subprocess
import sys

import pytest
import torch

from latentalign.core import devices
from latentalign.nn.attention_decoder import AttentionDecoder
from latentalign.nn.transformer import LayerSizes
from latentalign.nn.transformer_decoder import TransformerDecoder
from latentalign.tasks.nmt.data import Batch


def lstm():
    return AttentionDecoder(8, 6, 2, memory_dim=8)


def transformer():
    return TransformerDecoder(LayerSizes(8, 2, 12), 2, score="scaled-dot", lagged_layers=1)


BUILD = {"lstm": lstm, "transformer": transformer}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(BUILD))
def test_a_decoder_step_compiles_without_a_break(name):
    # In a process of its own: the shape checks of the tests cannot be compiled.
    done = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@torch.no_grad()
def compare_compiled_step(name):
    decoder = BUILD[name]().double().eval()
    memory, words = (torch.randn(3, *shape, dtype=torch.float64) for shape in ((7, 8), (8,)))
    mask = torch.arange(7) < torch.tensor([7, 2, 4]).unsqueeze(1)
    state, projected = decoder.start(3, memory), decoder.project(memory)
    compiled = torch.compile(decoder.step, fullgraph=True, backend="aot_eager")
    for _ in range(2):
        expected = decoder.step(words, state, memory, projected, mask=mask)
        torch.testing.assert_close(compiled(words, state, memory, projected, mask=mask), expected)
        state = expected[2]


def test_a_batch_is_sent_from_pinned_memory_and_counted_before(monkeypatch):
    calls = []

    class Pinned(torch.Tensor):
        """A tensor on the host that notes how it is sent."""

        def pin_memory(self):
            calls.append("pinned")
            return self

        def to(self, device, *, non_blocking=False):
            calls.append(("sent", str(device), non_blocking))
            return torch.empty(self.shape, dtype=self.dtype, device="meta")

    x = torch.ones(2, 3).as_subclass(Pinned)
    assert devices.send(x, "cuda:1").is_meta
    assert calls == ["pinned", ("sent", "cuda:1", True)]
    ids, mask = torch.ones(2, 3).long(), torch.ones(2, 3).bool()
    moved = Batch(ids, mask, ids, mask, torch.arange(2)).to("meta")  # whose values nobody can count
    assert moved.target.is_meta
    assert (moved.queries, moved.examples) == (6, 2)


if __name__ == "__main__":
    compare_compiled_step(sys.argv[1])
