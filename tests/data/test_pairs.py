"""Generated pairs: their splits, files and statistics, on cases worked by hand."""

from math import exp

import pytest

from latentalign.data.pairs import Pair, draw_splits, statistics, write_splits
from latentalign.errors import InputError


def pair(source, target, sure, possible=(), log_prob=0.0):
    return Pair(tuple(source.split()), tuple(target.split()), frozenset(sure), frozenset(possible), log_prob)


PAIRS = [
    pair("a b c", "x y", {(0, 1), (1, 0)}, {(2, 1)}, -1.0),  # the first crosses the second
    pair("a d", "x z", {(0, 0), (1, 0), (1, 1)}, (), -2.5),  # links that share a word do not cross
]


def test_statistics_of_two_pairs_worked_by_hand():
    found = statistics(PAIRS)
    assert (found.pairs, found.source_tokens, found.target_tokens) == (2, 5, 4)
    assert (found.source_vocabulary, found.target_vocabulary) == (4, 3)
    assert (found.crossing_share, found.possible_share) == pytest.approx((2 / 6, 1 / 6))
    assert found.floor_perplexity == pytest.approx(exp(3.5 / (4 + 2)))  # each target has an end


def test_every_split_has_a_seed_of_its_own_and_excludes_the_sources_before_it():
    calls = []

    def generate(n, *, seed, exclude):
        calls.append((n, seed, set(exclude)))
        return [pair(f"source{seed}", "target", ())] * n

    found = draw_splits(generate, 3, 2, 1, seed=7)
    assert [len(found[name]) for name in ("train", "valid", "test")] == [3, 2, 1]
    test, valid = {("source21",)}, {("source22",)}
    assert calls == [(1, 21, set()), (2, 22, test), (3, 23, test | valid)]


@pytest.mark.parametrize(
    "name", [f"{split}.{kind}" for split in ("train", "valid", "test") for kind in ("de", "en", "gold")]
)
def test_no_file_of_a_split_is_overwritten_unasked(tmp_path, name):
    splits = dict.fromkeys(("train", "valid", "test"), PAIRS)
    folder = tmp_path / "new" / "below"
    write_splits(folder, lambda: splits, ("de", "en"), overwrite=False)
    assert (folder / "valid.gold").read_text() == "0-1 1-0 2?1\n0-0 1-0 1-1\n"
    for path in folder.iterdir():
        if path.name != name:
            path.unlink()
    with pytest.raises(InputError, match=f"{name} already exists"):
        write_splits(folder, lambda: splits, ("de", "en"), overwrite=False)
