"""The spelling data: rules, gold links and probabilities of words that are read aloud."""

import itertools
import math
from collections import Counter
from random import Random

import pytest

from latentalign.data import spelling


@pytest.fixture(scope="module")
def pairs():
    return spelling.generate(2000, seed=3)


@pytest.mark.parametrize(
    ("word", "sounds", "sure"),
    [
        ("knife", "n aɪ f", {(1, 0), (2, 1), (3, 2)}),  # silent k and e, and a long vowel before it
        ("cell", "s ɛ l", {(0, 0), (1, 1), (2, 2)}),  # soft c, doubled l
        ("cat", "k æ t", {(0, 0), (1, 1), (2, 2)}),
        ("quick", "k w ɪ k", {(0, 0), (1, 1), (2, 2), (3, 3)}),
        ("box", "b ɒ k s", {(0, 0), (1, 1), (2, 2), (2, 3)}),  # one letter, two sounds
        ("shout", "ʃ aʊ t", {(0, 0), (2, 1), (4, 2)}),
        ("lamb", "l æ m", {(0, 0), (1, 1), (2, 2)}),
    ],
)
def test_words_are_read_by_the_rules(word, sounds, sure):
    pair = spelling.read_aloud(word, Random(0))
    assert " ".join(pair.target) == sounds
    assert pair.sure == sure


def test_silent_letters_have_no_link_and_digraphs_have_possible_ones():
    assert not {i for i, _ in spelling.read_aloud("knee", Random(0)).sure} & {0}
    assert (0, 0) not in spelling.read_aloud("knee", Random(0)).possible
    assert (1, 0) in spelling.read_aloud("shop", Random(0)).possible


def test_alignments_are_monotone_and_every_sound_has_a_letter(pairs):
    for pair in pairs:
        links = sorted(pair.sure, key=lambda link: link[1])
        assert [j for _, j in links] == list(range(len(pair.target)))
        assert all(i <= k for (i, _), (k, _) in itertools.pairwise(links))


def test_probabilities_are_those_of_the_sounds_that_are_drawn():
    drawn = Counter(spelling.read_aloud("thooth", Random(seed)).target for seed in range(4000))
    for sounds, count in drawn.items():
        shares = {"θ": 0.7, "ð": 0.3, "uː": 0.6, "ʊ": 0.4}
        expected = math.prod(shares[sound] for sound in sounds)
        assert count / 4000 == pytest.approx(expected, abs=0.03)
    pair = spelling.read_aloud("thooth", Random(1))
    assert math.exp(pair.log_prob) == pytest.approx(
        math.prod({"θ": 0.7, "ð": 0.3, "uː": 0.6, "ʊ": 0.4}[sound] for sound in pair.target)
    )


def test_words_differ_and_splits_share_none():
    splits = spelling.splits(300, 50, 50)
    words = [pair.source for part in splits.values() for pair in part]
    assert len(set(words)) == len(words)


def test_the_same_seed_gives_the_same_words():
    assert spelling.generate(50, seed=1) == spelling.generate(50, seed=1)
    assert spelling.generate(50, seed=1) != spelling.generate(50, seed=2)


def test_files_hold_letters_sounds_and_links(tmp_path):
    spelling.write(tmp_path, train=5, valid=2, test=2)
    for kind in ("letters", "sounds", "gold"):
        assert len((tmp_path / f"train.{kind}").read_text(encoding="utf-8").splitlines()) == 5
