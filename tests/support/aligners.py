"""A small aligner of the demo language, trained once for all tests of a process."""

from functools import cache

from latentalign.aligner import Aligner, train_aligner
from latentalign.data import demo


@cache
def demo_text(count: int = 300, seed: int = 0) -> tuple[tuple[str, str], ...]:
    """Sentence pairs of the demo language as lines."""
    pairs = demo.generate(count, seed=seed)
    return tuple((" ".join(pair.source), " ".join(pair.target)) for pair in pairs)


@cache
def small_aligner() -> Aligner:
    """An aligner that has learned from `demo_text()`. Tests must not change it."""
    return train_aligner(demo_text())
