"""What `align` and `generate` return, from posteriors and ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from latentalign.errors import InputError
from latentalign.links.aligned import AlignedText
from latentalign.links.words import WordAlignment, word_links
from latentalign.wrapping.text import TokenPair


@dataclass(frozen=True)
class Generated:
    """Translations of `generate`: those of the first sentence, then those of the next."""

    texts: list[str]
    ids: list[list[int]]
    alignments: AlignedText | None
    """Words, links and probabilities of each translation, if they were asked for."""


def word_alignment(pair: TokenPair, matrix: Float[np.ndarray, "S T"]) -> WordAlignment:
    """The word alignment of a pair from the padded posterior of its batch, whose last column is NULL."""
    sizes = len(pair.target.words), len(pair.source.words)
    if pair.blank:
        return WordAlignment(np.zeros(sizes), np.zeros(sizes[0]), np.zeros(sizes[0]))
    rows, columns = len(pair.target.ids), len(pair.source.ids)
    inside = np.concatenate([matrix[:rows, :columns], matrix[:rows, -1:]], axis=1)
    found = word_links(inside, [*pair.source.numbers, -1], pair.target.numbers)
    missing = [(0, size - known) for size, known in zip(sizes, found.probability.shape, strict=True)]
    rest = missing[0]  # words at the end of a line for which the tokenizer has no token
    return WordAlignment(
        np.pad(found.probability, missing), np.pad(found.null, rest), np.pad(found.entropy, rest)
    )


def as_rows(sources: Any, mask: Tensor | None) -> list[Any]:
    """Sentences as a list; a tensor of ids becomes lists without padding, which may be on either side."""
    if not isinstance(sources, Tensor):
        if isinstance(sources, str):
            raise InputError("generate takes a list of sentences; put the sentence into one: [sentence]")
        return list(sources)
    if mask is None or mask.shape != sources.shape:
        raise InputError(f"a tensor of ids needs an attention_mask of its shape, {tuple(sources.shape)}")
    return [row[keep.bool()].tolist() for row, keep in zip(sources, mask, strict=True)]


def cut_output(row: list[int], end: int, pad: int) -> list[int]:
    """An output up to its end of sentence, which stays; without padding."""
    row = row[: row.index(end) + 1] if end in row else row
    while row and row[-1] == pad and pad != end:
        row = row[:-1]
    return row
