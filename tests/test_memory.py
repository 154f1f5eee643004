"""Memory that is used up is recognised, whoever reports it."""

import errno
import os

import numpy as np
import pytest
import torch

from latentalign.memory import explain_memory


def test_pytorch_and_numpy_say_how_much_was_needed():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(10**15)
    assert "when 4000000000.0 MB more were needed" in explain_memory(caught.value)
    with pytest.raises(MemoryError) as caught:
        np.empty(10**15)
    assert "PiB more were needed" in explain_memory(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8 GiB"),
        RuntimeError("std::bad_alloc"),
        RuntimeError("can't start new thread"),
        OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
    ],
)
def test_other_reports_are_recognised(error):
    assert "training.batch_tokens" in explain_memory(error)


def test_other_errors_are_not_explained_away():
    assert explain_memory(RuntimeError("size mismatch")) is None
    assert explain_memory(OSError(errno.EIO, "I/O")) is None
