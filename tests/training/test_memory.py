"""A process's peak memory is its own."""

import os
import platform
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


FAULTS = f"""
import ctypes, resource, runpy
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # no huge pages, which would be few
kept = runpy.run_path({memory.__file__!r})["keep_freed_memory"]()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
def use():
    block = libc.malloc(ctypes.c_size_t(20 * 2**20))
    ctypes.memset(ctypes.c_void_p(block), 1, 20 * 2**20)
    libc.free(ctypes.c_void_p(block))
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    use()
print(int(kept), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(**settings):
    """Whether freed memory is kept, and the page faults of using it again."""
    environment = {n: v for n, v in os.environ.items() if not n.startswith(("MALLOC_", "GLIBC_"))} | settings
    answer = subprocess.check_output([sys.executable, "-I", "-c", FAULTS], text=True, env=environment)
    return tuple(map(int, answer.split()))


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_kept_memory_is_used_again_without_page_faults_unless_the_user_decides_otherwise():
    kept, few = faults(MALLOC_ARENA_MAX="8")
    own, many = faults(MALLOC_MMAP_THRESHOLD_="65536")
    assert (kept, own) == (1, 0)
    assert few < 100 < 5000 < many


def test_another_c_library_keeps_nothing(monkeypatch):
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: object())
    assert not memory.keep_freed_memory()
