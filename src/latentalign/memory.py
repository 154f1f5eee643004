"""Recognising that memory is used up, whoever reports it: PyTorch, CUDA, NumPy, Python or the system."""

from __future__ import annotations

import errno
import re

from latentalign.storage import format_size

SIGNS = re.compile(
    r"can't allocate memory|cannot allocate memory|out of memory|unable to allocate|bad_alloc|start new thread",
    re.I,
)
BYTES = re.compile(r"tried to allocate (\d+) bytes", re.I)
AMOUNT = re.compile(r"(?:tried|unable) to allocate ([\d.]+ [KMGTPE]?i?B)", re.I)
ADVICE = (
    "make the batches smaller (training.batch_tokens or training.batch_sentences; --batch-tokens of translate), make "
    "the model smaller, or give the process more memory. What was saved before is kept"
)


def explain_memory(error: BaseException) -> str | None:
    """What to do if an error says that memory is used up; None if it says something else."""
    text = str(error)
    is_memory = isinstance(error, MemoryError) or SIGNS.search(text)
    if not is_memory and getattr(error, "errno", None) != errno.ENOMEM:
        return None
    amount = ""
    if found := BYTES.search(text):
        amount = f" when {format_size(int(found[1]))} more were needed"
    elif found := AMOUNT.search(text):
        amount = f" when {found[1]} more were needed"
    return f"memory is used up{amount}; {ADVICE}"
