"""A process's peak memory is its own."""

import runpy
import subprocess
import sys

import pytest
import torch

from latentalign.training import memory


def test_a_child_does_not_inherit_its_parents_peak():
    code = f"import runpy; print(runpy.run_path({memory.__file__!r})['peak_memory_mb']())"
    answer = subprocess.check_output([sys.executable, "-I", "-c", code], text=True)
    assert memory.peak_memory_mb() > 100  # this process holds PyTorch
    assert float(answer) < 50


def test_what_was_freed_is_in_the_peak():
    before = memory.peak_memory_mb()
    held = bytearray(1) * (300 * 2**20)
    del held
    assert runpy.run_path(memory.__file__)["peak_memory_mb"]() >= before
    assert memory.peak_memory_mb() > 300


@pytest.mark.slow
def test_a_forgotten_peak_begins_anew():
    held = bytearray(1) * (300 * 2**20)
    high = memory.peak_memory_mb()
    del held
    if memory.begin_peak() > high - 200:
        pytest.skip("this system keeps its peaks")
    assert memory.peak_memory_mb() < high - 200
    memory.forget_peak(torch.device("cpu"))
    assert memory.device_peak_mb(torch.device("cpu")) < high - 200
