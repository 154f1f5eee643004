"""Content for files, damage to files, and interruptions at every change of the disk."""

import math
import os
from pathlib import Path

import pytest
import torch

from latentalign import storage


def content(seed: int):
    generator = torch.Generator().manual_seed(seed)
    model = {
        "weight": torch.randn(3, 5, generator=generator),
        "half": torch.randn(4, generator=generator).bfloat16(),
        "count": torch.tensor([seed, -(2**62)]),
        "scalar": torch.tensor(float(seed)),
        "empty": torch.zeros(0, 7),
        "mask": torch.tensor([True, False]),
    }
    model["tied"] = model["weight"]
    model["transposed"] = model["weight"].t()
    optimizer = {f"{i}.{name}": torch.randn(2, generator=generator) for i in range(2) for name in ("m", "v")}
    documents = {
        "progress": {"step": seed, "best": math.inf, "words": ["ü\u2028", "\udc80"], "x": 0.1 + seed}
    }
    return {"tensors": {"model": model, "optimizer": optimizer}, "documents": documents}


def same_tensors(a, b) -> bool:
    return a.keys() == b.keys() and all(a[k].dtype == b[k].dtype and torch.equal(a[k], b[k]) for k in a)


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def damages(data: bytes):
    """64 truncations and 64 single flipped bits, spread over the whole of a file."""
    for i in range(64):
        yield data[: len(data) * i // 64]
        where = (len(data) - 1) * i // 63
        yield data[:where] + bytes([data[where] ^ 1 << i % 8]) + data[where + 1 :]


class Interrupt:
    """Runs `strike` in place of the n-th call that changes the disk; a struck write leaves half its bytes."""

    def __init__(self, n: int, strike, *, deletions: bool):
        self.left, self.strike, self.deletions = n, strike, deletions

    def count(self) -> bool:
        self.left -= 1
        return self.left == 0

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for name in ("fsync", "replace", "mkdir", *(("unlink", "rmdir") if self.deletions else ())):
            patch.setattr(os, name, self.wrap(getattr(os, name)))
        patch.setattr(storage, "open", self.open, raising=False)

    def wrap(self, function):
        def struck(*args, **kwargs):
            if self.count():
                self.strike()
            return function(*args, **kwargs)

        return struck

    def open(self, path, mode):
        file = self.wrap(open)(path, mode)
        write = file.write

        class Struck:
            def __enter__(_):
                return _

            def __exit__(_, *error):
                file.close()

            def write(_, data):
                if self.count():
                    write(data[: len(data) // 2])
                    file.flush()
                    self.strike()
                write(data)

            flush, fileno = file.flush, file.fileno

        return Struck()


def killed_at(n: int, action) -> bool:
    """Whether a child process that runs `action` was killed at its n-th change of the disk."""
    if not hasattr(os, "fork"):
        pytest.skip("kills a forked process")
    child = os.fork()
    if child == 0:
        try:
            Interrupt(n, lambda: os._exit(9), deletions=True).install(pytest.MonkeyPatch())
            action()
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9)
    return code == 9
