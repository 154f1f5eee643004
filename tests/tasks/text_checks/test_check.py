"""Clean text passes, and what is wrong with text is found where it is."""

import json
import random
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latentalign.data import demo
from latentalign.errors import InputError
from latentalign.tasks.nmt.splits import DataConfig, SplitConfig
from latentalign.tasks.nmt.task import limits_of
from latentalign.tasks.text_checks.check import SplitReport, as_json, check
from latentalign.tasks.text_checks.shifts import Shift, find_shifts
from latentalign.textfiles import read_parallel

Pairs = list[tuple[str, str]]


def check_recipe(data: DataConfig) -> dict[str, SplitReport]:
    return check(data.splits, limits_of(data))


def language(n: int, seed: int, other_than: Pairs = ()) -> Pairs:
    known = {tuple(source.split()) for source, _ in other_than}
    return [
        (" ".join(pair.source), " ".join(pair.target)) for pair in demo.generate(n, seed=seed, exclude=known)
    ]


@pytest.fixture(scope="module")
def text() -> Pairs:
    return language(1500, 7)


def without(pairs: Pairs, place: int, side: int) -> Pairs:
    """One line deleted from one side, and the last line of the other."""
    sides = [list(column) for column in zip(*pairs, strict=True)]
    del sides[side][place], sides[1 - side][-1]
    return list(zip(*sides, strict=True))


def lengths(pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
    return tuple(np.array([len(line) for line in column]) for column in zip(*pairs, strict=True))


def shifts(pairs: Pairs) -> list[Shift] | None:
    return find_shifts(*lengths(pairs))


@pytest.fixture
def checked(tmp_path):
    """A function that checks splits of given pairs; validation text is some other sentences unless given."""

    def checked(train: Pairs, valid: Pairs | None = None, **options) -> dict[str, SplitReport]:
        splits = {}
        for name, pairs in (("train", train), ("valid", valid or language(50, 99, train))):
            paths = [tmp_path / f"{name}.{end}" for end in ("de", "en")]
            for path, column in zip(paths, zip(*pairs, strict=True), strict=True):
                path.write_bytes("".join(f"{line}\n" for line in column).encode())
            splits[name] = SplitConfig(source=paths[0], target=paths[1])
        before = sorted(tmp_path.iterdir())
        reports = check_recipe(DataConfig(**splits, **options))
        assert sorted(tmp_path.iterdir()) == before  # nothing is written
        return reports

    return checked


# Human links


def test_human_links_that_cannot_be_meant_so_are_found(tmp_path):
    pairs = language(50, 1)
    paths = {side: tmp_path / side for side in ("source", "target", "gold")}
    for side, lines in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
        paths[side].write_text("".join(f"{line}\n" for line in lines))

    def kinds(gold: list[str], **options) -> dict[str, bool]:
        paths["gold"].write_text("".join(f"{line}\n" for line in gold))
        split = SplitConfig(**paths, **options)
        report = check_recipe(DataConfig(train=split, valid=split))["valid"]
        return {f.kind: f.serious for f in report.faults if f.kind in ("stray_links", "no_first_word")}

    ends = [(len(s.split()), len(t.split())) for s, t in pairs]
    assert kinds([f"0-0 {s - 1}?{t - 1}" for s, t in ends]) == {}
    from_one = [f"1-1 {s}-{t}" for s, t in ends]
    assert kinds(from_one) == {"stray_links": True, "no_first_word": True}
    assert kinds(from_one, gold_one_based=True) == {}
    many = " ".join(["0-0", "0-1", "1-0"])
    assert kinds([f"{many} {ends[0][0]}-0", *[many] * 49]) == {"stray_links": False}, "a slip"


# Shifts


@pytest.mark.parametrize("seed", range(2))
def test_clean_text_is_clean(checked, seed):
    drawn = demo.splits(1000, 200, 0, seed=seed)
    train, valid = (
        [(" ".join(pair.source), " ".join(pair.target)) for pair in drawn[name]]
        for name in ("train", "valid")
    )
    reports = checked(train, valid)
    assert as_json(reports)["warnings"] == []
    assert not any(fault.kind == "unclear" for report in reports.values() for fault in report.faults)


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("place", [0, 1, 49, 300, 777, 1200, 1430])
def test_a_deleted_line_is_found_where_it_was(text, place, side):
    (shift,) = shifts(without(text, place, side))
    size = shift.window_end - shift.first + 1
    assert shift.first - size <= place + 1 <= shift.window_end
    assert abs(shift.place - (place + 1)) <= 8
    assert shift.lag == (1, -1)[side]
    assert shift.last == len(text) - 1
    assert shift.correlation < 0.4 < 0.8 < shift.usual or shift.first <= place  # or the window straddles it


def test_the_message_says_where_and_what(text, checked):
    reports = checked(without(text, 700, 0))
    warning = as_json(reports)["warnings"][0]
    (shift,) = reports["train"].shifts
    assert warning.startswith(f"train: lines {shift.first}-1499 of ")
    assert f"from about line {shift.place} on, line n of the source fits line n+1 of the target" in warning
    assert "a line is missing in" in warning
    assert warning.index("train.de or superfluous in") < warning.index(
        "train.en", warning.index("superfluous in")
    )
    assert json.loads(json.dumps(as_json(reports)))["splits"]["train"]["shifts"][0]["lag"] == 1
    assert asdict(shift)["place"] == pytest.approx(701, abs=8)


def test_two_deleted_lines_make_way_for_the_first(text):
    first, *others = shifts(without(without(text, 400, 0), 800, 0))
    assert first.lag in (1, 2)
    assert abs(first.place - 401) <= 8
    assert not others


def test_a_line_that_comes_back_ends_the_shift(text):
    source, target = map(list, zip(*text, strict=True))
    source.insert(1000, source.pop(500))
    (shift,) = shifts(list(zip(source, target, strict=True)))
    assert abs(shift.place - 501) <= 8
    assert abs(shift.last - 1000) <= 50
    assert shift.lag == 1


def test_a_swapped_block_is_found_at_both_ends(text):
    source, target = map(list, zip(*text, strict=True))
    target[200:400], target[1100:1300] = target[1100:1300], target[200:400]
    first, second = shifts(list(zip(source, target, strict=True)))
    assert (first.lag, second.lag) == (900, -900)
    assert abs(first.first - 201) <= 50
    assert abs(second.last - 1300) <= 50


def test_a_missing_block_is_found_even_if_most_lines_follow_it(text):
    source, target = map(list, zip(*text, strict=True))
    del target[150:350], source[-200:]
    (shift,) = shifts(list(zip(source, target, strict=True)))
    assert shift.lag == -200
    assert abs(shift.first - 151) <= 50


def test_lines_in_no_order_fit_nowhere(text, checked):
    target = [line for _, line in text]
    middle = target[600:900]
    random.Random(0).shuffle(middle)
    target[600:900] = middle
    pairs = list(zip((line for line, _ in text), target, strict=True))
    (shift,) = shifts(pairs)
    assert shift.lag is None
    assert abs(shift.first - 601) <= 50
    assert abs(shift.last - 900) <= 50
    assert "compare them" in as_json(checked(pairs))["warnings"][0]


@pytest.mark.parametrize(("n", "claim"), [(0, None), (1, None), (29, None), (60, []), (100, [])])
def test_short_text_is_not_accused(n, claim):
    for seed in range(4):
        assert (
            find_shifts(*lengths(language(n, seed))) == claim if n else find_shifts(*np.zeros((2, 0))) is None
        )


def test_a_deleted_line_shows_in_short_text_too():
    for seed in range(4):
        (shift,) = shifts(without(language(150, seed), 50, 0))
        assert shift.lag == 1
        assert abs(shift.place - 51) <= 10


def drawn_lengths(x: np.ndarray, noise: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    y = x + noise * np.random.default_rng(1000 + seed).standard_normal(len(x))
    return tuple(np.round(np.exp(side)).astype(np.int64) for side in (x, y))


@pytest.mark.parametrize("seed", range(3))
def test_text_whose_lengths_tell_little_is_not_accused(seed):
    random = np.random.default_rng(seed)
    usual = random.normal(4, 0.6, 3000)
    # A part of short sentences that are all about as long, then others.
    assert find_shifts(*drawn_lengths(np.append(random.normal(2.5, 0.05, 1500), usual), 0.25, seed)) == []
    # Free and close translations.
    assert find_shifts(*drawn_lengths(usual, np.repeat([0.1, 0.5], 1500), seed)) == []
    assert not find_shifts(*drawn_lengths(np.sort(usual), 0.25, seed))
    assert find_shifts(*drawn_lengths(np.full(3000, 3.0), 0.25, seed)) is None
    assert find_shifts(*drawn_lengths(usual, 5.0, seed)) is None
    assert find_shifts(np.full(500, 7), np.full(500, 8)) is None


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(0, 400), st.sampled_from([1, 2, 10, 10**6]))
def test_any_lengths_can_be_looked_at(data, n, largest):
    draw = np.random.default_rng(data.draw(st.integers(0, 1000)))
    source = draw.integers(0, largest, n, endpoint=True)
    near = np.maximum(0, source + draw.integers(-1, 2, n))
    target = data.draw(
        st.sampled_from([source, near, draw.permutation(source), np.roll(source, 3), np.sort(near)])
    )
    for shift in find_shifts(source, target) or []:
        assert 1 <= shift.first <= shift.window_end <= shift.last <= n
        assert 1 <= shift.place <= n
        assert shift.lag != 0


def test_a_few_wild_lines_are_no_shift(text):
    pairs = list(text)
    for place in range(0, 1500, 40):
        pairs[place] = (pairs[place][0], "x")
    assert shifts(pairs) == []


def test_lines_that_share_numbers_fit_whatever_their_lengths(text, checked):
    draw = random.Random(3)
    for shared in (True, False):
        pairs = list(text)
        for place in range(500, 800):
            sides = [
                "blah " * draw.randrange(1, 20) + str(place * 1000 + side * (not shared)) for side in (0, 1)
            ]
            pairs[place] = (sides[0], sides[1].replace("blah", "bla"))
        assert len(shifts(pairs)) == 1
        assert len(checked(pairs)["train"].shifts) == (0 if shared else 1)


# Counts


def test_flaws_are_counted_and_their_lines_named(checked):
    pairs = language(100, 5)
    pairs[3] = ("", "one")
    pairs[4] = (" \u2003", "two")
    pairs[5] = ("drei", "")
    pairs[6] = ("", "")
    pairs[10] = pairs[11] = pairs[9]
    pairs[20] = ("same  text", "same text")
    pairs[30] = ("lang " * 41, "long " * 41)
    pairs[40] = ("Ein Satz mit vielen Wörtern, dem nicht viel entspricht.", "Oh.")
    pairs[50] = ("a\x07b", "c")
    pairs[51] = ("a", "b\u2028c")
    pairs[60] = ("a\ufffd", "b")
    pairs[70] = ("MÃ¤dchen", "girls")
    pairs[71] = ("Mädchen", "girlâ€™s")
    report = checked(pairs, max_length=40, max_dropped=0.5)["train"]
    assert report.counts == {
        "pairs": 100, "blank_source": 3, "blank_target": 2, "overlong": 1, "blank_or_overlong": 5,
        "duplicate": 2, "identical": 1, "uneven": 1, "swapped": 0, "control": 2, "replacement": 1, "mojibake": 2,
        "leaked": 0, "leaked_source": 0,
    }  # fmt: skip
    lines = {fault.kind: fault.lines for fault in report.faults}
    assert lines["blank_source"] == (4, 5, 7)
    assert lines["duplicate"] == (11, 12)
    assert lines["uneven"] == (41,)
    assert lines["control"] == (51, 52)
    texts = {fault.kind: fault.text for fault in report.faults}
    assert texts["uneven"].endswith("(line 41)")
    assert texts["control"].endswith("(lines 51, 52)")
    assert lines["mojibake"] == (71, 72)
    assert {fault.kind for fault in report.faults if fault.serious} == {"control", "replacement", "mojibake"}


@pytest.mark.parametrize(
    "line", ["»Fuß« «É» Ñ» NÃO São Â Ã", "naïve â la Ä» Š", "„Straße“ – ‚so‘ …", "Ωé日本"]
)
def test_unusual_but_sound_characters_are_not_accused(checked, line):
    counts = checked([(line, line.lower())] * 3)["train"].counts
    assert counts["mojibake"] == counts["control"] == counts["replacement"] == 0


def test_what_training_or_evaluation_would_refuse_is_serious(checked):
    clean = language(100, 5)
    blank = [("", "x"), *clean[1:]]
    assert as_json(checked(blank))["warnings"] == []
    (warning,) = as_json(checked(clean, [("", "x"), *language(50, 8, clean)]))["warnings"]
    assert "evaluation refuses" in warning
    assert "dropped in training" in as_json(checked(blank, max_dropped=0.001))["warnings"][0]
    assert as_json(checked(clean, max_length=3))["warnings"] != []


def test_leaked_pairs_are_counted(checked):
    train = language(300, 5)
    valid = language(100, 6, train)
    valid[10:13] = train[100:103]
    valid[20] = (train[7][0], "something else")
    report = checked(train, valid)["valid"]
    assert report.counts["leaked"] == 3
    assert report.counts["leaked_source"] == 1
    assert any(fault.kind == "leaked" and fault.serious for fault in report.faults)


def test_empty_files_are_noticed_and_unequal_ones_refused(checked, tmp_path):
    checked(language(40, 1))
    (tmp_path / "train.de").write_bytes(b"")
    splits = {
        name: SplitConfig(source=tmp_path / f"{name}.de", target=tmp_path / f"{name}.en")
        for name in ("train", "valid")
    }
    with pytest.raises(InputError, match=r"has 0 lines but .* has 40"):
        check_recipe(DataConfig(**splits))
    (tmp_path / "train.en").write_bytes(b"")
    assert "there is no text in" in as_json(check_recipe(DataConfig(**splits)))["warnings"][0]


# Real text


def corpus(corpora: Path, name: str) -> Pairs:
    path = corpora / name
    if not path.with_suffix(".de").is_file():
        pytest.skip(f"{path}.de is absent")
    return list(read_parallel(path.with_suffix(".de"), path.with_suffix(".en")))


@pytest.mark.data
@pytest.mark.parametrize(
    "name",
    [
        "multi30k/valid",
        "multi30k/test",
        *(
            pytest.param(n, marks=pytest.mark.slow)
            for n in ("multi30k/train", "europarl-20k/train", "iwslt14-part/valid")
        ),
    ],
)
def test_real_text_is_clean_until_a_line_is_deleted(corpora, name):
    pairs = corpus(corpora, name)
    assert shifts(pairs) == []
    for share, side in ((0, 1), (0.1, 0), (0.5, 1), (0.93, 0)):
        place = int(share * len(pairs))
        (shift,) = shifts(without(pairs, place, side))
        assert shift.first - 50 <= place + 1 <= shift.window_end
        assert abs(shift.place - (place + 1)) <= 10
        assert shift.lag == (1, -1)[side]


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("name", ["multi30k", "europarl-20k"])
def test_real_files_pass_as_they_are(corpora, name):
    corpus(corpora, f"{name}/train")
    folder = corpora / name
    train = SplitConfig(source=folder / "train.de", target=folder / "train.en")
    small = corpora / "multi30k"
    valid = SplitConfig(source=small / "valid.de", target=small / "valid.en")
    assert as_json(check_recipe(DataConfig(train=train, valid=valid)))["warnings"] == []


@pytest.mark.data
def test_the_faults_of_a_published_test_set_are_found(corpora):
    first, second = shifts(corpus(corpora, "iwslt14-part/test"))
    assert first.first <= 1080 <= first.window_end
    assert second.lag == -1
    assert 1790 <= second.place <= 1800
    assert 1850 <= second.last <= 1900
