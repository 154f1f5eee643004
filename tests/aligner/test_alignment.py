"""Posteriors of an aligner: one for each pair, in order, whatever else is aligned with it."""

import numpy as np
import pytest
import torch

from latentalign.aligner import Aligner, AlignerConfig, train_aligner
from latentalign.aligner import model as module
from latentalign.aligner.model import number_cells
from latentalign.aligner.training import NothingToLearnError
from latentalign.core.kernels import jump_posterior
from support.aligners import demo_text, small_aligner


def assert_same(found, expected):
    for name in ("forward", "backward", "target_null", "source_null"):
        one, other = getattr(found, name), getattr(expected, name)
        np.testing.assert_allclose(one, other, atol=1e-5, rtol=0, err_msg=name)


@pytest.fixture(scope="module")
def text():
    """Pairs of different lengths, blank ones among them."""
    held_out = demo_text(40, seed=1)
    joined = (" ".join(a for a, _ in held_out[:8]), " ".join(b for _, b in held_out[:8]))
    return [*held_out[:15], ("", ""), ("das Haus", ""), joined, ("", "a house"), *held_out[15:]]


def test_the_other_pairs_do_not_matter(text, monkeypatch):
    aligner = small_aligner()
    alone = [next(aligner.align_lines([pair])) for pair in text]
    together = list(aligner.align_lines(text))
    monkeypatch.setattr(module, "GROUP", 7)
    groups = list(aligner.align_lines(text))
    assert len(alone) == len(together) == len(groups) == len(text)
    for one, other, third in zip(alone, together, groups, strict=True):
        assert_same(other, one)
        assert_same(third, one)


def test_every_row_sums_to_one_with_null(text):
    for pair, known in zip(text, small_aligner().align_lines(text), strict=True):
        source, target = (len(side.split()) for side in pair)
        assert known.forward.shape == known.backward.shape == (target, source)
        np.testing.assert_allclose(known.forward.sum(1) + known.target_null, np.ones(target), atol=1e-4)
        np.testing.assert_allclose(known.backward.sum(0) + known.source_null, np.ones(source), atol=1e-4)


def test_it_is_the_posterior_of_two_chains(text):
    aligner = small_aligner()
    for a, b in text[:6]:
        source, target = a.lower().split(), b.lower().split()
        known = next(aligner.align([(source, target)]))
        for side, (links, null) in enumerate(
            ((known.forward, known.target_null), (known.backward.T, known.source_null))
        ):
            chain, log_f = aligner.chain(source, target, side)
            mean = chain.posterior(log_f).mean[0, :-1].numpy()
            np.testing.assert_allclose(links, mean[:, :-2], atol=1e-4)
            np.testing.assert_allclose(null, mean[:, -1], atol=1e-4)


def test_only_the_words_that_meet_are_numbered_unless_all_may():
    rng = np.random.default_rng(0)
    for words in (3, 1000):  # more cells than pairs of words, and fewer
        source, target = rng.integers(0, words, (4, 6)), rng.integers(0, words, (4, 5))
        index, keys = number_cells(source, target, 1000)
        assert (keys[index] == source[:, None, :] * 1000 + target[:, :, None]).all()
        assert len(np.unique(keys)) == len(keys) <= index.size


def test_a_text_aligned_with_itself_gives_the_diagonal():
    lines = [a for a, _ in demo_text()[:100]]
    aligner = train_aligner((line, line) for line in lines)
    for line, known in zip(lines, aligner.align_lines((line, line) for line in lines), strict=True):
        chosen = np.argwhere(known.mean >= aligner.threshold)
        assert chosen.tolist() == [[n, n] for n in range(len(line.split()))]


def test_a_long_sentence_is_aligned_by_convolution(monkeypatch):
    """The long way gives what the short way gives."""
    aligner, pair = small_aligner(), demo_text()[3]
    expected = next(aligner.align_lines([pair]))
    monkeypatch.setattr(jump_posterior, "LONGEST_MATRIX", 0)
    assert_same(next(aligner.align_lines([pair])), expected)


@pytest.mark.slow
def test_five_thousand_words_are_aligned():
    line = " ".join(" ".join(a for a, _ in demo_text(450)).split()[:5000])
    known = next(train_aligner([(a, a) for a, _ in demo_text()[:100]]).align_lines([(line, line)]))
    np.testing.assert_allclose(known.forward.sum(1) + known.target_null, np.ones(5000), atol=1e-3)
    assert (known.mean.argmax(1) == np.arange(5000)).mean() > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("words", [300, 450], ids=["matrix", "convolution"])
def test_a_text_of_long_sentences_alone_is_learned_from(words):
    line = " ".join(" ".join(a for a, _ in demo_text()).split()[:words])
    config = AlignerConfig(first_iterations=1, iterations=1)
    aligner = train_aligner([(line, line)], config)
    known = next(aligner.align_lines([(line, line)]))
    assert (known.mean.argmax(1) == np.arange(words)).mean() > 0.9
    weights = aligner.directions[0].weights
    assert int(weights.argmax()) == config.widest_jump + 1


def test_unseen_words_are_linked_by_their_letters_and_as_copies():
    text = [("der lehrerin x", "the teacher y"), ("der katzen", "the cats"), ("der bahn", "the train")] * 20
    config = AlignerConfig(prefixes=(4,), suffixes=(5,))
    aligner = train_aligner(text, config)
    unseen = [("der lehrers", "the teachers"), ("der Wladiwostok", "the Wladiwostok")]
    for known in aligner.align_lines(unseen):
        assert known.mean[1, 1] > aligner.threshold
        assert known.mean.argmax(1).tolist() == [0, 1]
    strangers = next(aligner.align_lines([("qqqqqqq der", "the zzzzzzz")]))
    assert strangers.mean[1, 0] < 0.01


def test_tensors_and_words_are_the_whole_aligner(text):
    aligner = small_aligner()
    words = tuple(list(v.ids) for v in aligner.words.vocabularies)
    tensors = {name: tensor.clone() for name, tensor in aligner.tensors().items()}
    copy = Aligner.from_tensors(aligner.config, words, tensors)
    assert copy.threshold == pytest.approx(aligner.threshold)
    for one, other in zip(copy.align_lines(text), aligner.align_lines(text), strict=True):
        assert_same(one, other)


def test_an_aligner_that_knows_nothing_links_copies():
    aligner = Aligner.untrained(AlignerConfig())
    blank, known = aligner.align_lines([("", "a b"), ("Oslo liegt", "in Oslo")])
    assert blank.forward.shape == (2, 0)
    assert blank.target_null.tolist() == [1, 1]
    assert (known.mean >= aligner.threshold).tolist() == [[False, False], [True, False]]


@pytest.mark.parametrize("text", [[], [("", "")], [("a", ""), (" ", "b")]])
def test_a_text_without_words_teaches_nothing(text, tmp_path):
    with pytest.raises(NothingToLearnError, match="in every pair, a side is blank"):
        train_aligner(text, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_training_is_the_same_every_time():
    first, second = (train_aligner(demo_text()[:50]).tensors() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_likelihood_rises_in_every_pass_of_the_first_model():
    history = train_aligner(demo_text(), AlignerConfig(sparsity=1e-5)).history
    perplexity = [figures["perplexity_forward"] for figures in history]
    assert perplexity[0] > perplexity[1] > perplexity[2]
    assert perplexity[-1] < perplexity[2]
