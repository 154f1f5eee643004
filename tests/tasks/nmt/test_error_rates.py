"""Word and phoneme error rates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentalign.tasks.nmt.error_rates import edit_distance, error_rates

TOKENS = st.lists(st.sampled_from("abc"), max_size=6)


@pytest.mark.parametrize(
    ("first", "second", "distance"),
    [
        ("", "", 0),
        ("abc", "abc", 0),
        ("abc", "", 3),
        ("", "ab", 2),
        ("kitten", "sitting", 3),
        ("ab", "ba", 2),
    ],
)
def test_the_distance_counts_insertions_deletions_and_replacements(first, second, distance):
    assert edit_distance(first, second) == distance


@given(TOKENS, TOKENS, TOKENS)
def test_the_distance_is_a_metric(a, b, c):
    assert edit_distance(a, b) == edit_distance(b, a)
    assert (edit_distance(a, b) == 0) == (a == b)
    assert edit_distance(a, c) <= edit_distance(a, b) + edit_distance(b, c)


def test_rates_are_in_percent_of_lines_and_of_reference_tokens():
    found = error_rates(["a b", "a", "", "x y"], ["a b", "a b", "c", "x y z z"])
    assert found["wer"] == 75.0
    assert found["per"] == pytest.approx(100 * 4 / 9)
    assert found["wer_interval"][0] <= 75 <= found["wer_interval"][1]
    assert found["per_interval"][0] < found["per"] < found["per_interval"][1]


def test_a_perfect_output_has_no_errors_and_an_interval_of_zero():
    assert error_rates(["a b"] * 5, ["a  b"] * 5) == {
        "wer": 0.0,
        "wer_interval": [0.0, 0.0],
        "per": 0.0,
        "per_interval": [0.0, 0.0],
    }
