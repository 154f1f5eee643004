"""How text is divided into tokens: subwords, words, characters, or pieces of text that is segmented already."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, groupby, islice
from typing import ClassVar, Literal

import tokenizers
from pydantic import Field, model_validator
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers

from latentalign.config import Section
from latentalign.links.words import Word, continues_character, find_words

PAD, UNK, BOS, EOS = range(4)
SPECIALS = ["<pad>", "<unk>", "<s>", "</s>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
SMALLEST_BPE = 300

Kind = Literal["bpe", "words", "characters", "segmented"]


class TokenizerConfig(Section):
    """How text is divided into tokens."""

    kind: Kind = "bpe"
    """`bpe`: subwords. `words`: whitespace-separated words. `characters`: characters with their combining marks.
    `segmented`: text that is already cut with `@@` marks."""
    target_kind: Kind | None = None
    """How the target text is divided, if not like the source. Needs `joint = false`."""
    vocab_size: int = Field(8000, gt=len(SPECIALS))
    """Largest size of a vocabulary, special tokens included. `bpe` uses 260 entries for special tokens and bytes."""
    joint: bool = True
    """Use one vocabulary for both languages."""
    lowercase: bool = False
    """Convert text to lower case."""
    min_count: int = Field(1, ge=1)
    """Occurrences that a word needs to be in the vocabulary, or a pair of subwords to be merged by `bpe`."""
    max_lines: int = Field(1_000_000, ge=1)
    """Largest number of lines per file to learn from. They are spread evenly over the file."""

    @property
    def kinds(self) -> tuple[Kind, Kind]:
        """How the source and the target are divided."""
        return self.kind, self.target_kind or self.kind

    @model_validator(mode="after")
    def _has_one_kind_if_joint(self) -> "TokenizerConfig":
        if self.joint and len(set(self.kinds)) > 1:
            raise ValueError(f"target_kind = {self.target_kind} needs two vocabularies; set joint = false")
        return self

    @model_validator(mode="after")
    def _room_for_bytes(self) -> "TokenizerConfig":
        if "bpe" in self.kinds and self.vocab_size < SMALLEST_BPE:
            raise ValueError(
                f"vocab_size must be at least {SMALLEST_BPE} for kind bpe, got {self.vocab_size}"
            )
        return self


@dataclass(frozen=True)
class Words:
    """Whitespace-separated words. The most frequent ones have an id, the others are unknown."""

    lowercase: bool
    before_unit: ClassVar[str] = ""
    """Text that is put before every unit when it is encoded."""

    def split(self, line: str) -> list[str]:
        """The units of a line, which are its parts between spaces. Each is encoded on its own."""
        return (line.lower() if self.lowercase else line).split()

    def learn(self, config: TokenizerConfig, corpus: Iterable[str]) -> tokenizers.Tokenizer:
        """Learn the vocabulary of lines of text. The corpus may be read more than once."""
        counts = Counter(chain.from_iterable(map(self.split, corpus)))
        words = (
            word
            for word in _by_frequency(counts)
            if counts[word] >= config.min_count and word not in SPECIALS
        )
        entries = [*SPECIALS, *islice(words, config.vocab_size - len(SPECIALS))]
        model = models.WordLevel({word: token for token, word in enumerate(entries)}, unk_token=SPECIALS[UNK])
        return tokenizers.Tokenizer(model)

    def words_of_units(self, units: Sequence[str]) -> Sequence[int]:
        """The position of the word of each unit."""
        return range(len(units))

    def find_words(self, line: str) -> list[Word]:
        """The words of a line that `words_of_units` counts, spelt as in the line."""
        units = find_words(line)
        numbered = zip(self.words_of_units([unit.text for unit in units]), units, strict=True)
        found = []
        for _, group in groupby(numbered, key=lambda entry: entry[0]):
            parts = [unit for _, unit in group]
            text = self.join([part.text for part in parts])
            found.append(Word(text, parts[0].start, parts[-1].end))
        return found

    def words_of_pieces(self, pieces: Sequence[str]) -> Sequence[int]:
        """The position of the word of each piece. Units consist of pieces."""
        return self.words_of_units(pieces)

    def starts_word(self, piece: str) -> bool:
        """Whether a piece can never continue the word before it. Punctuation after a word does not continue it."""
        return True

    def ends_word(self, piece: str) -> bool:
        """Whether the next piece may start a word."""
        return True

    def join(self, units: Sequence[str]) -> str:
        """Join units to words."""
        return " ".join(units)

    def text(self, ids: list[int], vocabulary: tokenizers.Tokenizer) -> str:
        """Decode ids to text."""
        return self.join(pieces_of(vocabulary, ids))


SPACE = "\u2581"
"""How a space is written as a character of its own."""


class Characters(Words):
    """Characters, each with the combining marks that follow it. A space is a character too.

    A mark belongs to the character before it if it has a combining class, as accents have. Vowel signs of Indic scripts
    have none: they are characters of their own.
    """

    def split(self, line: str) -> list[str]:
        """The characters of a line. Whitespace between words counts as one character."""
        return [word.text for word in self.find_words(line.lower() if self.lowercase else line)]

    def find_words(self, line: str) -> list[Word]:
        """Every character as a word. A space is written as a low bar."""
        found: list[Word] = []
        end = len(line.rstrip())
        for place in range(len(line) - len(line.lstrip()), end):
            char = line[place]
            last = found[-1] if found else None
            if last is not None and last.end == place and self.belongs_to(last, char):
                text = SPACE if char.isspace() else last.text + char
                found[-1] = Word(text, last.start, place + 1)
            else:
                found.append(Word(SPACE if char.isspace() else char, place, place + 1))
        return found

    @staticmethod
    def belongs_to(last: Word, char: str) -> bool:
        """Whether a character continues the one before it."""
        if char.isspace():
            return last.text == SPACE
        return last.text != SPACE and continues_character(char)

    def join(self, units: Sequence[str]) -> str:
        """Join characters to text."""
        return "".join(units).replace(SPACE, " ")


class Segmented(Words):
    """Pieces of text that is segmented already. All pieces of a word except the last end in @@."""

    def words_of_units(self, units: Sequence[str]) -> Sequence[int]:
        """The number of words that ended before each piece."""
        ended = accumulate((not unit.endswith("@@") for unit in units), initial=0)
        last = max(0, len(self.join(units).split()) - 1)
        return [min(number, last) for number, _ in zip(ended, units, strict=False)]

    def ends_word(self, piece: str) -> bool:
        return not piece.endswith("@@")

    def join(self, units: Sequence[str]) -> str:
        """Join pieces to words and remove the marks."""
        return re.sub(r"@@( |$)", "", " ".join(units)).strip()


class Bpe(Words):
    """Byte pair encoding that loses nothing except repeated whitespace.

    A piece that begins a word starts with a space, which no word can contain. Characters outside the alphabet are
    encoded as bytes. Punctuation and symbols are never merged with letters, so "Hund." and "Hund" share a piece.
    """

    before_unit = " "

    def learn(self, config: TokenizerConfig, corpus: Iterable[str]) -> tokenizers.Tokenizer:
        """Learn an alphabet that uses at most half of the vocabulary, and merges for the rest."""
        words = Counter(chain.from_iterable(map(self.split, corpus)))
        counts: Counter[str] = Counter()
        for word, number in words.items():
            for char in word:
                counts[char] += number
        room = config.vocab_size - len(SPECIALS) - len(BYTES)
        # The library breaks ties at random when it limits the alphabet. Here the code point decides.
        alphabet = [" ", *islice(_by_frequency(counts), room // 2)]
        learned = tokenizers.Tokenizer(models.BPE(unk_token=SPECIALS[UNK], byte_fallback=True))
        learned.pre_tokenizer = pre_tokenizers.Split(Regex(r" ?(?:[\p{P}\p{S}]|[^ \p{P}\p{S}]+)"), "isolated")
        learned.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
        trainer = trainers.BpeTrainer(
            vocab_size=config.vocab_size,
            special_tokens=[*SPECIALS, *BYTES],
            initial_alphabet=alphabet,
            limit_alphabet=len(alphabet),
            min_frequency=config.min_count,
            show_progress=False,
        )
        learned.train_from_iterator((" ".join(["", *self.split(line)]) for line in corpus), trainer)
        return learned

    def words_of_pieces(self, pieces: Sequence[str]) -> Sequence[int]:
        """The position of the word of each piece. A single space belongs to the word that follows."""
        positions, position, begins = [], -1, True
        for piece in pieces:
            begins = begins or piece[0] == " " or piece == "<0x20>"
            if begins and piece not in (" ", "<0x20>"):
                position, begins = position + 1, False
            positions.append(position + begins)
        return [max(0, min(place, position)) for place in positions]

    def starts_word(self, piece: str) -> bool:
        return piece[0] == " " or piece == "<0x20>" or unicodedata.category(piece[0])[0] in "PS"

    def text(self, ids: list[int], vocabulary: tokenizers.Tokenizer) -> str:
        """Decode ids to one line. A model may generate the bytes of a line break; it is replaced."""
        # A space that is encoded as a byte ends a word too, even between bytes that form no character.
        byte, space = (vocabulary.token_to_id(piece) for piece in ("<0x20>", " "))
        spaced = [space if token == byte and space is not None else token for token in ids]
        text = vocabulary.decode(spaced, False)
        return " ".join(re.sub(r"[^\S ]", "\ufffd", text).split())


SCHEMES: dict[str, type[Words]] = {
    "bpe": Bpe,
    "words": Words,
    "characters": Characters,
    "segmented": Segmented,
}


def pieces_of(vocabulary: tokenizers.Tokenizer, ids: Sequence[int]) -> list[str]:
    """The entries of a vocabulary that have some ids."""
    return [vocabulary.id_to_token(int(token)) or SPECIALS[UNK] for token in ids]


def _by_frequency(counts: Counter[str]) -> list[str]:
    """Entries by decreasing frequency; equally frequent ones in the order of their characters."""
    return sorted(counts, key=lambda entry: (-counts[entry], entry))
