"""What an aligner is made of: its units and the settings of its training."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from latentalign.config import Section
from latentalign.links.words import Word, continues_character, find_words


class AlignerConfig(Section):
    """How text becomes words, and how the aligner learns."""

    tokenize: Literal["words", "characters"] = "words"
    """`words` are separated by spaces. `characters` aligns characters with their combining marks."""
    target_tokenize: Literal["words", "characters"] | None = None
    """The same for the target text, if it differs."""
    lowercase: bool = True
    """Ignore case."""
    prefixes: tuple[int, ...] = (4,)
    """Words also share statistics with words that begin with the same letters: this many of them."""
    suffixes: tuple[int, ...] = (5,)
    """Words also share statistics with words that end with the same letters: this many of them."""
    first_iterations: int = Field(3, ge=1)
    """Passes over the text in which all positions are equally likely (IBM model 1)."""
    iterations: int = Field(4, ge=1)
    """Passes over the text with the jump chain, in which both directions have to agree."""
    sparsity: float = Field(1e-5, gt=0)
    """Concentration of the Dirichlet prior of translation probabilities. Smaller values give fewer translations."""
    null: float = Field(0.1, gt=0, lt=1)
    """Chance that a word has no counterpart, during training. Afterwards it is measured."""
    own_share: float = Field(0.1, ge=0, le=1)
    """Where both directions disagree about a word, it still learns this share from its own direction. Without it, a
    word can never have two counterparts."""
    widest_jump: int = Field(60, ge=1)
    """Wider jumps count as this one."""
    jump_weight: float = Field(0.5, gt=0, le=1)
    """Exponent of the learned jump probabilities in the final posterior. 1 trusts them fully."""
    longest: int = Field(250, ge=1)
    """Sentences with more words are aligned, but not learned from, unless all are that long."""
    largest_table: int = Field(6_000_000, ge=1000)
    """Word pairs with a translation probability of their own. If there are more, the rarest are left out. It limits the
    memory of training."""

    def split(self, line: str, side: int) -> list[Word]:
        """The words of a line and where they stand; side 0 is the source, side 1 the target."""
        kind = (self.target_tokenize if side == 1 else None) or self.tokenize
        return find_words(line) if kind == "words" else find_characters(line)

    def split_pair(self, pair: tuple[str, str]) -> tuple[list[Word], list[Word]]:
        """The words of both sides."""
        return self.split(pair[0], 0), self.split(pair[1], 1)

    def normalise(self, words: list[Word]) -> list[str]:
        """The words as the aligner compares them."""
        return [word.text.lower() if self.lowercase else word.text for word in words]

    @property
    def units(self) -> list[tuple[str, int]]:
        """The units that words share statistics by, the whole word first."""
        if self.tokenize == "characters":
            return [("word", 0)]
        return [("word", 0), *(("prefix", n) for n in self.prefixes), *(("suffix", n) for n in self.suffixes)]


def unit_of(word: str, kind: str, length: int) -> str:
    """The unit of a word: the word itself, its first letters or its last letters."""
    return word if kind == "word" else word[:length] if kind == "prefix" else word[-length:]


def find_characters(line: str) -> list[Word]:
    """The characters of a line, each with its combining marks; spaces are left out."""
    found: list[Word] = []
    for place, character in enumerate(line):
        if character.isspace():
            continue
        if found and continues_character(character) and found[-1].end == place:
            last = found.pop()
            found.append(Word(last.text + character, last.start, place + 1))
        else:
            found.append(Word(character, place, place + 1))
    return found
