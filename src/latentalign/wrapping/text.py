"""Sentence pairs as token ids, and the word that every token belongs to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from latentalign.errors import InputError
from latentalign.links.words import Word, find_words

Sentence = str | Sequence[int]
"""A line of text, or the ids of its tokens."""


@dataclass(frozen=True)
class Tokens:
    """A sentence as the model reads it."""

    ids: list[int]
    numbers: list[int]
    """The word that each token belongs to, counted from 0; -1 for special tokens."""
    words: list[Word]


@dataclass(frozen=True)
class TokenPair:
    """A sentence and its translation."""

    source: Tokens
    target: Tokens

    @property
    def blank(self) -> bool:
        """Whether a side has no word, so that there is nothing to align."""
        return not (self.source.words and self.target.words)


@dataclass(frozen=True, eq=False)
class Batch:
    """Sentence pairs, padded on the right."""

    source: Int[Tensor, "B T"]
    source_exists: Bool[Tensor, "B T"]
    target: Int[Tensor, "B S"]
    target_exists: Bool[Tensor, "B S"]
    source_in_word: Bool[Tensor, "B T"]
    """False for special tokens and padding."""
    target_in_word: Bool[Tensor, "B S"]

    @classmethod
    def of(cls, pairs: Sequence[TokenPair], *, pad: int, device: torch.device) -> Batch:
        """Pairs as tensors."""
        source, source_exists = pad_rows([p.source.ids for p in pairs], pad)
        target, target_exists = pad_rows([p.target.ids for p in pairs], pad)
        in_source = pad_rows([p.source.numbers for p in pairs], -1)[0] >= 0
        in_target = pad_rows([p.target.numbers for p in pairs], -1)[0] >= 0
        tensors = (source, source_exists, target, target_exists, in_source, in_target)
        return cls(*(tensor.to(device) for tensor in tensors))


def pad_rows(rows: Sequence[Sequence[int]], pad: int) -> tuple[Int[Tensor, "B T"], Bool[Tensor, "B T"]]:
    """Rows of ids as one tensor, padded on the right, and where it holds an id."""
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.full((len(rows), int(lengths.max())), pad)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = torch.tensor(row, dtype=torch.int64)
    return ids, torch.arange(ids.shape[1]) < lengths.unsqueeze(1)


@dataclass(frozen=True)
class Reader:
    """Turns sentences into tokens: text with a tokenizer of `transformers`, and lists of ids without one."""

    tokenizer: Any
    outputs: int
    """Ids are below this number."""
    end: int
    longest: int | None = None
    """How many tokens the model can read."""

    def pairs(self, pairs: Sequence[tuple[Sentence, Sentence]]) -> list[TokenPair]:
        """Sentence pairs as tokens."""
        pairs = list(pairs)
        for number, pair in enumerate(pairs, start=1):
            if isinstance(pair, str) or len(pair) != 2:
                raise InputError(
                    f"pair {number}: expected (source, target), got {short(pair)}; zip two lists of sentences"
                )
        sources = self.sentences([pair[0] for pair in pairs], "source")
        targets = self.sentences([pair[1] for pair in pairs], "target")
        return [TokenPair(*sides) for sides in zip(sources, targets, strict=True)]

    def sentences(self, sentences: Sequence[Sentence], side: str) -> list[Tokens]:
        """The sentences of one side as tokens."""
        if not sentences:
            return []
        kinds = {isinstance(sentence, str) for sentence in sentences}
        if len(kinds) > 1:
            raise InputError(
                f"some {side} sentences are text and others are ids; give all of them in one way"
            )
        found = list(self.from_text(sentences, side) if kinds.pop() else self.from_ids(sentences, side))
        for number, tokens in enumerate(found, start=1):
            if self.longest is not None and len(tokens.ids) > self.longest:
                raise InputError(
                    f"{side} sentence {number} has {len(tokens.ids)} tokens, but the model reads at most "
                    f"{self.longest}; shorten it or leave it out"
                )
        return found

    def from_ids(self, sentences: Sequence[Any], side: str) -> Iterator[Tokens]:
        """Every id is a word; the end of the sentence is added to targets that lack it."""
        for number, sentence in enumerate(sentences, start=1):
            ids = [int(token) for token in sentence]
            if any(token < 0 for token in ids) or (side == "target" and max(ids, default=0) >= self.outputs):
                raise InputError(
                    f"{side} sentence {number}: ids must be from 0 to {self.outputs - 1}, got {short(ids)}"
                )
            if side == "target" and ids[-1:] != [self.end]:
                ids = [*ids, self.end]
            if not ids:
                raise InputError(f"{side} sentence {number} has no ids; leave it out")
            yield self.each_a_word(ids)

    def each_a_word(self, ids: list[int]) -> Tokens:
        """Tokens that are words themselves; only the end of the sentence is special."""
        words, numbers = list[Word](), list[int]()
        for place, token in enumerate(ids):
            numbers.append(-1 if token == self.end else len(words))
            if token != self.end:
                words.append(Word(str(token), place, place + 1))
        return Tokens(ids, numbers, words)

    def from_text(self, lines: Sequence[Any], side: str) -> Iterator[Tokens]:
        """Words are what spaces separate; the tokenizer says where its pieces stand."""
        if self.tokenizer is None:
            raise InputError(
                "text needs the model's tokenizer: latentalign.wrap(model, tokenizer=tokenizer); or give token ids"
            )
        fast = self.tokenizer.is_fast
        text = {"text_target": list(lines)} if side == "target" else {"text": list(lines)}
        encoded = self.tokenizer(**text, return_special_tokens_mask=True, return_offsets_mapping=fast)
        for number, line in enumerate(lines):
            ids, words = encoded["input_ids"][number], find_words(line)
            special = [bool(mark) for mark in encoded["special_tokens_mask"][number]]
            if fast:
                numbers = numbers_by_place(encoded["offset_mapping"][number], words)
            else:
                numbers = numbers_by_decoding(self.tokenizer, ids, special)
            last = len(words) - 1
            numbers = [-1 if s else min(n, last) for n, s in zip(numbers, special, strict=True)]
            yield Tokens(list(ids), numbers, words)

    def generated(self, ids: list[int]) -> tuple[str, Tokens]:
        """An output of the model as text and tokens; without a tokenizer, the text is the ids."""
        if self.tokenizer is None:
            tokens = self.each_a_word(ids)
            return " ".join(word.text for word in tokens.words), tokens
        special = [token in set(self.tokenizer.all_special_ids) for token in ids]
        text = self.tokenizer.decode(ids, skip_special_tokens=True)
        words = find_words(text)
        numbers = numbers_by_decoding(self.tokenizer, ids, special)
        numbers = [-1 if s else min(n, len(words) - 1) for n, s in zip(numbers, special, strict=True)]
        return text, Tokens(ids, numbers, words)


def numbers_by_place(places: Sequence[tuple[int, int]], words: Sequence[Word]) -> list[int]:
    """The word of each piece, from the characters that the piece covers; a space belongs to the word behind it."""
    found, number = [], 0
    for start, end in places:
        while number < len(words) - 1 and words[number].end <= max(start, end - 1):
            number += 1
        found.append(number)
    return found


def numbers_by_decoding(tokenizer: Any, ids: Sequence[int], special: Sequence[bool]) -> list[int]:
    """The word of each piece: how many words there are once it is decoded. A space belongs to the word behind it."""
    found, seen, before, spaces = list[int](), list[int](), "", 0
    for token, is_special in zip(ids, special, strict=True):
        seen += [] if is_special else [token]
        text = tokenizer.decode(seen).rstrip() if seen else ""
        number = max(0, len(find_words(text)) - 1)
        if not is_special and text == before:
            spaces += 1
            continue
        found += [number] * (spaces + 1)
        before, spaces = text, 0
    return found + [max(0, len(find_words(before)) - 1)] * spaces


def short(value: object) -> str:
    """A value as it may appear in a message."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
