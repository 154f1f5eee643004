"""Embedded string transduction data: invented words, their sounds, and which letters make which sound.

A small set of rules reads spelling aloud, as in English: digraphs ("sh"), silent letters ("kn", final "e"), doubled
letters, and letters whose sound depends on their neighbours (soft "c" and "g"). Some spellings have two sounds, with
known probabilities. So the gold alignment and the exact log p(sounds | letters) of every word are known, and with them
the best possible perplexity. `python -m latentalign.data.spelling` prints twenty words.
"""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass
from math import log
from pathlib import Path
from random import Random

from latentalign.data.pairs import Pair, draw_splits, print_pairs, write_splits

SYLLABLES = (0.15, 0.4, 0.3, 0.15)
"""Probabilities of one to four syllables."""
ONSETS = (
    "", "", "b", "c", "ch", "cl", "d", "dr", "f", "fl", "g", "gr", "h", "j", "k", "l", "m", "n", "p", "ph", "pl",
    "qu", "r", "s", "sh", "st", "t", "th", "tr", "v", "w", "y", "z",
)  # fmt: skip
FIRST_ONSETS = ("kn", "wr", "gn", "ps")
"""Onsets with a silent letter, only at the start of a word."""
NUCLEI = ("a", "a", "e", "e", "i", "i", "o", "o", "u", "ai", "ea", "ee", "oa", "oo", "ou")
CODAS = (
    "",
    "",
    "",
    "b",
    "ck",
    "d",
    "ff",
    "g",
    "l",
    "ll",
    "m",
    "n",
    "ng",
    "p",
    "r",
    "s",
    "ss",
    "t",
    "th",
    "x",
)
LAST_CODAS = ("mb", "tch", "ght")
"""Codas with silent letters, only at the end of a word."""


@dataclass(frozen=True)
class Rule:
    """Letters that are read together, where they may stand, and their sounds with probabilities.

    A sound is written as (phone, number of the letter that makes it) pairs. An empty list is silence.
    """

    letters: str
    sounds: tuple[tuple[float, tuple[tuple[str, int], ...]], ...]
    after: str = ""
    """A pattern for the letters before."""
    before: str = ""
    """A pattern for the letters that follow."""
    silent: bool = False
    """Whether the other letters are silent, instead of making the sound together."""

    def matches(self, word: str, place: int) -> bool:
        """Whether the rule reads the word at this place."""
        end = place + len(self.letters)
        if not word.startswith(self.letters, place):
            return False
        before_ok = not self.after or re.search(f"(?:{self.after})$", word[:place]) is not None
        return before_ok and (not self.before or re.match(self.before, word[end:]) is not None)


def _read(letters: str, *sounds: str, after: str = "", before: str = "", silent: bool = False) -> Rule:
    """A rule from text: each sound is `phones` or `probability phones`; all phones come from the first letter.

    A phone that comes from another letter is written `phone@number`.
    """
    parsed = []
    for sound in sounds:
        share, _, phones = sound.partition(" ") if sound[:1].isdigit() else ("1", "", sound)
        marked = [phone.partition("@") for phone in phones.split()]
        parsed.append((float(share), tuple((phone, int(place or 0)) for phone, _, place in marked)))
    return Rule(letters, tuple(parsed), after, before, silent)


VOWEL, SOFT = "[aeiou]", "[eiy]"
RULES = (
    _read("kn", "n@1", after="^", silent=True), _read("wr", "r@1", after="^", silent=True),
    _read("gn", "n@1", after="^", silent=True), _read("ps", "s@1", after="^", silent=True),
    _read("mb", "m", before="$", silent=True), _read("ght", "t@2", silent=True), _read("tch", "tʃ"),
    _read("ch", "tʃ"), _read("ck", "k"), _read("ff", "f"), _read("ll", "l"), _read("ss", "s"), _read("ng", "ŋ"),
    _read("ph", "f"), _read("qu", "k w@1"), _read("sh", "ʃ"), _read("th", "0.7 θ", "0.3 ð"),
    _read("ai", "eɪ"), _read("ea", "0.75 iː", "0.25 ɛ"), _read("ee", "iː"), _read("oa", "oʊ"),
    _read("oo", "0.6 uː", "0.4 ʊ"), _read("ou", "aʊ"),
    _read("a", "eɪ", before="[bcdfgklmnprstvxz]e$"), _read("i", "aɪ", before="[bcdfgklmnprstvxz]e$"),
    _read("o", "oʊ", before="[bcdfgklmnprstvxz]e$"), _read("u", "uː", before="[bcdfgklmnprstvxz]e$"),
    _read("e", "", after=f"{VOWEL}.*[^aeiou]", before="$"),
    _read("a", "æ"), _read("e", "ɛ"), _read("i", "ɪ"), _read("o", "ɒ"), _read("u", "ʌ"),
    _read("c", "s", before=SOFT), _read("c", "k"), _read("g", "0.8 dʒ", "0.2 ɡ", before=SOFT), _read("g", "ɡ"),
    _read("s", "0.8 z", "0.2 s", after=VOWEL, before=VOWEL), _read("s", "s"), _read("x", "k s"), _read("y", "j"),
    _read("j", "dʒ"),
    *(_read(letter, letter) for letter in "bdfhklmnprtvwz"),
)  # fmt: skip
"""The first rule that matches is the one that reads."""


def draw_word(rng: Random) -> str:
    """An invented word."""
    count = rng.choices(range(1, 5), SYLLABLES)[0]
    parts = []
    for number in range(count):
        onsets = (*ONSETS, *FIRST_ONSETS) if number == 0 else ONSETS
        codas = (*CODAS, *LAST_CODAS) if number == count - 1 else CODAS
        parts += [rng.choice(onsets), rng.choice(NUCLEI), rng.choice(codas)]
    if rng.random() < 0.25 and re.search(r"[^aeiou][aiou][bcdfgklmnprstvxz]$", "".join(parts)):
        parts.append("e")
    return "".join(parts)


def read_aloud(word: str, rng: Random) -> Pair:
    """The sounds of a word, the letters that make them, and log p(sounds | letters).

    The letter that makes a sound has a sure link. The other letters of its group have possible links, unless they are
    silent.
    """
    phones: list[str] = []
    sure, possible = set[tuple[int, int]](), set[tuple[int, int]]()
    log_prob, place = 0.0, 0
    while place < len(word):
        rule = next(rule for rule in RULES if rule.matches(word, place))
        shares = [share for share, _ in rule.sounds]
        share, sound = rule.sounds[rng.choices(range(len(shares)), shares)[0]]
        log_prob += log(share)
        for phone, letter in sound:
            sure.add((place + letter, len(phones)))
            if len(sound) == 1 and not rule.silent:
                possible |= {(place + other, len(phones)) for other in range(len(rule.letters))}
            phones.append(phone)
        place += len(rule.letters)
    return Pair(tuple(word), tuple(phones), frozenset(sure), frozenset(possible - sure), log_prob)


def generate(n: int, *, seed: int, exclude: Container[tuple[str, ...]] = ()) -> list[Pair]:
    """n different words, none in `exclude`. The result for a seed is equal on every machine."""
    rng, seen, pairs = Random(seed), set[str](), list[Pair]()
    while len(pairs) < n:
        word = draw_word(rng)
        if 2 <= len(word) <= 16 and word not in seen and tuple(word) not in exclude:
            seen.add(word)
            pairs.append(read_aloud(word, rng))
    return pairs


def splits(train: int, valid: int, test: int, *, seed: int = 0) -> dict[str, list[Pair]]:
    """Pairs for training, validation and test. No source word is in two of them."""
    return draw_splits(generate, train, valid, test, seed=seed)


def write(
    folder: Path,
    *,
    train: int = 8_000,
    valid: int = 500,
    test: int = 1_000,
    seed: int = 0,
    overwrite: bool = False,
) -> None:
    """Write NAME.letters, NAME.sounds and NAME.gold for train, valid and test. Replaces files only with `overwrite`."""
    write_splits(
        folder,
        lambda: splits(train, valid, test, seed=seed),
        ("letters", "sounds"),
        overwrite=overwrite,
        between="",
    )


def main() -> None:
    """Print twenty pairs with their links, and the statistics of a thousand."""
    print_pairs(generate(1000, seed=0))


if __name__ == "__main__":
    main()
