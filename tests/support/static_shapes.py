"""The code that runs on a GPU, run on a CPU."""

from latentalign.core import devices


def compute_as_on_a_gpu(monkeypatch) -> None:
    """Let the CPU count as a device whose values must not be read, so that no size depends on values."""
    monkeypatch.setattr(devices, "READABLE", frozenset())


def compute_as_on_a_cpu(monkeypatch) -> None:
    """Undo `compute_as_on_a_gpu`."""
    monkeypatch.setattr(devices, "READABLE", frozenset({"cpu"}))
