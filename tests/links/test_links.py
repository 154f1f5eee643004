"""Links between words: symmetrisation, AER and the way from subwords to words, on cases worked by hand."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentalign.errors import InputError
from latentalign.links import scores as scores_module
from latentalign.links.aligned import LinkRule
from latentalign.links.expected import best_threshold
from latentalign.links.scores import score
from latentalign.links.sets import (
    SYMMETRIZE,
    Gold,
    format_pharaoh,
    lacks_zero,
    reverse,
    stray_links,
    symmetrize,
)
from latentalign.links.words import word_links

LINKS = st.frozensets(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=14)


def links(text):
    """The links of `00 12`: one digit per side."""
    return frozenset((int(token[0]), int(token[1])) for token in text.split())


def test_possible_includes_sure():
    assert Gold(links("00"), links("11")).possible == links("00 11")
    assert Gold(links("00")).possible == links("00")


def test_pharaoh_is_sorted_by_number_not_by_text():
    assert format_pharaoh(frozenset({(10, 0), (2, 11), (2, 3)})) == "2-3 2-11 10-0"
    assert format_pharaoh(frozenset()) == ""


@given(LINKS)
def test_reversing_twice_is_nothing(some):
    assert reverse(reverse(some)) == some
    assert all((target, source) in some for source, target in reverse(some))


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("intersection", "00 11"),
        ("union", "00 11 21 12 02 33 53 44 35"),
        # 21 and 12 touch 11 and cover a word each; then 02 covers nothing new
        ("grow-diag", "00 11 21 12"),
        # everything but 02 covers at least one new word when its turn comes
        ("grow-diag-final", "00 11 21 12 33 53 44 35"),
        # 53 would cover target 3 again, 35 source 3
        ("grow-diag-final-and", "00 11 21 12 33 44"),
    ],
)
def test_symmetrisation_of_a_case_worked_by_hand(method, expected):
    forward, backward = links("00 11 21 02 33 53"), links("00 11 12 44 35")
    assert symmetrize(forward, backward, method) == links(expected)


def test_growth_goes_on_until_nothing_is_added():
    """Against the order of visits each pass reaches one link further."""
    assert symmetrize(links("00 11 22 33"), links("33"), "grow-diag") == links("00 11 22 33")


@pytest.mark.parametrize("neighbour", ["11", "12", "13", "21", "23", "31", "32", "33"])
def test_growth_reaches_all_eight_neighbours(neighbour):
    assert symmetrize(links(f"22 {neighbour}"), links("22"), "grow-diag") == links(f"22 {neighbour}")


def test_growth_does_not_jump():
    assert symmetrize(links("00 22"), links("00"), "grow-diag") == links("00")


@given(LINKS, LINKS)
def test_symmetrised_links_lie_between_intersection_and_union(forward, backward):
    by = {method: symmetrize(forward, backward, method) for method in SYMMETRIZE}
    for final in ("grow-diag-final", "grow-diag-final-and"):
        assert by["intersection"] <= by["grow-diag"] <= by[final] <= by["union"]


@given(LINKS, LINKS)
def test_final_covers_all_words_and_final_and_leaves_no_free_pair(forward, backward):
    union, final = forward | backward, symmetrize(forward, backward, "grow-diag-final")
    assert {s for s, _ in final} == {s for s, _ in union}
    assert {t for _, t in final} == {t for _, t in union}
    final_and = symmetrize(forward, backward, "grow-diag-final-and")
    sources, targets = {s for s, _ in final_and}, {t for _, t in final_and}
    assert all(s in sources or t in targets for s, t in union)


def grown_by_the_book(forward, backward, final):
    """The pseudocode of Koehn et al. (2005) over all cells of a table, targets first."""
    neighbours = [(0, -1), (-1, 0), (0, 1), (1, 0), (-1, -1), (1, -1), (-1, 1), (1, 1)]
    cells = [(source, target) for target in range(7) for source in range(7)]
    found = [link for link in cells if link in forward and link in backward]

    def is_new(link, at_least):
        free_source = all(link[0] != source for source, _ in found)
        free_target = all(link[1] != target for _, target in found)
        return free_source + free_target >= at_least

    growing = True
    while growing:
        growing = False
        for source, target in cells:
            for down, right in neighbours if (source, target) in found else ():
                link = (source + down, target + right)
                if (link in forward or link in backward) and is_new(link, 1):
                    found.append(link)
                    growing = True
    for direction in (forward, backward) if final else ():
        for link in cells:
            if link in direction and is_new(link, final):
                found.append(link)
    return frozenset(found)


@given(LINKS, LINKS)
def test_growing_agrees_with_the_book(forward, backward):
    for method, final in (("grow-diag", 0), ("grow-diag-final", 1), ("grow-diag-final-and", 2)):
        assert symmetrize(forward, backward, method) == grown_by_the_book(forward, backward, final)


@given(LINKS)
def test_agreeing_directions_are_left_alone(some):
    assert all(symmetrize(some, some, method) == some for method in SYMMETRIZE)


def test_unknown_symmetrisation_names_the_known_ones():
    with pytest.raises(InputError, match=r"'grow'.*intersection, union, grow-diag"):
        symmetrize(frozenset(), frozenset(), "grow")


GOLD = [Gold(links("00 11"), links("12")), Gold(links("00"))]
PREDICTED = [links("00 12 22"), frozenset()]


def test_scores_of_a_case_worked_by_hand():
    scores = score(GOLD, PREDICTED, bootstrap=0)
    # |A| = 3, |S| = 3, |A∩S| = 1, |A∩P| = 2
    assert (scores.aer, scores.precision, scores.recall) == pytest.approx((1 - 3 / 6, 2 / 3, 1 / 3))
    assert scores.f1 == pytest.approx(4 / 9)
    assert scores.intervals is None
    assert (scores.sentences, scores.predicted_links, scores.sure_links, scores.possible_links) == (
        2,
        3,
        3,
        4,
    )


def test_bootstrap_of_two_sentences_has_the_quantiles_worked_by_hand():
    """AER of a resampling is 0.4 (first twice), 0.5 (both) or 1 (second twice): chances 1/4, 1/2, 1/4."""
    assert score(GOLD, PREDICTED).intervals["aer"] == pytest.approx((0.4, 1.0))
    assert score(GOLD, PREDICTED, level=0.4).intervals["aer"] == pytest.approx((0.5, 0.5))
    assert score(GOLD, PREDICTED, level=0.6).intervals["aer"] == pytest.approx((0.4, 1.0))


def test_bootstrap_in_blocks_has_the_binomial_width():
    n = 3000
    predicted = [links("00") if i % 2 else links("01") for i in range(n)]
    low, high = score([Gold(links("00"))] * n, predicted).intervals["precision"]
    assert low < 0.5 < high
    assert high - low == pytest.approx(2 * 1.96 * math.sqrt(0.25 / n), rel=0.15)


def test_blocks_of_resamplings_are_the_resamplings_of_the_seed():
    n = 2**18
    counts = np.random.default_rng(1).integers(1, 5, size=(n, 4))
    found = scores_module._intervals(counts, 6, 3, level=0.5)  # four at a time, then two
    totals = counts[np.random.default_rng(3).integers(n, size=(6, n))].sum(axis=1)
    expected = np.quantile(totals[:, 3] / totals[:, 0], [0.25, 0.75])
    assert found["precision"] == pytest.approx(tuple(expected), rel=1e-12)


def test_a_thousand_resamplings_of_seed_0_are_the_default():
    predicted = [frozenset((0, j) for j in range(1 + i % 7)) for i in range(50)]
    gold = [Gold(links("00 01"))] * 50
    by_default = score(gold, predicted).intervals
    assert by_default == score(gold, predicted, bootstrap=1000, seed=0).intervals
    assert by_default != score(gold, predicted, bootstrap=1000, seed=1).intervals
    assert by_default != score(gold, predicted, bootstrap=1001, seed=0).intervals


def test_intervals_follow_the_seed():
    gold = [Gold(links("00 11"))] * 30
    predicted = [links("00") if i % 3 else links("01 11 22") for i in range(30)]
    again = score(gold, predicted, bootstrap=50, seed=3).intervals
    assert again == score(gold, predicted, bootstrap=50, seed=3).intervals
    assert again != score(gold, predicted, bootstrap=50, seed=4).intervals


@given(st.lists(st.tuples(LINKS, LINKS, LINKS), min_size=1, max_size=4))
def test_scores_are_rates_and_sure_links_score_perfectly(sentences):
    gold = [Gold(sure, possible) for sure, possible, _ in sentences]
    scores = score(gold, [predicted for *_, predicted in sentences], bootstrap=5)
    assert all(0 <= rate <= 1 for rate in (scores.aer, scores.precision, scores.recall, scores.f1))
    assert all(0 <= low <= high <= 1 for low, high in scores.intervals.values())
    perfect = score(gold, [sentence.sure for sentence in gold], bootstrap=0)
    assert (perfect.aer, perfect.precision, perfect.recall, perfect.f1) == (0, 1, 1, 1)


def test_empty_sides_score_as_documented():
    nothing = score([Gold(links("00"))], [frozenset()], bootstrap=0)
    assert (nothing.aer, nothing.precision, nothing.recall, nothing.f1) == (1, 1, 0, 0)
    unasked = score([Gold(frozenset())], [links("00")], bootstrap=0)
    assert (unasked.aer, unasked.precision, unasked.recall, unasked.f1) == (1, 0, 1, 0)
    assert (unasked.predicted_links, unasked.sure_links) == (1, 0)
    wrong = score([Gold(links("00"))], [links("11")], bootstrap=0)
    assert (wrong.aer, wrong.precision, wrong.recall, wrong.f1) == (1, 0, 0, 0)


@pytest.mark.parametrize(
    ("gold", "predicted", "options", "message"),
    [
        (GOLD, PREDICTED[:1], {}, "2 gold sentences but 1 predicted"),
        ([], [], {}, "no sentence"),
        (GOLD, PREDICTED, {"bootstrap": -1}, "bootstrap must be"),
        (GOLD, PREDICTED, {"level": 1.0}, "level within"),
        (GOLD, PREDICTED, {"level": 0.0}, "level within"),
    ],
)
def test_what_cannot_be_scored_is_refused(gold, predicted, options, message):
    with pytest.raises(InputError, match=message):
        score(gold, predicted, **options)


def test_links_beyond_their_sentences_are_named():
    good, bad = links("00 21"), Gold(links("00"), links("03"))
    assert stray_links([good, bad], [3, 1], [2, 4]) == []
    assert stray_links([good, bad], [2, 1], [2, 3]) == [(1, 2, 1), (2, 0, 3)]


def test_links_that_never_touch_a_first_word_are_noticed():
    assert lacks_zero([Gold(links("11 22")), Gold(frozenset())])
    assert not lacks_zero([Gold(links("11")), Gold(frozenset(), links("20"))])
    assert not lacks_zero([Gold(frozenset())])


# <s> 0a 0b 1 </s> against 0 1a 1b </s>
SUBWORDS = np.array(
    [[0.1, 0.2, 0.3, 0.3, 0.1], [0, 0.1, 0.1, 0.6, 0.2], [0.4, 0.2, 0, 0.4, 0], [0, 0, 0, 0, 1.0]]
)
WORDS = word_links(SUBWORDS, [-1, 0, 0, 1, -1], [0, 1, 1, -1])


def test_word_probabilities_are_sums_over_source_and_means_over_target_subwords():
    np.testing.assert_allclose(WORDS.probability, [[0.5, 0.3], [0.2, 0.5]])
    np.testing.assert_allclose(WORDS.null, [0.2, 0.3])
    expected = [-sum(p * math.log(p) for p in row) for row in ([0.5, 0.3, 0.2], [0.2, 0.5, 0.3])]
    np.testing.assert_allclose(WORDS.entropy, expected)


def test_best_links_one_likely_source_word_per_target_word():
    assert WORDS.best() == links("00 11")
    assert WORDS.best(0.45) == links("00 11")
    assert WORDS.best(0.55) == frozenset()
    assert WORDS.best(null=0.25) == links("00")


def test_at_least_links_every_likely_source_word():
    assert WORDS.at_least(0.25) == links("00 10 11")
    assert WORDS.at_least(0.9) == frozenset()


def test_thresholds_are_reached_by_what_equals_them():
    assert WORDS.best(null=float(WORDS.null[0])) == links("00")
    least = float(WORDS.probability[0, 1])
    assert (1, 0) in WORDS.at_least(least)
    assert (1, 0) not in WORDS.at_least(np.nextafter(least, 1))


def test_a_target_without_words_has_no_rows():
    assert word_links(np.zeros((0, 3)), [0, 1, 2], []).probability.shape == (0, 3)


def test_json_carries_probabilities():
    rows = json.loads(json.dumps(WORDS.to_json(links("11 00"))))
    assert [(row["source"], row["target"]) for row in rows] == [(0, 0), (1, 1)]
    assert [row["probability"] for row in rows] == pytest.approx([0.5, 0.5])


def test_words_without_subwords_or_mass_are_never_linked():
    gaps = word_links(np.array([[1.0, 0.0], [0.5, 0.5]], dtype=np.float32), [0, 2], [0, 2])
    assert gaps.best() == links("00 02")
    assert gaps.at_least(0.0) == links("00 02 22")
    np.testing.assert_allclose(gaps.entropy, [0, 0, math.log(2)])
    special = word_links(np.ones((2, 1)), [-1], [0, 1])
    assert special.best() == special.at_least(0.0) == frozenset()
    assert word_links(np.zeros((0, 3)), [0, 1, 2], []).best() == frozenset()


@given(
    st.lists(st.integers(-1, 3), min_size=1, max_size=6), st.lists(st.integers(-1, 3), min_size=1, max_size=6)
)
def test_word_rows_keep_all_mass_and_bound_the_entropy(source_words, target_words):
    subwords = np.random.default_rng(0).dirichlet(np.ones(len(source_words)), size=len(target_words))
    words = word_links(subwords, source_words, target_words)
    seen = sorted({word for word in target_words if word >= 0})
    np.testing.assert_allclose((words.probability.sum(axis=1) + words.null)[seen], 1.0)
    assert (words.entropy >= 0).all()
    assert (words.entropy <= math.log(len(set(source_words))) + 1e-9).all()
    assert words.best(0.3) <= words.at_least(0.3)


def test_unfitting_subwords_are_refused():
    with pytest.raises(ValueError, match="3 target and 5 source"):
        word_links(SUBWORDS, [-1, 0, 0, 1, -1], [0, 1, 1])


def test_the_best_threshold_is_the_best_of_all_by_trying():
    generator = np.random.default_rng(0)
    for _ in range(20):
        p = generator.random(12)
        expected = float(p.sum() + generator.random() * 4)
        threshold, f1 = best_threshold(p, expected)
        tried = {t: 2 * p[p >= t].sum() / ((p >= t).sum() + expected) for t in p}
        assert f1 == pytest.approx(max(tried.values()))
        assert tried[threshold] == pytest.approx(f1)


def test_a_threshold_without_links_keeps_nothing():
    assert best_threshold(np.zeros(3), 2.0) == (1.0, 0.0)
    assert best_threshold(np.zeros(0), 0.0) == (1.0, 1.0)


def test_a_rule_without_threshold_drops_what_lowers_the_expected_f1():
    # Four certain words and one whose mass is spread over nine others: keeping its link costs more than it brings.
    spread = np.full((1, 9), 1 / 9)
    certain = np.eye(4, 9)
    alignment = word_links(np.concatenate([certain, spread]), range(9), range(5))
    rule = LinkRule(threshold=None).fit([alignment])
    assert rule.threshold == 1.0
    assert rule.choose(alignment) == {(i, i) for i in range(4)}
    assert len(LinkRule().fit([alignment]).choose(alignment)) == 5
    empty = word_links(np.zeros((0, 0)), [], [])
    assert LinkRule(threshold=None).fit([empty]).choose(empty) == frozenset()
