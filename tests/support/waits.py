"""Finds the places where a program would wait for a GPU, on a machine without one.

A GPU works behind the program. The program waits for it when it needs a number: to read a value, or because the size of
a tensor depends on values. `Waits` sees every operator that PyTorch dispatches and every method that Python calls, so
it notices this on a CPU too. Run the code with `compute_as_on_a_gpu`, which lets it choose the path of a GPU.
"""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import latentalign

SOURCE = Path(latentalign.__file__).parent

OPERATORS = {
    "_local_scalar_dense",
    "_pack_padded_sequence",
    "_unique",
    "_unique2",
    "allclose",
    "bincount",
    "equal",
    "is_nonzero",
    "item",
    "masked_select",
    "multinomial",  # reads its probabilities to check them
    "nonzero",
    "unique_consecutive",
    "unique_dim",
}
"""Operators that read values, or whose results have a size that depends on values."""
FROM_DEVICE = {
    getattr(Tensor, name)
    for name in (
        "__array__", "__bool__", "__complex__", "__contains__", "__float__", "__index__", "__int__", "cpu",
        "is_nonzero", "item", "numpy", "tolist",
    )
}  # fmt: skip
"""Methods that bring values to the program. On a CPU, some of them reach no operator."""
TO_DEVICE = {torch.tensor, torch.as_tensor, torch.from_numpy, Tensor.new_tensor}
"""Functions that copy values of the program, for which it waits unless memory is pinned."""

ALLOWED = {
    # The only reading of a step: all figures of an update, or the two flags of a step of the search, at once.
    ("core/devices.py", "read_numbers"),
    # Batches are built and counted on the host, and sent from pinned memory.
    ("tasks/padding.py", "pad_rows"),
    ("tasks/nmt/data.py", "collate"),
    ("tasks/nmt/data.py", "<listcomp>"),  # in `collate`
    ("tasks/nmt/data.py", "__post_init__"),
    ("tasks/vqa/data.py", "as_tensor"),
    ("data/region_features/reader.py", "batch"),
    # Once per search, before its first step: the lengths of sources, the special tokens, and the sources themselves.
    ("search.py", "limits"),
    ("search.py", "specials"),
    ("search.py", "_start"),
    ("tasks/nmt/decode.py", "padded"),
    ("tasks/nmt/decode.py", "<listcomp>"),  # in `padded`
    # Once per search, after its last step: the outputs.
    ("static_search.py", "read"),
    ("static_search.py", "<genexpr>"),  # in `read`
}
"""Where the program may wait: file and function."""


def place() -> tuple[str, str]:
    """File and function of the innermost code of the library; what called it, if that is outside."""
    frame = sys._getframe(1)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(SOURCE):
            return path.relative_to(SOURCE).as_posix(), frame.f_code.co_name
        frame = frame.f_back
    return "", ""


class _Operators(TorchDispatchMode):
    def __init__(self, waits: Waits) -> None:
        super().__init__()
        self.waits = waits

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        indexed = name in ("index", "index_put", "index_put_", "_index_put_impl_")
        by_mask = indexed and any(x is not None and x.dtype in (torch.bool, torch.uint8) for x in args[1])
        by_tensor = name == "repeat_interleave" and (kwargs or {}).get("output_size") is None
        if name in OPERATORS or by_mask or by_tensor:
            self.waits.note(f"aten::{name}")
        out = func(*args, **(kwargs or {}))
        self.waits.see(out)
        return out


class _Methods(TorchFunctionMode):
    def __init__(self, waits: Waits) -> None:
        super().__init__()
        self.waits = waits

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func not in FROM_DEVICE and func not in TO_DEVICE:
            return func(*args, **(kwargs or {}))
        self.waits.note(func.__name__)
        self.waits.silent += 1  # the operators that it consists of are noted already
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self.waits.silent -= 1


class Waits:
    """A context that collects where the program would wait: `allowed` counts, and `found` elsewhere."""

    def __init__(self) -> None:
        self.found: Counter[tuple[str, str, str]] = Counter()
        self.allowed: Counter[str] = Counter()
        self.dtypes: Counter[torch.dtype] = Counter()
        """Types of floating-point tensors that operators returned."""
        self.silent = 0

    def note(self, what: str) -> None:
        if self.silent:
            return
        where = place()
        if where in ALLOWED:
            self.allowed[where[1]] += 1
        else:
            self.found[(*where, what)] += 1

    def see(self, out: object) -> None:
        for x in out if isinstance(out, tuple | list) else [out]:
            if isinstance(x, Tensor) and x.is_floating_point():
                self.dtypes[x.dtype] += 1

    def __enter__(self) -> Waits:
        self.modes = ExitStack()
        self.modes.enter_context(_Methods(self))
        self.modes.enter_context(_Operators(self))
        return self

    def __exit__(self, *error: object) -> None:
        self.modes.close()
