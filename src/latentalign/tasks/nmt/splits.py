"""The splits of translation."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from latentalign.config import DataPath, Section
from latentalign.errors import InputError
from latentalign.links.formats import read_predicted
from latentalign.links.sets import LinkProbabilities
from latentalign.tasks.splits import TextSplit


class SplitConfig(TextSplit):
    """The text of one split: two files, line n of `source` translates line n of `target`, or one file of pairs."""

    links: DataPath | None = None
    """Word alignments of another aligner in Pharaoh format, for `inference.kind = "external"`."""


class DataConfig(Section):
    """The splits, and which training pairs are used."""

    train: SplitConfig
    valid: SplitConfig
    test: SplitConfig | None = None
    bleu_tokenize: Literal["13a", "none", "intl", "char"] = "13a"
    """Tokenizer of sacrebleu. Use "none" for text that is already tokenised."""
    max_length: int = Field(125, ge=1)
    """Largest number of tokens on either side of a training pair. Longer pairs are dropped."""
    max_dropped: float = Field(0.1, ge=0, le=1)
    """Largest share of training pairs that may be dropped. If more are dropped, training stops with an error."""
    processes: int | None = Field(None, ge=1)
    """Processes that encode the text of a large corpus. If unset, one for each core, at most 8. The result is the same.
    A run may be resumed with another number."""

    @property
    def splits(self) -> dict[str, SplitConfig]:
        """The splits that there are, by name."""
        found = {"train": self.train, "valid": self.valid, "test": self.test}
        return {name: split for name, split in found.items() if split is not None}


def read_split_links(path: Path, split: SplitConfig, lines: int) -> list[LinkProbabilities]:
    """The word links of every line of a split, from a file."""
    links = read_predicted(path).weights
    if len(links) != lines:
        raise InputError(f"{path} has {len(links)} lines, {split} has {lines}")
    return links
