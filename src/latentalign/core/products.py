"""Products of float32 matrices on a CPU, by the faster of the two libraries that PyTorch brings.

`a @ b` is computed by MKL, which uses AVX-512 on Intel's processors only. On others that have AVX-512, oneDNN is
faster, up to twice (`python benchmarks/products.py`). PyTorch has no switch for that, but the operator that its
compiler uses for linear layers asks oneDNN. It has no derivatives, so it is for code that forms its own, such as the
functions in `kernels`; `Linear` in `core.linear` is a layer for everything else.

`torch.backends.mkldnn.set_flags(False)` turns oneDNN off, here as in all of PyTorch.
"""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

PLAIN = (Tensor, torch.nn.Parameter)
"""Types of tensors that certainly have memory; their subclasses may not."""
CPU_FACTS = Path("/proc/cpuinfo")
INTEL = "GenuineIntel"
SMALLEST = 2**20
"""Multiplications below which a product is not worth preparing."""
FEW = 64
"""Rows up to which every number of them is prepared."""
FINEST = 8
"""Above, and in loops, multiples of this are prepared, or coarser ones."""


def product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """`left @ right` of two matrices, plus `bias`; by oneDNN only if nobody asks for derivatives.

    oneDNN prepares every size once, which takes longer than a small product, and remembers a thousand of them. If every
    batch has another number of rows, that does not help. So the rows of `left` are filled up to a number that is met
    again, or those above it are left to MKL, whichever copies less.
    """
    if not is_worthwhile(left, right):
        return left @ right if bias is None else torch.addmm(bias, left, right)
    rows, inner = left.shape
    above = rows % grain(rows) if rows > FEW else 0
    if not above:
        return ask_onednn(left, right, bias)
    if inner < right.shape[1]:
        found = ask_onednn(F.pad(left, (0, 0, 0, grain(rows) - above)), right, bias)
        return found.resize_(rows, right.shape[1])  # a slice would keep callers from changing it in place
    rest = left[-above:] @ right
    return torch.cat([ask_onednn(left[:-above], right, bias), rest if bias is None else rest.add_(bias)])


def product_over_rows(left: Tensor, right: Tensor) -> Tensor:
    """`left' right` of two matrices with as many rows: the gradient of a weight. See `product`.

    oneDNN copies the factor on the left to transpose it, so the narrow one stands there.
    """
    across = left.t()
    if not is_worthwhile(across, right):
        return across @ right
    if left.shape[1] > right.shape[1]:
        return product_over_rows(right, left).t()
    whole = len(left) - len(left) % grain(len(left))
    found = ask_onednn(across[:, :whole], right[:whole])
    return found if whole == len(left) else found.addmm_(across[:, whole:], right[whole:])


def add_product_over_rows(total: Tensor, left: Tensor, right: Tensor) -> None:
    """`total += left' right`; see `product_over_rows`."""
    if is_worthwhile(left.t(), right):
        total += product_over_rows(left, right)
    else:
        total.addmm_(left.t(), right)


def product_of_rows(left: Tensor, rows: slice, right: Tensor) -> Tensor:
    """`left[rows] @ right`. The rows that `product` would add are those that follow in `left`; nothing is copied."""
    count = rows.stop - rows.start
    if not is_worthwhile(left[rows], right):
        return left[rows] @ right
    return product(left[rows.start : rows.stop + -count % grain(count)], right)[:count]


def add_product_of_rows(total: Tensor, left: Tensor, rows: slice, right: Tensor) -> None:
    """`total += left[rows] @ right`; see `product_of_rows`."""
    if is_worthwhile(left[rows], right):
        total += product_of_rows(left, rows, right)
    else:
        total.addmm_(left[rows], right)


def grain(rows: int) -> int:
    """The numbers of rows that are prepared are multiples of this: eight between one power of two and the next."""
    return max(FINEST, 1 << max(0, rows.bit_length() - 4))


def ask_onednn(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """`left @ right + bias` by oneDNN."""
    found: Tensor = torch.ops.mkldnn._linear_pointwise.default(left, right.t(), bias, "none", [], "")
    return found


def is_worthwhile(left: Tensor, right: Tensor) -> bool:
    """Whether to ask oneDNN for a product, which then has no derivatives."""
    recorded = torch.is_grad_enabled() and (left.requires_grad or right.requires_grad)
    return not recorded and min(left.shape) >= FINEST and suits_onednn(left, right)


def suits_onednn(left: Tensor, right: Tensor) -> bool:
    """Whether oneDNN can multiply the rows of a tensor by a matrix, and is the faster library."""
    return (
        not torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
        and type(left) in PLAIN
        and type(right) in PLAIN
        and left.dtype == right.dtype == torch.float32
        and left.device.type == right.device.type == "cpu"
        and left.dim() > 1
        and right.dim() == 2
        and left.numel() * right.shape[1] >= SMALLEST
        and (right.is_contiguous() or right.t().is_contiguous())  # other strides are a hundred times slower
        and bool(torch.backends.mkldnn.enabled)
        and onednn_is_faster()
    )


@cache
def onednn_is_faster() -> bool:
    """Whether the processor has AVX-512 and is not Intel's, and oneDNN can be asked and gives the right answer.

    Decided by facts rather than by timing, so that a run can be repeated.
    """
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or INTEL in processor():
        return False
    left, right = torch.arange(6.0).view(2, 3), torch.arange(12.0).view(4, 3)
    try:
        found = ask_onednn(left, right.t())
    except (AttributeError, RuntimeError):
        return False
    return torch.equal(found, left @ right.t())


def processor() -> str:
    """What the system says about the processor; it names the maker."""
    try:
        return CPU_FACTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor()
