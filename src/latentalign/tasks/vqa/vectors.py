"""Text vectors for the words of questions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from latentalign.errors import InputError
from latentalign.textfiles import read_lines


def read_vectors(path: Path, words: Sequence[str], size: int) -> tuple[Tensor, Tensor]:
    """Vectors of the words that a file has, a word and its numbers a line: (words, size), and which were found."""
    places = {word: i for i, word in enumerate(words)}
    vectors, found = torch.zeros(len(words), size), torch.zeros(len(words), dtype=torch.bool)
    for number, line in enumerate(read_lines(path), start=1):
        parts = line.rstrip().rsplit(" ", size)  # some words have spaces
        if number == 1 and len(line.split()) == 2 != size + 1:
            continue  # some files begin with their sizes
        if len(parts) != size + 1:
            raise InputError(f"{path}: line {number} has {len(parts) - 1} numbers, model.embedding is {size}")
        if parts[0] in places:
            try:
                vectors[places[parts[0]]] = torch.tensor([float(x) for x in parts[1:]])
            except ValueError as error:
                raise InputError(f"{path}: line {number}: {error}") from None
            if not bool(vectors[places[parts[0]]].isfinite().all()):
                raise InputError(f"{path}: line {number}: a number that is not finite")
            found[places[parts[0]]] = True
    if not bool(found.any()):
        raise InputError(f"{path}: none of the {len(words)} words of the questions is in it")
    return vectors, found
