"""Lines that do not translate each other are found, and lines that do are left alone."""

import itertools
import json

import numpy as np
import pytest

from latentalign.aligner import train_aligner
from latentalign.data import demo
from latentalign.errors import InputError
from latentalign.tasks.splits import TextSplit
from latentalign.tasks.text_checks import misaligned
from latentalign.tasks.text_checks.check import Limits
from latentalign.tasks.text_checks.misaligned import best_path, draw_partners, find_misaligned
from latentalign.tasks.text_checks.report import MisalignedOptions, check_text

LIMITS = Limits(100, "data.max_length", 0.1)


@pytest.fixture(scope="module")
def text():
    pairs = [(" ".join(pair.source), " ".join(pair.target)) for pair in demo.generate(900, seed=5)]
    return pairs[:600], pairs[600:]


@pytest.fixture(scope="module")
def aligner(text):
    return train_aligner(text[0])


def find(aligner, pairs):
    return find_misaligned(aligner, pairs, len(pairs))


def bad_lines(found):
    return [line for run in found for line in range(run.first, run.last + 1)]


def test_log_likelihoods_are_those_of_the_chain(aligner, text):
    pairs = [
        (a.lower().split(), b.lower().split()) for a, b in [*text[1][:4], (text[1][0][0], text[1][9][1])]
    ]
    found = aligner.log_likelihoods([*pairs, ([], ["x"])])
    for number, (source, target) in enumerate(pairs):
        for side in (0, 1):
            chain, log_f = aligner.chain(source, target, side)
            assert found[number, side] == pytest.approx(float(chain.filter(log_f).sum()), abs=1e-3)
    assert found[-1].tolist() == [0, 0]


def test_gains_of_moved_lines_compare_each_line_with_its_own_neighbour(aligner, text, monkeypatch):
    monkeypatch.setattr(misaligned, "SUSPICIOUS", 99.0)  # look at all lines
    words = [(a.lower().split(), b.lower().split()) for a, b in text[1][:40]]
    gains, size = misaligned.measure_gains(aligner, words), np.array([len(a) + len(b) for a, b in words])
    own = aligner.log_likelihoods(words).sum(1)
    for lag in misaligned.LAGS:
        for i in range(5, 35, 7):  # target i beside source i - lag, and source i beside target i + lag
            pairs = [(words[i - lag][0], words[i][1]), (words[i][0], words[i + lag][1])]
            found = aligner.log_likelihoods(pairs)
            wanted = found[0, 0] + found[1, 1] - own[i]
            assert (gains.moved[lag][i] - gains.own[i]) * size[i] == pytest.approx(wanted, abs=1e-3)


def test_translations_are_left_alone(aligner, text):
    assert find(aligner, text[1]) == []


@pytest.mark.parametrize("lag", [-1, 1, 2])
def test_a_stretch_of_shifted_lines_is_one_finding(aligner, text, lag):
    sources, targets = (list(side) for side in zip(*text[1], strict=True))
    # From line 101 to 130, source line n belongs to target line n + lag.
    for n in range(100, 130):
        targets[n + lag] = text[1][n][1]
    found = find(aligner, list(zip(sources, targets, strict=True)))
    assert len(found) == 1
    assert found[0].lag == lag
    wrong = [n + 1 for n, pair in enumerate(text[1]) if targets[n] != pair[1]]
    assert abs(found[0].first - wrong[0]) <= 2
    assert abs(found[0].last - wrong[-1]) <= 2
    assert found[0].moved_gain > 1 > found[0].gain
    assert sources[found[0].line - 1] == found[0].source


def test_lines_that_fit_nothing_have_no_lag(aligner, text):
    sources, targets = (list(side) for side in zip(*text[1], strict=True))
    targets[50:62] = targets[200:212]
    found = find(aligner, list(zip(sources, targets, strict=True)))
    assert len(found) == 1
    assert found[0].lag is None
    assert found[0].moved_gain is None
    assert len(set(bad_lines(found)) ^ set(range(51, 63))) <= 2


def test_parts_of_a_large_text_are_numbered_through(aligner, text, monkeypatch):
    monkeypatch.setattr(misaligned, "PART", 130)
    sources, targets = (list(side) for side in zip(*text[1], strict=True))
    targets[250:270] = targets[10:30]
    found = find(aligner, list(zip(sources, targets, strict=True)))
    assert len(set(bad_lines(found)) ^ set(range(251, 271))) <= 2


def test_few_or_blank_lines_are_not_judged(aligner, text):
    shuffled = list(zip([a for a, _ in text[1][:10]], [b for _, b in text[1][10:20]], strict=True))
    assert find(aligner, shuffled) == []
    blank = [("", "") if n % 2 else pair for n, pair in enumerate(text[1])]
    assert find(aligner, blank) == []


def test_no_line_is_its_own_partner():
    lengths = np.random.default_rng(0).integers(1, 9, 50)
    for seed in range(20):
        partners = draw_partners(lengths, np.random.default_rng(seed))
        assert sorted(partners) == list(range(50))
        assert (partners != np.arange(50)).all()


@pytest.mark.parametrize("seed", range(5))
def test_the_best_path_is_the_best_of_all_paths(seed):
    scores = np.random.default_rng(seed).normal(size=(5, 3))

    def value(path):
        steps = itertools.pairwise([0, *path, 0])  # text begins and ends with lines that fit
        return sum(scores[n, s] for n, s in enumerate(path)) - 0.7 * sum(a != b for a, b in steps)

    best = max(itertools.product(range(3), repeat=5), key=value)
    assert tuple(best_path(scores, 0.7)) == best


def write_split(folder, name, pairs):
    for end, column in zip(("de", "en"), zip(*pairs, strict=True), strict=True):
        (folder / f"{name}.{end}").write_text("".join(f"{line}\n" for line in column))
    return TextSplit(source=folder / f"{name}.de", target=folder / f"{name}.en")


@pytest.fixture
def splits(tmp_path, text):
    sources, targets = (list(side) for side in zip(*text[1], strict=True))
    targets[50:80] = targets[150:180]
    shifted = list(zip(sources, targets, strict=True))
    return {"train": write_split(tmp_path, "train", text[0]), "test": write_split(tmp_path, "test", shifted)}


def test_filtered_copies_lack_the_misaligned_lines_and_replace_nothing(tmp_path, splits):
    result = check_text(splits, LIMITS, MisalignedOptions(tmp_path / "good"))
    json.dumps(result)
    assert result["splits"]["train"]["misaligned"] == 0
    bad = result["splits"]["test"]["misaligned"]
    assert 28 <= bad <= 32
    assert any(f"{bad} of 300 pairs" in text and "do not translate" in text for text in result["warnings"])
    original = list(splits["test"].read())
    kept = [int(line) for line in (tmp_path / "good" / "test.lines").read_text().split()]
    assert len(kept) == 300 - bad
    copies = TextSplit(source=tmp_path / "good/test.source", target=tmp_path / "good/test.target")
    assert list(copies.read()) == [original[line - 1] for line in kept]
    with pytest.raises(InputError, match="is not empty"):
        check_text(splits, LIMITS, MisalignedOptions(tmp_path / "good"))


def test_misaligned_lines_are_looked_for_only_if_wanted(splits):
    assert "misaligned" not in check_text(splits, LIMITS, None)["splits"]["test"]
