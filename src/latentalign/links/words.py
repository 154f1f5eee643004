"""Words of a line, and their alignment probabilities from those of subwords."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from latentalign.links.sets import Links

JOINERS = re.compile("[\u200d\ufe00-\ufe0f]")
"""Characters that belong to the one before, although they are no combining marks."""
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Word:
    """A word as it stands in a line: `line[start:end]`, except that pieces of segmented text are joined."""

    text: str
    start: int
    end: int


def continues_character(char: str) -> bool:
    """Whether a character belongs to the one before it: combining marks, joiners and variation selectors."""
    return unicodedata.combining(char) != 0 or JOINERS.match(char) is not None


def find_words(line: str) -> list[Word]:
    """The words of a line, which whitespace separates."""
    return [Word(found[0], *found.span()) for found in re.finditer(r"\S+", line)]


@dataclass(frozen=True, eq=False)  # comparing arrays gives no single truth value
class WordAlignment:
    """Word-level alignment probabilities: W target words, V source words."""

    probability: Float[np.ndarray, "W V"]
    """Probability of each source word, averaged over the subwords of the target word."""
    null: Float[np.ndarray, " W"]
    """Probability of NULL and special tokens, averaged in the same way. They are never linked."""
    entropy: Float[np.ndarray, " W"]
    """Entropy in nats over the source words and one more outcome for all special tokens."""

    def best(self, threshold: float = 0.0, *, null: float | None = None) -> Links:
        """Each target word with its most probable source word (the first of equals).

        A word gets no link if that probability is zero or below `threshold`, or if NULL is more probable than the
        source word (with `null`: more probable than this number).
        """
        if not self.probability.size:
            return frozenset()
        source = self.probability.argmax(axis=1)
        decided = self.linked if null is None else self.null <= null
        linked = self._likely(threshold)[np.arange(len(source)), source] & decided
        return frozenset((int(source[w]), int(w)) for w in np.flatnonzero(linked))

    @property
    def linked(self) -> Array:
        """Whether some source word is at least as probable as NULL, for each target word."""
        largest: Array = self.probability.max(axis=1) if self.probability.size else np.zeros(len(self.null))
        return self.null <= largest

    def at_least(self, threshold: float) -> Links:
        """Every link whose probability is positive and at least `threshold`. A word may have several or none."""
        return frozenset((int(v), int(w)) for w, v in np.argwhere(self._likely(threshold)))

    def to_json(self, links: Links) -> list[dict[str, int | float]]:
        """Sorted links with their probabilities, as values that JSON can represent."""
        return [
            {"source": v, "target": w, "probability": float(self.probability[w, v])} for v, w in sorted(links)
        ]

    def _likely(self, threshold: float) -> Array:
        """Whether each probability is positive and at least `threshold`."""
        return (self.probability >= threshold) & (self.probability > 0)


def word_links(
    probabilities: Float[np.ndarray, "S T"], source_words: Sequence[int], target_words: Sequence[int]
) -> WordAlignment:
    """Word-level alignment probabilities, from a distribution over source subwords for each target subword.

    `source_words[t]` is the number of the word that source subword t belongs to, or -1 for a special token.
    `target_words` is the same for the target. A target word without subwords is not linked.
    """
    if probabilities.shape != (len(target_words), len(source_words)):
        raise ValueError(
            f"the shape of probabilities is {probabilities.shape}, but there are {len(target_words)} target and "
            f"{len(source_words)} source subwords"
        )
    of_source, of_target = _membership(source_words), _membership(target_words)
    subwords = np.maximum(of_target.sum(axis=0), 1)
    mean = of_target.T @ probabilities.astype(np.float64) / subwords[:, None]
    probability = mean @ of_source
    null = mean @ (np.asarray(source_words, dtype=np.int64) < 0).astype(np.float64)
    outcomes = np.concatenate([probability, null[:, None]], axis=1)
    log = np.log(outcomes, out=np.zeros_like(outcomes), where=outcomes > 0)
    return WordAlignment(probability, null, np.maximum(-(outcomes * log).sum(axis=1), 0.0))


def _membership(words: Sequence[int]) -> Float[np.ndarray, "subwords words"]:
    """1 if a subword belongs to a word, else 0. Special tokens belong to no word."""
    numbers = np.asarray(words, dtype=np.int64)
    is_member: Array = numbers[:, None] == np.arange(max(words, default=-1) + 1)
    return is_member.astype(np.float64)
