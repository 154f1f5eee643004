"""Random sentences look like those they stand for, and are the same in every process."""

import numpy as np
import pytest

from latentalign.bench.rows import parse_row
from latentalign.bench.sentences import FixedLength, Lengths, evenly_spaced, zipf_corpus
from latentalign.bench.workload import PRESETS
from latentalign.tasks.nmt.tokenizer import EOS


def test_lengths_have_the_moments_that_are_asked_for():
    source, target = Lengths().draw(20_000, np.random.default_rng(1))
    assert [source.mean(), target.mean()] == pytest.approx([11.1, 11.9], rel=0.02)
    assert [source.std(), target.std()] == pytest.approx([3.8, 3.8], rel=0.04)
    assert np.corrcoef(source, target)[0, 1] == pytest.approx(0.87, abs=0.02)
    assert min(source.min(), target.min()) >= 3
    assert max(source.max(), target.max()) <= 40


def test_one_length_counts_the_end_of_the_target():
    corpus = zipf_corpus(FixedLength(7), 5, 30, seed=0)
    assert corpus.lengths("source").tolist() == [7] * 5
    assert (corpus.lengths("target") + 1).tolist() == [7] * 5


def test_words_are_zipfian_and_never_special():
    corpus = zipf_corpus(Lengths(), 2000, 100, seed=0)
    ids = corpus.arrays["target.ids"]
    assert ids.min() == EOS + 1
    assert ids.max() == 99
    counts = np.bincount(ids)[EOS + 1 :]
    assert counts[0] / counts[1] == pytest.approx(2, rel=0.15)
    assert counts[0] / counts[9] == pytest.approx(10, rel=0.3)


def test_sentences_depend_on_the_seed_alone():
    first, again, other = (zipf_corpus(Lengths(), 20, 100, seed=s) for s in (0, 0, 1))
    assert np.array_equal(first.arrays["source.ids"], again.arrays["source.ids"])
    assert not np.array_equal(first.arrays["source.ids"][:50], other.arrays["source.ids"][:50])


def test_spread_takes_middles_of_equal_parts():
    assert evenly_spaced(range(100), 4) == [12, 37, 62, 87]
    assert evenly_spaced(range(9), 1) == [4]
    assert evenly_spaced("ab", 5) == ["a", "b"]


@pytest.mark.slow
def test_the_preset_has_the_sizes_of_its_name():
    preset = PRESETS["multi30k"]
    assert preset.vocabulary == 7900
    data, module = preset.problem(parse_row("variational-sample"))
    shapes = {name: tuple(p.shape) for name, p in module.model.named_parameters()}
    assert shapes["head.output.weight"] == (7900, 256)
    assert shapes["source_embedding.weight"] == shapes["target_embedding.weight"] == (7900, 256)
    assert shapes["inference.source.forwards.0.from_hidden.weight"] == (1024, 256)
    widths = [int(data.load_batch(key).source.shape[1]) for key in data.batch_keys(0)]
    pads = [float((~data.load_batch(key).source_mask).float().mean()) for key in data.batch_keys(0)]
    assert len(widths) == 100
    assert np.mean(pads) < 0.02  # bucketed by length
