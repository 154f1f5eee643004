"""Where the text of each split stands, and how its sentence pairs are read, for tasks with parallel text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import model_validator

from latentalign.config import DataPath, Section
from latentalign.storage import fingerprint
from latentalign.textfiles import Text, TextColumn, read_pairs, read_parallel

Side = Literal["source", "target"]


class TextSplit(Section):
    """The text of one split: two files, line n of `source` translates line n of `target`, or one file of pairs."""

    alternatives = (frozenset({"source", "target"}), frozenset({"pairs"}))

    source: DataPath | None = None
    """Text file with one source sentence per line, plain or gzip. Needs `target`."""
    target: DataPath | None = None
    """Text file with the translations, line by line, plain or gzip."""
    pairs: DataPath | None = None
    """Text file with two columns, source and target, separated by one tab; plain or gzip. In place of `source` and
    `target`."""
    gold: DataPath | None = None
    """Word alignments made by people, for AER."""
    gold_one_based: bool | None = None
    """Whether `gold` counts words from 1. The NAACL `.wa` layout always does."""

    @model_validator(mode="after")
    def _has_one_text(self) -> TextSplit:
        given = [name for name in ("source", "target", "pairs") if getattr(self, name) is not None]
        if given not in (["pairs"], ["source", "target"]):
            raise ValueError(f"set source and target, or pairs alone; {' and '.join(given) or 'none'} is set")
        return self

    @property
    def files(self) -> dict[str, Path]:
        """The text files by their keys."""
        found = {name: getattr(self, name) for name in ("source", "target", "pairs")}
        return {name: path for name, path in found.items() if path is not None}

    def text(self, side: Side) -> Text:
        """The text of one side, for reading and for messages."""
        if self.pairs is not None:
            return TextColumn(self.pairs, ("source", "target").index(side))
        return self.files[side]

    def read(self) -> Iterator[tuple[str, str]]:
        """The sentence pairs."""
        if self.pairs is not None:
            return read_pairs(self.pairs)
        return read_parallel(self.files["source"], self.files["target"])

    def fingerprints(self) -> dict[str, str]:
        """SHA-256 of each text file."""
        return {name: fingerprint(path) for name, path in self.files.items()}

    def __str__(self) -> str:
        return " and ".join(map(str, self.files.values()))
