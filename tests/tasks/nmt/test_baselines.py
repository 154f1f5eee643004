"""Yardsticks for word alignment."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentalign.errors import InputError
from latentalign.tasks.nmt.baselines import diagonal_links, train_ibm1

PAIRS = [
    (["das", "Haus"], ["the", "house"]),
    (["das", "Buch"], ["the", "book"]),
    (["ein", "Buch"], ["a", "book"]),
]


@given(st.integers(0, 30), st.integers(0, 30))
def test_the_diagonal_links_every_target_word_once_and_never_backwards(source_len, target_len):
    links = sorted(diagonal_links(source_len, target_len), key=lambda link: link[1])
    assert [j for _, j in links] == (list(range(target_len)) if source_len else [])
    sources = [i for i, _ in links]
    assert sources == sorted(sources)
    assert all(0 <= i < source_len for i in sources)


def test_the_diagonal_of_equal_lengths_is_the_identity():
    assert diagonal_links(4, 4) == {(0, 0), (1, 1), (2, 2), (3, 3)}
    assert diagonal_links(2, 4) == {(0, 0), (0, 1), (1, 2), (1, 3)}


def naive_ibm1(pairs, iterations):
    """Expectation maximisation with dictionaries, word by word."""
    targets = {f for _, target in pairs for f in target}
    table = {}
    for source, target in pairs:
        table.update({(e, f): 1 / len(targets) for e in ["", *source] for f in target})
    for _ in range(iterations):
        counts, totals = dict.fromkeys(table, 0.0), {}
        for source, target in pairs:
            for f in target:
                norm = sum(table[e, f] for e in ["", *source])
                for e in ["", *source]:
                    counts[e, f] += table[e, f] / norm
                    totals[e] = totals.get(e, 0.0) + table[e, f] / norm
        table = {(e, f): count / totals[e] for (e, f), count in counts.items()}
    return table


@pytest.mark.parametrize("iterations", [0, 1, 5])
def test_ibm1_matches_word_by_word_expectation_maximisation(iterations):
    pairs = [*PAIRS, (["das", "das", "Haus"], ["the", "the", "house", "house"])]
    model, table = train_ibm1(pairs, iterations=iterations), naive_ibm1(pairs, iterations)
    for source, target in pairs:
        expected = [[table[e, f] for f in target] for e in ["", *source]]
        np.testing.assert_allclose(model.translation(source, target), expected, rtol=1e-12)


def test_ibm1_probabilities_of_each_source_word_sum_to_one():
    model = train_ibm1(PAIRS)
    sums = np.bincount(model.codes // len(model.target_ids), model.probabilities)
    np.testing.assert_allclose(sums, 1.0)


def test_ibm1_learns_the_textbook_example():
    model = train_ibm1(PAIRS, iterations=20)
    assert model.align(["ein", "Haus"], ["a", "house"]) == {(0, 0), (1, 1)}
    assert model.align(["Buch", "ein"], ["a", "book"]) == {(1, 0), (0, 1)}


def test_unknown_words_are_not_linked():
    model = train_ibm1(PAIRS, iterations=20)
    assert model.align(["ein", "Zebra"], ["a", "zebra"]) == {(0, 0)}
    assert model.align([], ["a"]) == model.align(["ein"], []) == set()


def test_training_without_words_is_refused():
    with pytest.raises(InputError, match="at least one pair"):
        train_ibm1([([], [])])


def test_an_empty_sentence_changes_nothing():
    model, longer = train_ibm1(PAIRS), train_ibm1([PAIRS[0], (["das"], []), *PAIRS[1:]])
    source, target = PAIRS[0]
    np.testing.assert_allclose(model.translation(source, target), longer.translation(source, target))
