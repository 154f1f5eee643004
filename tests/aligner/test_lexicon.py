"""Translation probabilities, compared with the same estimates in plain Python."""

from collections import defaultdict

import numpy as np
import pytest
import torch

from latentalign.aligner import AlignerConfig
from latentalign.aligner.config import unit_of
from latentalign.aligner.corpus import TrainingCorpus
from latentalign.aligner.lexicon import BUCKETS, Lexicon, Words
from latentalign.aligner.model import Direction
from latentalign.aligner.training import maximise, run_pass
from support.aligners import demo_text

special = pytest.importorskip("scipy.special")
TEXT = [("das haus", "the house"), ("das buch", "the book"), ("ein buch", "a book"), ("anna", "anna")]
UNITS = [("word", 0), ("prefix", 2), ("suffix", 2)]
SPARSITY, NULL = 0.3, 0.1


class Reference:
    """The lexicon of one direction as dictionaries: p(out | given)."""

    def __init__(self, pairs):
        self.pairs = [(given.split(), out.split()) for given, out in pairs]
        self.given_counts, self.out_counts = (self.frequencies(side) for side in (0, 1))
        self.together = {(g, o) for given, out in self.pairs for g in given for o in out}
        self.mixture = np.full((BUCKETS, 4), 1 / 4)
        self.tables = None

    def frequencies(self, side):
        counts = defaultdict(int)
        for pair in self.pairs:
            for word in pair[side]:
                counts[word] += 1
        return counts

    def bucket(self, given):
        return int(np.log2(self.given_counts[given]))

    def share(self, out, unit):
        same = [w for w in self.out_counts if unit_of(w, *unit) == unit_of(out, *unit)]
        return self.out_counts[out] / sum(self.out_counts[w] for w in same)

    def parts(self, given, out):
        found = [
            table[unit_of(given, *unit), unit_of(out, *unit)] * self.share(out, unit)
            for unit, table in zip(UNITS, self.tables, strict=True)
        ]
        return self.mixture[self.bucket(given)] * np.array([*found, float(given == out)])

    def emission(self, given, out):
        return 1 / len(self.out_counts) if self.tables is None else self.parts(given, out).sum()

    def expect(self, null_words):
        """Expected counts of word pairs if all positions are equally likely."""
        counts = defaultdict(float)
        for given, out in self.pairs:
            for o in out:
                joint = np.array([(1 - NULL) / len(given) * self.emission(g, o) for g in given])
                for g, p in zip(given, joint / (joint.sum() + NULL * null_words), strict=True):
                    counts[g, o] += p
        return counts

    def maximise(self, counts):
        trained = self.tables is not None
        collected = [defaultdict(float) for _ in UNITS]
        weights = np.ones((BUCKETS, 4))
        for (given, out), count in counts.items():
            parts = self.parts(given, out) if trained else np.ones(4)
            shares = count * parts / parts.sum() if trained else np.full(4, count)
            for number, unit in enumerate(UNITS):
                collected[number][unit_of(given, *unit), unit_of(out, *unit)] += shares[number]
            if trained:
                weights[self.bucket(given)] += shares
        if trained:
            self.mixture = weights / weights.sum(1, keepdims=True)
        self.tables = []
        for unit, counted in zip(UNITS, collected, strict=True):
            outcomes = len({unit_of(word, *unit) for word in self.out_counts})
            totals = defaultdict(float)
            for (given, _), count in counted.items():
                totals[given] += count
            self.tables.append(
                {
                    (given, out): np.exp(
                        special.digamma(count + SPARSITY)
                        - special.digamma(totals[given] + SPARSITY * outcomes)
                    )
                    for (given, out), count in counted.items()
                }
            )


def build(folder, text, config):
    made = TrainingCorpus(folder, text, config)
    words = Words((made.source_words, made.target_words), made.frequencies())
    directions = [Direction.new(len(words.vocabularies[1 - side]), 5, NULL) for side in (0, 1)]
    return made, Lexicon(words, made.keys, config.units, config.sparsity), directions


def test_two_passes_equal_dictionaries(tmp_path):
    config = AlignerConfig(prefixes=(2,), suffixes=(2,), sparsity=SPARSITY)
    made, lexicon, directions = build(tmp_path, TEXT, config)
    references = [Reference(TEXT), Reference([(b, a) for a, b in TEXT])]
    for _ in range(2):
        uniform = [1 / len(reference.out_counts) for reference in references]
        for direction, value in zip(directions, uniform, strict=True):
            direction.null_words = torch.full_like(direction.null_words, value)
        found = run_pass(made, lexicon, directions, agree=False, share=0.1, advance=lambda: None)
        maximise(lexicon, directions, found)
        for reference, null_words in zip(references, uniform, strict=True):
            reference.maximise(reference.expect(null_words))
    words = [list(vocabulary.ids) for vocabulary in lexicon.words.vocabularies]
    for side, reference in enumerate(references):
        emissions = lexicon.emissions(side)
        assert emissions[0] == 0
        for number in range(1, lexicon.size):
            pair = [words[s][int(lexicon.pair_words[s][number])] for s in (side, 1 - side)]
            assert float(emissions[number]) == pytest.approx(reference.emission(*pair), rel=1e-4), pair
        np.testing.assert_allclose(lexicon.mixtures[side].numpy(), reference.mixture, rtol=1e-4)


def test_probabilities_stay_probabilities(tmp_path):
    made, lexicon, directions = build(tmp_path, demo_text()[:100], AlignerConfig())
    for number in range(4):
        found = run_pass(made, lexicon, directions, agree=number > 1, share=0.1, advance=lambda: None)
        maximise(lexicon, directions, found)
        for side, direction in enumerate(directions):
            torch.testing.assert_close(lexicon.mixtures[side].sum(1), torch.ones(BUCKETS))
            assert float(direction.null_words.sum()) == pytest.approx(1, abs=1e-5)
            emissions = lexicon.emissions(side)
            total = torch.zeros(len(lexicon.words.vocabularies[side]))
            total.index_add_(0, lexicon.pair_words[side], emissions)
            assert (emissions >= 0).all()
            assert (total <= 1 + 1e-4).all()


def test_chunks_of_word_pairs_change_nothing(tmp_path, monkeypatch):
    tables = []
    for chunk in (2_000_000, 7):
        monkeypatch.setattr("latentalign.aligner.lexicon.CHUNK", chunk)
        folder = tmp_path / str(chunk)
        folder.mkdir()
        made, lexicon, directions = build(folder, TEXT, AlignerConfig())
        for _ in range(3):
            found = run_pass(made, lexicon, directions, agree=False, share=0.1, advance=lambda: None)
            maximise(lexicon, directions, found)
        tables.append(torch.cat([lexicon.emissions(side) for side in (0, 1)]))
    torch.testing.assert_close(*tables)
