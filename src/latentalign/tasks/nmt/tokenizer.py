"""Text to subword ids and back. The word that each subword belongs to is always known.

There are four kinds: `bpe` learns subwords, `words` uses whitespace-separated words, `characters` uses characters, and
`segmented` reads text that was segmented with `@@ ` before. Words are what `str.split` finds; for `characters`, every
character is a word. The text is not changed otherwise (no Unicode normalisation), except that `lowercase` lowers it.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from latentalign.errors import CheckpointError, InputError
from latentalign.links.words import Word
from latentalign.storage import read_saved, sha256, write_bytes
from latentalign.tasks.nmt.schemes import (
    BOS,
    EOS,
    PAD,
    SCHEMES,
    SPECIALS,
    UNK,
    Kind,
    TokenizerConfig,
    Words,
    pieces_of,
)
from latentalign.tasks.nmt.unit_table import UnitTable
from latentalign.tasks.splits import Side
from latentalign.textfiles import Text, count_lines, read_lines

__all__ = ["BOS", "EOS", "PAD", "SPECIALS", "UNK", "Encoded", "Tokenizer", "TokenizerConfig"]

FORMAT, VERSION = "latentalign tokenizer", 1
INVALID = "not as this program writes it: unknown kind, or ids with gaps"
LARGEST_TABLE = 2**21
"""Different units that are remembered while a corpus is encoded. Beyond that, they are encoded again."""


@dataclass(frozen=True)
class Encoded:
    """The subwords of one line, and for each the position of its word in the line."""

    ids: list[int]
    words: list[int]

    def cut(self, length: int) -> "Encoded":
        """The first subwords."""
        return self if len(self.ids) <= length else Encoded(self.ids[:length], self.words[:length])


@dataclass
class Tokenizer:
    """A source and a target vocabulary, which may be the same. Both start with the special tokens `SPECIALS`."""

    kind: Kind
    lowercase: bool
    source_json: str = field(repr=False)
    target_json: str = field(repr=False)
    target_kind: Kind | None = None
    """How the target text is divided, if not like the source."""
    source_vocabulary: tokenizers.Tokenizer = field(init=False, repr=False, compare=False)
    target_vocabulary: tokenizers.Tokenizer = field(init=False, repr=False, compare=False)
    source_size: int = field(init=False, repr=False, compare=False)
    target_size: int = field(init=False, repr=False, compare=False)
    """Number of entries of a vocabulary."""

    def __post_init__(self) -> None:
        same = self.source_json == self.target_json
        self.source_vocabulary = source = tokenizers.Tokenizer.from_str(self.source_json)
        self.target_vocabulary = target = source if same else tokenizers.Tokenizer.from_str(self.target_json)
        self.source_size, self.target_size = source.get_vocab_size(), target.get_vocab_size()
        self._schemes: dict[Side, Words] = {
            "source": SCHEMES[self.kind](self.lowercase),
            "target": SCHEMES[self.target_kind or self.kind](self.lowercase),
        }
        self._content = {
            "format": FORMAT,
            "version": VERSION,
            "kind": self.kind,
            "lowercase": self.lowercase,
            "source": self.source_json,
            "target": None if same else self.target_json,
        }
        if self.target_kind is not None:  # absent in files of earlier versions
            self._content["target_kind"] = self.target_kind
        self._fingerprint = _digest(self._content)
        self._tables: dict[str, UnitTable] = {}
        self.largest_table = LARGEST_TABLE

    @classmethod
    def learn(cls, config: TokenizerConfig, source: Text, target: Text) -> "Tokenizer":
        """Learn the vocabularies of the two sides of a corpus."""
        groups = [[source, target]] if config.joint else [[source], [target]]
        learned = [_learn(config, kind, paths) for kind, paths in zip(config.kinds, groups, strict=False)]
        target_kind = None if config.target_kind == config.kind else config.target_kind
        return cls(config.kind, config.lowercase, learned[0], learned[-1], target_kind)

    def find_words(self, line: str, side: Side) -> list[Word]:
        """The words of a line that `Encoded.words` refers to, spelt as in the line. Segmented words are joined."""
        return self._schemes[side].find_words(line)

    def find_pair_words(self, source: str, target: str) -> tuple[list[Word], list[Word]]:
        """The words of both sides of a pair."""
        return self.find_words(source, "source"), self.find_words(target, "target")

    def encode_source(self, line: str) -> Encoded:
        """Subwords of a source line, without special tokens."""
        return self.encode_source_batch([line])[0]

    def encode_target(self, line: str) -> Encoded:
        """Subwords of a target line, without special tokens."""
        return self.encode_target_batch([line])[0]

    def encode_source_batch(self, lines: Sequence[str]) -> list[Encoded]:
        """Subwords of source lines."""
        return self._encode(lines, "source")

    def encode_target_batch(self, lines: Sequence[str]) -> list[Encoded]:
        """Subwords of target lines."""
        return self._encode(lines, "target")

    def source_ids(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of source lines, without word positions. This is faster for large files."""
        return self._ids(lines, "source")

    def target_ids(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of target lines, without word positions."""
        return self._ids(lines, "target")

    def id_arrays(self, lines: Sequence[str], side: Side) -> tuple[np.ndarray, np.ndarray]:
        """Ids of the lines of one side, one line after the other, and the number of ids of each line.

        Units are remembered from call to call, so this is the fastest way to encode a large corpus in parts.
        """
        if side not in self._tables or len(self._tables[side]) > self.largest_table:
            self._tables[side] = UnitTable()
        rows = list(map(self._schemes[side].split, lines))
        return self._tables[side].gather(rows, lambda units: self._ids_of_units([units], side))

    def decode_target(self, ids: Sequence[int]) -> str:
        """Decode target ids to text. Special tokens are removed, except <unk>, which stays visible."""
        visible = [int(token) for token in ids if token > EOS or token == UNK]
        return self._schemes["target"].text(visible, self.target_vocabulary)

    def target_words(self, ids: Sequence[int]) -> list[int]:
        """The position of the word of each target id in `decode_target(ids)`; ids without <pad>, <s> and </s>."""
        return list(self._schemes["target"].words_of_pieces(pieces_of(self.target_vocabulary, ids)))

    def target_boundaries(self) -> tuple[list[bool], list[bool]]:
        """For every target id, whether it never continues the word before it, and whether a word may follow it."""
        scheme, pieces = self._schemes["target"], pieces_of(self.target_vocabulary, range(self.target_size))
        return [scheme.starts_word(piece) for piece in pieces], [scheme.ends_word(piece) for piece in pieces]

    def source_pieces(self, ids: Sequence[int]) -> list[str]:
        """Source ids as readable pieces. The space before a word is shown as a low bar."""
        return [piece.replace(" ", "\u2581") for piece in pieces_of(self.source_vocabulary, ids)]

    def target_pieces(self, ids: Sequence[int]) -> list[str]:
        """Target ids as readable pieces. The space before a word is shown as a low bar."""
        return [piece.replace(" ", "\u2581") for piece in pieces_of(self.target_vocabulary, ids)]

    def fingerprint(self) -> str:
        """SHA-256 of everything that determines how text is encoded."""
        return self._fingerprint

    def save(self, path: Path | str) -> None:
        """Write one JSON file, completely or not at all."""
        write_bytes(Path(path), self.to_bytes())

    @classmethod
    def load(cls, path: Path | str) -> "Tokenizer":
        """The tokenizer that `save` wrote; a CheckpointError if the file has changed."""
        path = Path(path)
        raw = read_saved(path)
        try:
            content = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise CheckpointError(f"{path}: checksum mismatch: damaged, not JSON: {error}") from None
        doubt = _check_header(path, content)
        try:
            loaded = cls._from_content(content)
            intact = raw == loaded.to_bytes()
            valid = intact and _is_valid(loaded.source_vocabulary) and _is_valid(loaded.target_vocabulary)
        except Exception as error:  # the tokenizers library raises nothing more precise
            raise CheckpointError(f"{path}: {doubt}damaged: {type(error).__name__}: {error}") from None
        if not intact:
            raise CheckpointError(f"{path}: checksum mismatch: damaged, the bytes have changed")
        if not valid:
            raise CheckpointError(f"{path}: {INVALID}")
        return loaded

    def to_bytes(self) -> bytes:
        """The content of the file: equal bytes for equal tokenizers."""
        return json.dumps({**self._content, "sha256": self._fingerprint}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Tokenizer":
        """The tokenizer that `to_bytes` wrote just before. To read a file, which may have changed, use `load`."""
        return cls._from_content(json.loads(data))

    @classmethod
    def _from_content(cls, content: dict[str, Any]) -> "Tokenizer":
        source = content["source"]
        target, target_kind = content["target"] or source, content.get("target_kind")
        return cls(content["kind"], content["lowercase"], source, target, target_kind)

    def _encode(self, lines: Sequence[str], side: Side) -> list[Encoded]:
        """Ids of lines and the positions of their words."""
        rows = [self._schemes[side].split(line) for line in lines]
        ids = self._ids_of_units(rows, side)
        encoded = []
        for units in rows:
            places = zip(self._schemes[side].words_of_units(units), units, strict=True)
            words = [place for place, unit in places for _ in ids[unit]]
            encoded.append(Encoded(list(chain.from_iterable(map(ids.__getitem__, units))), words))
        return encoded

    def _ids(self, lines: Sequence[str], side: Side) -> list[list[int]]:
        """Ids of lines."""
        rows = [self._schemes[side].split(line) for line in lines]
        ids = self._ids_of_units(rows, side)
        return [list(chain.from_iterable(map(ids.__getitem__, units))) for units in rows]

    def _ids_of_units(self, rows: Iterable[Iterable[str]], side: Side) -> dict[str, list[int]]:
        """Ids of every unit of some lines. A repeated unit is encoded only once."""
        vocabulary = self.source_vocabulary if side == "source" else self.target_vocabulary
        units = list(dict.fromkeys(chain.from_iterable(rows)))
        marked = [self._schemes[side].before_unit + unit for unit in units]
        try:
            batch = vocabulary.encode_batch_fast(marked, add_special_tokens=False)
        except TypeError:
            bad = next(unit for unit in units if re.search("[\ud800-\udfff]", unit))
            raise InputError(
                f"the text contains a lone surrogate, which is not a character: {bad!a:.80}"
            ) from None
        # A word that is written like a special token, for example </s>, is unknown. It does not end the sentence.
        found = ([token if token > EOS else UNK for token in encoding.ids] for encoding in batch)
        return dict(zip(units, found, strict=True))


@dataclass(frozen=True)
class _Sample:
    """At most `max_lines` lines of each file, spread evenly. It may be read more than once."""

    config: TokenizerConfig
    paths: Sequence[Text]

    def __iter__(self) -> Iterator[str]:
        for path, step in zip(self.paths, self._steps, strict=True):
            blank = True
            for line in islice(read_lines(path), 0, None, step):
                blank = blank and not line.strip()
                yield line
            if blank:
                raise InputError(f"{path}: there is no text to learn a vocabulary from")

    @cached_property
    def _steps(self) -> list[int]:
        """For each file, the distance between the lines that are read."""
        return [max(1, -(-count_lines(path) // self.config.max_lines)) for path in self.paths]


def _check_header(path: Path, content: Any) -> str:
    """Raise unless a document is a tokenizer of a known version. Return the words for a wrong checksum, or ""."""
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: checksum mismatch: not a tokenizer of latentalign")
    rest = {key: value for key, value in content.items() if key != "sha256"}
    doubt = "" if content.get("sha256") == _digest(rest) else "checksum mismatch: "
    if content.get("format") != FORMAT:
        raise CheckpointError(f"{path}: {doubt}not a tokenizer of latentalign")
    if content.get("version") != VERSION:
        raise CheckpointError(
            f"{path}: {doubt}version {content.get('version')}, but this program reads only version {VERSION}"
        )
    kinds = content.get("kind"), content.get("target_kind", "words")
    if not doubt and not all(kind in list(SCHEMES) for kind in kinds):
        raise CheckpointError(f"{path}: {INVALID}")
    return doubt


def _is_valid(vocabulary: tokenizers.Tokenizer) -> bool:
    """Whether special tokens come first, ids have no gaps, and every text can be encoded."""
    vocabulary.encode(" \ufdd0")  # a character that no text contains; raises if nothing can be unknown
    entries = vocabulary.get_vocab()
    first = [entries.get(special) for special in SPECIALS] == list(range(len(SPECIALS)))
    return first and sorted(entries.values()) == list(range(vocabulary.get_vocab_size()))


def _learn(config: TokenizerConfig, kind: Kind, paths: Sequence[Text]) -> str:
    """Learn one vocabulary from all files; the JSON text of the tokenizers library."""
    scheme = SCHEMES[kind](config.lowercase)
    content = json.loads(scheme.learn(config, _Sample(config, paths)).to_str())
    # These would encode text that is written like a special token as the special token.
    content["added_tokens"] = []
    return json.dumps(content, ensure_ascii=False)


def _digest(content: dict[str, Any]) -> str:
    """SHA-256 of a document, independent of the order of its keys."""
    return sha256(json.dumps(content, sort_keys=True).encode())
