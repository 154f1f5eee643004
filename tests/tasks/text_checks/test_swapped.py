"""Pairs whose sides are swapped are found, and nothing is claimed about others."""

from itertools import pairwise

import pytest

from latentalign.data import demo
from latentalign.tasks.splits import TextSplit
from latentalign.tasks.text_checks.check import Limits, as_json, check
from latentalign.tasks.text_checks.swapped import find_swapped, weigh_words

SWAPPED = range(100, 180)


@pytest.fixture(scope="module")
def pairs():
    return [(" ".join(pair.source), " ".join(pair.target)) for pair in demo.generate(600, seed=3)]


def write(folder, name, pairs):
    (folder / name).write_text("".join(f"{a}\t{b}\n" for a, b in pairs))
    return TextSplit(pairs=folder / name)


def test_swapped_pairs_are_found_although_words_are_counted_with_them(tmp_path, pairs):
    # Marks that each side has for itself say nothing about its language.
    mixed = [
        (f"<T_0> {b} <T_1>", f"<S_0> {a} <S_1>") if n in SWAPPED else (a, b) for n, (a, b) in enumerate(pairs)
    ]
    split = write(tmp_path, "train", mixed)
    assert find_swapped(split, weigh_words(split, 600)).tolist() == list(SWAPPED)
    result = as_json(check({"train": split}, Limits(100, "data.max_length", 0.1)))
    assert result["splits"]["train"]["swapped"] == len(SWAPPED)
    assert any("80 pairs seem to have their sides swapped" in text for text in result["warnings"])


def test_the_files_of_a_split_in_the_wrong_order_are_found(tmp_path, pairs):
    train = write(tmp_path, "train", pairs[:400])
    test = write(tmp_path, "test", [(b, a) for a, b in pairs[400:]])
    weights = weigh_words(train, 400)
    assert len(find_swapped(train, weights)) == 0
    assert len(find_swapped(test, weights)) > 190  # some have too few frequent words


def test_two_sides_in_one_language_are_never_swapped(tmp_path, pairs):
    same = write(tmp_path, "train", [(a, other) for (a, _), (other, _) in pairwise(pairs)])
    assert len(find_swapped(same, weigh_words(same, 599))) == 0
