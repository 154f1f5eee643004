"""A trained aligner: translation probabilities, jumps and NULL of both directions, and how it aligns any text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentalign.aligner.config import AlignerConfig, unit_of
from latentalign.aligner.corpus import Sentences, Vocabulary, plan_batches
from latentalign.aligner.lexicon import BUCKETS, Level, Words, bucket_of
from latentalign.core.distributions.chain import Chain
from latentalign.core.distributions.transitions import Jump
from latentalign.core.kernels.jump_posterior import JumpPosterior, jump_posterior

Array = np.ndarray[Any, np.dtype[Any]]
WordPair = tuple[Sequence[str], Sequence[str]]
"""The words of both sides of a sentence pair, normalised."""
GROUP = 2000
"""Sentence pairs that are aligned together."""
LEAST = 1e-7
"""Translation probabilities below this are not kept."""


@dataclass(eq=False)
class Direction:
    """One direction of an aligner: which words have no counterpart, and how far alignments jump."""

    null_words: Float[Tensor, " words"]
    """p(word | NULL)."""
    weights: Float[Tensor, " widths"]
    """Weights of the jumps -W..W."""
    null: float
    """Chance of NULL."""

    @classmethod
    def new(cls, words: int, widest: int, null: float) -> Direction:
        """A direction that has seen nothing: jumps of +1 are the most likely."""
        jumps = torch.exp(-0.3 * (torch.arange(-widest, widest + 1) - 1.0).abs())
        return cls(torch.full((max(1, words),), 1 / max(1, words)), jumps, null)


@dataclass(frozen=True, eq=False)
class PairPosterior:
    """What an aligner knows about one sentence pair with S target and T source words."""

    forward: Float[Array, "S T"]
    """p(source word | target word): every target word has one source word or NULL."""
    backward: Float[Array, "S T"]
    """p(target word | source word): every source word has one target word or NULL."""
    target_null: Float[Array, " S"]
    source_null: Float[Array, " T"]

    @property
    def mean(self) -> Float[Array, "S T"]:
        """The mean of both directions: the probability of a link."""
        return (self.forward + self.backward) / 2

    @property
    def product(self) -> Float[Array, "S T"]:
        """The geometric mean of both directions: large only where both agree."""
        both: Array = np.sqrt(self.forward * self.backward)
        return both


class Aligner:
    """Aligns words of sentence pairs, with probabilities."""

    def __init__(
        self,
        config: AlignerConfig,
        words: Words,
        levels: Sequence[Level],
        mixtures: Sequence[Tensor],
        directions: Sequence[Direction],
        *,
        threshold: float,
        history: Sequence[Mapping[str, float]] = (),
    ) -> None:
        self.config, self.words, self.levels = config, words, list(levels)
        self.mixtures, self.directions = list(mixtures), list(directions)
        self.threshold, self.history = threshold, list(history)

    @classmethod
    def untrained(cls, config: AlignerConfig) -> Aligner:
        """An aligner that knows no words: it links copies."""
        words = Words((Vocabulary(), Vocabulary()), (torch.zeros(1), torch.zeros(1)))
        directions = [Direction.new(0, config.widest_jump, config.null) for _ in range(2)]
        mixtures = [torch.ones(BUCKETS, 1) for _ in range(2)]
        return cls(config, words, [], mixtures, directions, threshold=0.5)

    def prune(self) -> Aligner:
        """Forget translations that are almost impossible."""
        for level in self.levels:
            keep = (level.tables[0] > LEAST) | (level.tables[1] > LEAST)
            level.keys = level.keys[keep.numpy()]
            level.tables = [table[keep] for table in level.tables]
        return self

    def tensors(self) -> dict[str, Tensor]:
        """Everything that was learned, except the words themselves."""
        found = {"threshold": torch.tensor(self.threshold)}
        for side, direction in enumerate(self.directions):
            found[f"direction.{side}.null_words"] = direction.null_words
            found[f"direction.{side}.weights"] = direction.weights
            found[f"direction.{side}.null"] = torch.tensor(direction.null)
            found[f"mixture.{side}"] = self.mixtures[side]
            found[f"frequency.{side}"] = self.words.frequencies[side]
        for number, level in enumerate(self.levels):
            found[f"level.{number}.keys"] = torch.from_numpy(level.keys)
            for side, table in enumerate(level.tables):
                found[f"level.{number}.table.{side}"] = table
        return {name: tensor.contiguous() for name, tensor in found.items()}

    @classmethod
    def from_tensors(
        cls, config: AlignerConfig, words: tuple[Sequence[str], Sequence[str]], tensors: Mapping[str, Tensor]
    ) -> Aligner:
        """An aligner from its words and the result of `tensors`."""
        vocabularies = (Vocabulary(words[0]), Vocabulary(words[1]))
        known = Words(vocabularies, (tensors["frequency.0"], tensors["frequency.1"]))
        levels = []
        for number, (kind, length) in enumerate(config.units):
            units, of_word = known.units(kind, length)
            counts = [
                torch.zeros(max(1, len(units[side]))).index_add_(
                    0, torch.from_numpy(of_word[side]), known.frequencies[side]
                )
                for side in (0, 1)
            ]
            tables = [tensors[f"level.{number}.table.{side}"] for side in (0, 1)]
            keys = tensors[f"level.{number}.keys"].numpy()
            levels.append(Level(kind, length, units, (counts[0], counts[1]), keys, tables))
        directions = [
            Direction(
                tensors[f"direction.{side}.null_words"],
                tensors[f"direction.{side}.weights"],
                float(tensors[f"direction.{side}.null"]),
            )
            for side in (0, 1)
        ]
        mixtures = [tensors[f"mixture.{side}"] for side in (0, 1)]
        return cls(config, known, levels, mixtures, directions, threshold=float(tensors["threshold"]))

    # Alignment

    def align(self, pairs: Iterable[WordPair]) -> Iterator[PairPosterior]:
        """The posteriors of sentence pairs that are split and normalised, in order. A blank side has no words."""
        stream = iter(pairs)
        while group := list(islice(stream, GROUP)):
            yield from self._align_group(group)

    def align_lines(self, pairs: Iterable[tuple[str, str]]) -> Iterator[PairPosterior]:
        """The posteriors of lines of text."""
        config = self.config
        words = (config.split_pair(pair) for pair in pairs)
        return self.align((config.normalise(a), config.normalise(b)) for a, b in words)

    def _align_group(self, pairs: Sequence[WordPair]) -> list[PairPosterior]:
        found = [empty_posterior(len(source), len(target)) for source, target in pairs]
        for lines, (forward, backward) in self._posteriors(pairs):
            for row, line in enumerate(lines):
                t, s = (len(side) for side in pairs[line])
                found[line] = PairPosterior(
                    forward.links[row, :s, :t].numpy().copy(),
                    backward.links[row, :t, :s].numpy().T.copy(),
                    forward.null[row, :s].numpy().copy(),
                    backward.null[row, :t].numpy().copy(),
                )
        return found

    def log_likelihoods(self, pairs: Sequence[WordPair]) -> Float[Array, "pairs 2"]:
        """log p(target | source) and log p(source | target) of sentence pairs in nats; 0 if a side is blank."""
        found = np.zeros((len(pairs), 2))
        for start in range(0, len(pairs), GROUP):
            for lines, directions in self._posteriors(pairs[start : start + GROUP]):
                for side, posterior in enumerate(directions):
                    found[start + lines, side] = posterior.log_likelihood.sum(1).numpy()
        return found

    @torch.no_grad()
    def _posteriors(
        self, pairs: Sequence[WordPair]
    ) -> Iterator[tuple[Int[Array, " B"], list[JumpPosterior]]]:
        """The posteriors of both directions, batch by batch, each with the numbers of its pairs."""
        text = TextGroup(self, pairs)
        for lines in plan_batches(text.sides[0].lengths, text.sides[1].lengths, longest=None):
            source, source_exists = text.sides[0].pad(lines)
            target, target_exists = text.sides[1].pad(lines)
            cells, emissions = text.emissions(source, target)
            source_here, target_here = torch.from_numpy(source_exists), torch.from_numpy(target_exists)
            results = []
            for side, direction in enumerate(self.directions):
                emission = emissions[side][cells]
                members, exists, ids = source_here, target_here, target
                if side == 1:
                    emission, members, exists, ids = (
                        emission.transpose(1, 2),
                        target_here,
                        source_here,
                        source,
                    )
                null = text.null_words[side][torch.from_numpy(ids).long()]
                results.append(
                    jump_posterior(
                        emission, null, members, exists, weights=direction.weights, null=direction.null
                    )
                )
            yield lines, results

    def chain(self, source: Sequence[str], target: Sequence[str], side: int = 0) -> tuple[Chain, Tensor]:
        """One direction as a chain of the core, and log p(word | member).

        Side 0 generates the target from the source, side 1 the source from the target. The last member is NULL. The one
        before is the end of the sentence: it generates one more word, which stands for the end.
        """
        text, direction = TextGroup(self, [(source, target)]), self.directions[side]
        a, b = text.sides[0].pad([0])[0], text.sides[1].pad([0])[0]
        cells, emissions = text.emissions(a, b)
        emission, ids = emissions[side][cells], b
        if side == 1:
            emission, ids = emission.transpose(1, 2), a
        null = text.null_words[side][torch.from_numpy(ids).long()]
        steps, width = emission.shape[1:]
        log_f = torch.full((1, steps + 1, width + 2), float("-inf"), dtype=torch.float64)
        log_f[:, :-1, :width], log_f[:, :-1, -1] = emission.double().log(), null.double().log()
        log_f[:, -1, width] = 0.0
        table = direction.weights.double().log()
        scores = torch.zeros_like(log_f[..., :-1])
        widest = len(table) // 2
        scores[:, 0] = table[(torch.arange(width + 1) + 1).clamp_max(widest) + widest]
        scores[:, 0, width] = float("-inf")
        null_scores = torch.full((1, steps + 1), direction.null, dtype=torch.float64).logit()
        null_scores[:, -1] = -1e4
        return Chain.from_scores(scores, transition=Jump(table), null_scores=null_scores), log_f


def empty_posterior(source: int, target: int) -> PairPosterior:
    """The posterior of a pair with a blank side: nothing is linked."""
    nothing = np.zeros((target, source), np.float32)
    return PairPosterior(nothing, nothing, np.ones(target, np.float32), np.ones(source, np.float32))


class TextGroup:
    """Some sentence pairs with the translation probabilities of their words, which may be new."""

    def __init__(self, aligner: Aligner, pairs: Sequence[WordPair]) -> None:
        self.aligner, self.vocabularies = aligner, (Vocabulary(), Vocabulary())
        self.sides = tuple(
            encode_sentences([pair[side] for pair in pairs], self.vocabularies[side]) for side in (0, 1)
        )
        known = [self._find(side) for side in (0, 1)]
        frequencies = [
            torch.where(known[side] >= 0, aligner.words.frequencies[side][known[side].clamp_min(0)], 0.0)
            for side in (0, 1)
        ]
        self.buckets = [bucket_of(f) for f in frequencies]
        self.null_words = [
            torch.where(
                known[1 - side] >= 0,
                aligner.directions[side].null_words[known[1 - side].clamp_min(0)],
                aligner.directions[side].null_words.min(),
            )
            for side in (0, 1)
        ]
        self.units = [
            [self._units(level, side, frequencies[side]) for side in (0, 1)] for level in aligner.levels
        ]
        same = [self.vocabularies[1].ids.get(word, -1) for word in self.vocabularies[0].ids]
        self.same = np.array([*same, -1], np.int64)

    def _find(self, side: int) -> Tensor:
        """The known id of every word, and -1 for new words."""
        ids = self.aligner.words.vocabularies[side].ids
        return torch.tensor([ids.get(word, -1) for word in self.vocabularies[side].ids] or [-1])

    def _units(self, level: Level, side: int, frequency: Tensor) -> tuple[Array, Tensor]:
        """The unit of every word (-1: new), and the share of the word in its unit."""
        ids = level.units[side].ids
        units = [ids.get(unit_of(word, level.kind, level.length), -1) for word in self.vocabularies[side].ids]
        found = torch.tensor(units or [-1])
        count = level.counts[side][found.clamp_min(0)]
        share = torch.where(frequency > 0, frequency, 1.0) / torch.where(frequency > 0, count, count + 1)
        return found.numpy(), share

    def emissions(self, source: Array, target: Array) -> tuple[Tensor, list[Tensor]]:
        """The word pair of every cell, and the translation probabilities of these word pairs in both directions."""
        width = max(1, len(self.vocabularies[1]))
        index, pairs = number_cells(source, target, width)
        words = (pairs // width, pairs % width)
        levels = [self._look_up(number, words) for number in range(len(self.aligner.levels))]
        copies = torch.from_numpy((self.same[words[0]] == words[1]).astype(np.float32))
        result = []
        for side in (0, 1):
            given, out = (torch.from_numpy(words[s]) for s in (side, 1 - side))
            weights = self.aligner.mixtures[side][self.buckets[side][given]]
            total = weights[:, -1] * copies
            for number, tables in enumerate(levels):
                total += weights[:, number] * tables[side] * self.units[number][1 - side][1][out]
            result.append(total)
        return torch.from_numpy(index), result

    def _look_up(self, number: int, words: tuple[Array, Array]) -> list[Tensor]:
        """The tables of a level for some word pairs, in both directions; 0 for unknown pairs."""
        level = self.aligner.levels[number]
        source, target = (self.units[number][side][0][words[side]] for side in (0, 1))
        keys = source * max(1, len(level.units[1])) + target
        if not len(level.keys):
            return [torch.zeros(len(keys)), torch.zeros(len(keys))]
        place = np.minimum(np.searchsorted(level.keys, keys), len(level.keys) - 1)
        known = torch.from_numpy((level.keys[place] == keys) & (source >= 0) & (target >= 0))
        return [torch.where(known, table[torch.from_numpy(place)], 0.0) for table in level.tables]


def number_cells(
    source: Int[Array, "B T"], target: Int[Array, "B S"], width: int
) -> tuple[Int[Array, "B S T"], Int[Array, " pairs"]]:
    """The word pair of every cell, and the keys of these pairs: source * width + target.

    If most words could meet, as in one long sentence, all pairs of words are numbered. Otherwise only those that meet
    are, for which the cells have to be sorted.
    """
    sources, column = np.unique(source, return_inverse=True)
    targets, row = np.unique(target, return_inverse=True)
    columns, rows = column.reshape(source.shape), row.reshape(target.shape)
    if len(sources) * len(targets) <= len(source) * source.shape[1] * target.shape[1]:
        index = (columns * len(targets)).astype(np.int32)[:, None, :] + rows.astype(np.int32)[:, :, None]
        return index, (sources.astype(np.int64)[:, None] * width + targets).reshape(-1)
    keys = source.astype(np.int64)[:, None, :] * width + target[:, :, None]
    pairs, index = np.unique(keys, return_inverse=True)
    return index.reshape(keys.shape), pairs


def encode_sentences(sentences: Sequence[Sequence[str]], vocabulary: Vocabulary) -> Sentences:
    """Sentences as ids of a vocabulary, to which new words are added."""
    ids = [vocabulary.add(words) for words in sentences]
    offsets = np.cumsum([0, *map(len, ids)])
    return Sentences(np.array([number for row in ids for number in row], np.int32), offsets)
