"""Sentence pairs in files: batches, word pairs and temporary files."""

from collections import Counter

import numpy as np
import pytest

from latentalign.aligner import AlignerConfig, train_aligner
from latentalign.aligner import corpus as module
from latentalign.aligner.config import find_characters
from latentalign.aligner.corpus import NO_PAIR, PairTable, TrainingCorpus, plan_batches
from support.aligners import demo_text


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Sixty pairs in several batches, with a blank side in two of them."""
    text = [("", "x"), *demo_text()[:29], ("y", ""), *demo_text()[29:58]]
    patch = pytest.MonkeyPatch()
    patch.setattr(module.plan_batches, "__kwdefaults__", {"cells": 2000})
    made = TrainingCorpus(tmp_path_factory.mktemp("corpus"), text, AlignerConfig())
    patch.undo()
    return made, text


def test_every_usable_pair_is_in_one_batch(corpus):
    made, text = corpus
    assert len(made) > 5
    lines = np.concatenate([batch.lines for batch in made])
    assert sorted(lines) == [n for n, (a, b) in enumerate(text) if a and b]
    assert made.pairs == len(text)


def test_every_cell_knows_its_words(corpus):
    made, text = corpus
    source, target = (list(words.ids) for words in (made.source_words, made.target_words))
    for batch in made:
        for row, line in enumerate(batch.lines):
            a, b = (side.lower().split() for side in text[line])
            cells = batch.cells[row]
            found = made.keys[cells[: len(b), : len(a)].numpy()]
            assert [[source[k // len(target)] for k in r] for r in found] == [a] * len(b)
            assert [[target[k % len(target)] for k in r] for r in found] == [[word] * len(a) for word in b]
            assert (cells[len(b) :] == NO_PAIR).all()
            assert (cells[:, len(a) :] == NO_PAIR).all()
            assert [source[i] for i in batch.source[row][batch.source_exists[row]]] == a


def test_a_batch_is_never_larger_than_allowed_unless_it_is_one_pair():
    rng = np.random.default_rng(0)
    source, target = rng.integers(0, 40, 500), rng.integers(0, 40, 500)
    batches = plan_batches(source, target, longest=30, cells=900)
    usable = (source > 0) & (target > 0) & (source <= 30) & (target <= 30)
    assert sorted(np.concatenate(batches)) == np.flatnonzero(usable).tolist()
    for batch in batches:
        assert len(batch) == 1 or source[batch].max() * target[batch].max() * len(batch) <= 900


def test_word_pairs_are_merged_like_one_long_list():
    rng = np.random.default_rng(0)
    lists = [rng.integers(-1, 300, size) for size in (500, 1, 200, 700)]
    table = PairTable(10_000)
    for number, keys in enumerate(lists):
        table.add(*np.unique(keys, return_counts=True))
        if number == 1:
            table._merge()
    keys = table.finish()
    everything = np.unique(np.concatenate([[-1], *lists]), return_counts=True)
    assert keys.tolist() == everything[0].tolist()
    assert table.counts.tolist() == everything[1].tolist()


def test_a_full_table_keeps_the_most_frequent_pairs():
    counts = {key: 1 + key % 7 for key in range(100)}
    table = PairTable(50)
    table.add(np.array([-1, *counts]), np.array([1, *counts.values()]))
    keys = table.finish()
    assert keys[0] == -1
    assert 1 < len(keys) <= 50
    least = min(counts[k] for k in keys[1:])
    assert {k for k, n in counts.items() if n > least} <= set(keys.tolist())


def test_pairs_beyond_the_table_count_as_no_pair(tmp_path):
    text = [(f"a{n} b", f"x{n} y") for n in range(600)]  # 1,801 different pairs
    made = TrainingCorpus(tmp_path, text, AlignerConfig(largest_table=1000))
    b, y = made.source_words.ids["b"], made.target_words.ids["y"]
    assert b * len(made.target_words) + y in made.keys
    assert len(made.keys) <= 1000
    counts = Counter((batch.cells == NO_PAIR).float().mean().item() for batch in made)
    assert 0 < max(counts) < 1


@pytest.mark.parametrize("fails", [False, True], ids=["done", "failed"])
def test_temporary_files_are_removed(tmp_path, fails):
    def text():
        yield from demo_text()[:20]
        assert list(tmp_path.iterdir())
        if fails:
            raise RuntimeError("the disk is gone")

    config = AlignerConfig(first_iterations=1, iterations=1)
    if fails:
        with pytest.raises(RuntimeError, match="the disk is gone"):
            train_aligner(text(), config, folder=tmp_path)
    else:
        train_aligner(text(), config, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_character_keeps_its_combining_marks():
    line = "\u0301 e\u0301x  n\u0303\u0323\t\u4f60"
    words = find_characters(line)
    assert [word.text for word in words] == ["\u0301", "e\u0301", "x", "n\u0303\u0323", "\u4f60"]
    assert all(line[word.start : word.end] == word.text for word in words)
