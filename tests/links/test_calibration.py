"""Calibration of link probabilities, on cases worked by hand."""

import json
from dataclasses import asdict

import pytest

from latentalign.links.calibration import BINS, COVERAGES, calibrate
from latentalign.links.sets import Gold
from support.commands import command

GOLD = [
    Gold(frozenset({(0, 0), (1, 1)}), frozenset({(2, 2)})),
    Gold(frozenset({(0, 0), (3, 3)})),
]
PREDICTED = [
    {(0, 0): 0.95, (1, 1): 0.85, (2, 2): 0.45},  # sure, sure, possible: all right
    {(0, 0): 0.95, (1, 0): 0.45},  # right, wrong
]


def at(result, coverage):
    return result.curve[COVERAGES.index(coverage)]


def test_figures_are_those_worked_by_hand():
    found = calibrate(GOLD, PREDICTED, bootstrap=0)
    # bins: 0.9-1: two links, mean 0.95, both right; 0.8-0.9: one at 0.85, right; 0.4-0.5: two at 0.45, one right
    assert found.links == 5
    assert found.ece == pytest.approx((2 * 0.05 + 0.15 + 2 * 0.05) / 5)
    assert found.brier == pytest.approx((2 * 0.05**2 + 0.15**2 + 0.55**2 + 0.45**2) / 5)
    filled = {b.low: (b.links, b.probability, b.precision) for b in found.bins if b.links}
    assert filled == {
        0.4: (2, pytest.approx(0.45), 0.5),
        0.8: (1, pytest.approx(0.85), 1.0),
        0.9: (2, pytest.approx(0.95), 1.0),
    }
    assert [b.links for b in found.bins].count(0) == BINS - 3
    assert found.ece_interval is None
    assert found.candidates is None


def test_precision_and_recall_follow_the_most_probable_links():
    found = calibrate(GOLD, PREDICTED, bootstrap=0)
    assert [point.coverage for point in found.curve] == [*COVERAGES]
    assert (at(found, 0.4).precision, at(found, 0.4).recall) == (1.0, pytest.approx(2 / 4))
    assert (at(found, 0.6).precision, at(found, 0.6).recall) == (1.0, pytest.approx(3 / 4))
    assert at(found, 0.6).at_least == 0.85
    # two links are equally probable and one of them is right: on average the fourth link is half right
    assert at(found, 0.8).precision == pytest.approx(3.5 / 4)
    assert at(found, 1.0).precision == pytest.approx(4 / 5)
    assert at(found, 1.0).recall == pytest.approx(3 / 4)
    assert (at(found, 1.0).links, at(found, 1.0).at_least) == (5, 0.45)


def test_the_order_of_the_sentences_never_matters():
    assert asdict(calibrate(GOLD, PREDICTED, bootstrap=0)) == asdict(
        calibrate(GOLD[::-1], PREDICTED[::-1], bootstrap=0)
    )


def test_certain_links_are_wrong_as_often_as_they_are_wrong():
    certain = [dict.fromkeys(links, 1.0) for links in PREDICTED]
    found = calibrate(GOLD, certain, bootstrap=0)
    assert found.ece == found.brier == pytest.approx(1 / 5)
    assert found.bins[-1].links == 5
    assert [point.precision for point in found.curve] == pytest.approx([4 / 5] * len(COVERAGES))


def test_without_links_there_is_nothing_to_say():
    found = calibrate(GOLD, [{}, {}], [{}, {}], bootstrap=20)
    assert (found.links, found.ece, found.brier, found.curve) == (0, None, None, [])
    assert found.ece_interval is None
    assert found.candidates.ece is None
    assert all(b.precision is None and b.interval is None for b in found.bins)


def test_intervals_of_a_single_sentence_have_no_width():
    found = calibrate(GOLD[:1], PREDICTED[:1], bootstrap=50)
    assert found.ece_interval == pytest.approx((found.ece, found.ece))
    assert found.brier_interval == pytest.approx((found.brier, found.brier))
    for point in found.curve:
        assert point.precision_interval == pytest.approx((point.precision, point.precision))
        assert point.recall_interval == pytest.approx((point.recall, point.recall))


def test_intervals_include_what_happens_if_a_sentence_is_drawn_twice():
    found = calibrate(GOLD, PREDICTED, bootstrap=400)
    alone = [calibrate(GOLD[i : i + 1], PREDICTED[i : i + 1], bootstrap=0) for i in (0, 1)]
    low, high = sorted(part.ece for part in alone)
    assert found.ece_interval == pytest.approx((min(low, found.ece), max(high, found.ece)))
    assert at(found, 1.0).precision_interval == pytest.approx((1 / 2, 1.0))
    [bin] = [b for b in found.bins if b.low == 0.4]
    assert bin.interval == (0.0, 1.0)


def test_gold_without_sure_links_has_recall_one():
    found = calibrate([Gold(frozenset(), frozenset({(0, 0)}))], [{(0, 0): 0.5}], bootstrap=5)
    assert {point.recall for point in found.curve} == {1.0}
    assert {point.precision for point in found.curve} == {1.0}


def test_candidates_below_one_percent_do_not_count():
    candidates = [{**PREDICTED[0], (5, 5): 0.009, (1, 2): 0.01}, PREDICTED[1]]
    found = calibrate(GOLD, PREDICTED, candidates, bootstrap=0)
    assert found.candidates.links == 6
    assert found.candidates.brier == pytest.approx((found.brier * 5 + 0.01**2) / 6)
    assert found.links == 5


@pytest.fixture
def files(tmp_path):
    (tmp_path / "gold").write_text("0-0 1-1 2?2\n0-0 3-3\n")
    (tmp_path / "links").write_text("0-0:0.95 1-1:.85 2-2:0.45\n0-0:0.95 1-0:4.5e-1\n")
    return tmp_path


@pytest.mark.slow
def test_the_command_gives_all_figures_as_json_and_draws_them(files):
    arguments = ["aer", "--gold", files / "gold", "--predicted", files / "links", "--calibration"]
    done = command(*arguments, "--json", "--plot", files / "a.svg")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["precision"] == pytest.approx(4 / 5)
    expected = asdict(calibrate(GOLD, PREDICTED))
    assert found["calibration"] == json.loads(json.dumps(expected))
    assert "share of right links" in (files / "a.svg").read_text()
    again = command(*arguments, "--plot", files / "a.svg")
    assert again.returncode == 2
    assert b"add --overwrite" in again.stderr
    shown = command(*arguments).stdout.decode()
    assert "ece, 95 %" in shown
    assert "60%" in shown


def test_json_lines_of_align_have_probabilities_and_posteriors(files):
    link = {"source": 0, "target": 0, "probability": 0.75}
    lines = [{"links": [link], "posteriors": [[0.75, 0.2]]}, {"links": [], "posteriors": []}]
    (files / "json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    arguments = ["aer", "--gold", files / "gold", "--predicted", files / "json", "--calibration", "--json"]
    found = json.loads(command(*arguments).stdout)["calibration"]
    assert (found["links"], found["ece"]) == (1, 0.25)
    assert found["candidates"]["links"] == 2
    assert found["candidates"]["ece"] == pytest.approx((0.25 + 0.2) / 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--predicted", "plain", "--calibration"], b"needs the probability of every link"),
        (["--predicted", "links", "--plot", "a.svg"], b"add --calibration"),
        (["--predicted", "links", "--calibration", "--plot", "a.pdf"], b"must end in .png or .svg"),
    ],
)
def test_a_calibration_that_cannot_be_computed_is_refused(files, arguments, message):
    (files / "plain").write_text("0-0\n0-0\n")
    names = [files / a if "." in a or a in ("plain", "links") else a for a in arguments]
    done = command("aer", "--gold", files / "gold", *names)
    assert done.returncode == 2
    assert message in done.stderr
