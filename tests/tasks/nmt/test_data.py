import dataclasses
import gzip
import json
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from latentalign.config import Section, load
from latentalign.errors import InputError, StorageError
from latentalign.tasks.nmt import data, encoding
from latentalign.tasks.nmt.data import Batches, Corpus, build_cache, collate
from latentalign.tasks.nmt.recipe import NMTConfig
from latentalign.tasks.nmt.splits import DataConfig, SplitConfig
from latentalign.tasks.nmt.tokenizer import EOS, PAD, Tokenizer, TokenizerConfig
from latentalign.textfiles import TextColumn

Write = Callable[[bytes, bytes], SplitConfig]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(source: bytes, target: bytes) -> SplitConfig:
        (tmp_path / "de").write_bytes(source)
        (tmp_path / "en").write_bytes(target)
        return SplitConfig(source=tmp_path / "de", target=tmp_path / "en")

    return write


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    path = tmp_path_factory.mktemp("vocabulary") / "text"
    path.write_text(" ".join("abcdefgh"))
    return Tokenizer.learn(TokenizerConfig(kind="words"), path, path)


def texts(tokenizer: Tokenizer, corpus: Corpus) -> list[tuple[str, str]]:
    return [
        (tokenizer.decode_target(corpus.source(index)), tokenizer.decode_target(corpus.target(index)))
        for index in range(len(corpus))
    ]


def corpus_of(lengths: list[tuple[int, int]]) -> Corpus:
    """A corpus whose sentences have these lengths and ids that tell them apart."""
    source, target = np.array(lengths, np.int64).T
    return Corpus(
        {
            "source.ids": np.repeat(np.arange(len(lengths), dtype=np.int32) + 4, source),
            "source.offsets": np.cumsum([0, *source]),
            "target.ids": np.repeat(np.arange(len(lengths), dtype=np.int32) + 4, target),
            "target.offsets": np.cumsum([0, *target]),
            "lines": np.arange(1, len(lengths) + 1),
        },
        {"blank": 0, "overlong": 0},
    )


# Cache


@pytest.mark.parametrize("chunk", [1, 2, 1000])
def test_the_cache_holds_the_text(tokenizer, write, tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(encoding, "CHUNK", chunk)
    split = write(b"\xef\xbb\xbfa b\r\nc\r\nd\xe2\x80\xa8e f", b"a\nb c d\ne\n")
    corpus = build_cache(tokenizer, split, tmp_path / "cache", max_length=5)
    assert texts(tokenizer, corpus) == [("a b", "a"), ("c", "b c d"), ("d e f", "e")]
    assert corpus.lengths("source").tolist() == [2, 1, 3]
    assert corpus.lengths("target").tolist() == [1, 3, 1]
    assert corpus.source(0).dtype == np.int32
    assert isinstance(corpus.arrays["source.ids"].base, np.memmap)
    assert np.shares_memory(corpus.source(1), corpus.arrays["source.ids"])
    assert dict(corpus.dropped) == {"blank": 0, "overlong": 0}


@pytest.mark.parametrize("chunk", [1, 2, 1000])
def test_training_drops_and_counts_what_cannot_be_trained_on(tokenizer, write, tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(encoding, "CHUNK", chunk)
    split = write(b"a\n \t\nb\n\nc c c c\nd\ne\n", b"a\nx\n\n\nc\nd d d\ne e e e\n")
    corpus = build_cache(tokenizer, split, tmp_path / "cache", max_length=3, max_dropped=0.9)
    assert texts(tokenizer, corpus) == [("a", "a"), ("d", "d d d")]
    assert [corpus.line(index) for index in range(2)] == [1, 6]
    assert dict(corpus.dropped) == {"blank": 3, "overlong": 2}


def test_an_endless_word_is_dropped_from_training(tmp_path, write):
    split = write(b"ab ab\n" + b"ab" * 5000 + b"\n", b"ab\nab\n")
    bpe = Tokenizer.learn(TokenizerConfig(vocab_size=300), split.source, split.target)
    long = write(b"ab ab\n" + b"xy" * 5000 + b"\n", b"ab\nab\n")
    corpus = build_cache(bpe, long, tmp_path / "cache", max_length=125, max_dropped=0.5)
    assert len(corpus) == 1
    assert corpus.dropped["overlong"] == 1
    assert len(build_cache(bpe, long, tmp_path / "all", max_length=None).source(1)) > 125


def test_too_many_dropped_pairs_are_refused_with_their_counts(tokenizer, write, tmp_path):
    split = write(b"a\nb\n\nc c c c\n", b"a\nb\nc\nd\n")
    for _ in range(2):  # encoded and from the cache
        with pytest.raises(
            InputError, match=r"2 of 4 pairs dropped, 1 with a blank side and 1 longer than 3 tokens"
        ):
            build_cache(tokenizer, split, tmp_path / "cache", max_length=3, max_dropped=0.49)
    assert len(build_cache(tokenizer, split, tmp_path / "cache", max_length=3, max_dropped=0.5)) == 2
    with pytest.raises(InputError, match="2 of 4"):
        build_cache(tokenizer, split, tmp_path / "cache", max_length=3)
    with pytest.raises(InputError, match="2 of 2 pairs dropped"):
        build_cache(tokenizer, write(b"a\n\n", b"\nb\n"), tmp_path / "cache", max_length=3, max_dropped=1.0)


@pytest.mark.parametrize(
    ("source", "target", "blank"), [(b"a\n\n", b"b\nc\n", "de"), (b"a\nb\n", b"a\n  \n", "en")]
)
def test_evaluation_refuses_blank_lines_and_keeps_long_ones(
    tokenizer, write, tmp_path, source, target, blank
):
    with pytest.raises(InputError, match=rf"{tmp_path / blank}, line 2: blank"):
        build_cache(tokenizer, write(source, target), tmp_path / "cache", max_length=None)
    split = write(b"a " * 500 + b"\n", b"b\n")
    assert build_cache(tokenizer, split, tmp_path / "cache", max_length=None).lengths("source").tolist() == [
        500
    ]


@pytest.mark.parametrize("max_length", [None, 5])
@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (b"", b"", "no sentence pairs"),
        (b"a\nb\n", b"a\n", "has 2 lines but .* has 1"),
        (b"a\n\xff\n", b"a\nb\n", "de, line 2: not UTF-8"),
    ],
)
def test_bad_files_are_refused(tokenizer, write, tmp_path, source, target, message, max_length):
    with pytest.raises(InputError, match=message):
        build_cache(tokenizer, write(source, target), tmp_path / "cache", max_length=max_length)
    assert not list((tmp_path / "cache").glob(".building*"))


def test_a_missing_file_is_named(tokenizer, write, tmp_path):
    split = write(b"a\n", b"a\n")
    (tmp_path / "en").unlink()
    with pytest.raises(InputError, match="en: no such file"):
        build_cache(tokenizer, split, tmp_path / "cache", max_length=5)


def test_the_cache_is_made_once(tokenizer, write, tmp_path, monkeypatch):
    split = write(b"a\n", b"b\n")
    first = build_cache(tokenizer, split, tmp_path / "cache", max_length=5)
    monkeypatch.setattr(data, "write_ids", None)
    assert texts(tokenizer, build_cache(tokenizer, split, tmp_path / "cache", max_length=5)) == [("a", "b")]
    assert texts(tokenizer, first) == [("a", "b")]


def test_the_cache_follows_text_tokenizer_and_length(tokenizer, write, tmp_path):
    def build(
        split: SplitConfig, tokenizer: Tokenizer = tokenizer, max_length: int = 5
    ) -> list[tuple[str, str]]:
        corpus = build_cache(tokenizer, split, tmp_path / "cache", max_length=max_length, max_dropped=0.9)
        return texts(tokenizer, corpus)

    assert build(write(b"a\nb b\n", b"c\nd\n")) == [("a", "c"), ("b b", "d")]
    assert build(write(b"a\nb b\n", b"c\ne\n")) == [("a", "c"), ("b b", "e")]
    split = write(b"b\nb b\n", b"c\ne\n")
    assert build(split) == [("b", "c"), ("b b", "e")]
    assert build(split, max_length=1) == [("b", "c")]
    assert build(split) == [("b", "c"), ("b b", "e")]
    other = Tokenizer.learn(TokenizerConfig(kind="words"), split.source, split.source)
    assert build(split, tokenizer=other) == [("b", "<unk>"), ("b b", "<unk>")]


@pytest.mark.parametrize("name", [*data.ARRAYS, data.HEADER])
@pytest.mark.parametrize("damage", ["absent", "cut"])
def test_an_incomplete_cache_is_made_again(tokenizer, write, tmp_path, name, damage):
    split = write(b"a b\nc\n", b"b\nd\n")
    build_cache(tokenizer, split, tmp_path / "cache", max_length=5)
    path = tmp_path / "cache" / name
    path.unlink() if damage == "absent" else path.write_bytes(path.read_bytes()[:-3])
    corpus = build_cache(tokenizer, split, tmp_path / "cache", max_length=5)
    assert texts(tokenizer, corpus) == [("a b", "b"), ("c", "d")]
    assert sorted(entry.name for entry in (tmp_path / "cache").iterdir()) == sorted(
        [*data.ARRAYS, data.HEADER]
    )


def test_a_header_of_another_kind_is_not_trusted(tokenizer, write, tmp_path):
    split = write(b"a\n", b"b\n")
    build_cache(tokenizer, split, tmp_path / "cache", max_length=5)
    header = json.loads((tmp_path / "cache" / data.HEADER).read_text())
    for other in ([], {}, {"bytes": header["bytes"]}, {**header, "identity": {}}):
        (tmp_path / "cache" / data.HEADER).write_text(json.dumps(other))
        assert len(build_cache(tokenizer, split, tmp_path / "cache", max_length=5)) == 1


def test_a_cache_that_cannot_be_written_is_a_storage_error(tokenizer, write, tmp_path):
    with pytest.raises(StorageError, match="cannot be written"):
        build_cache(tokenizer, write(b"a\n", b"b\n"), tmp_path / "de" / "cache", max_length=5)


# Unchanged text


@pytest.fixture
def hashed(monkeypatch):
    """The names of the files whose SHA-256 was computed."""
    names: list[str] = []
    compute = data.fingerprint

    def note(path):
        names.append(Path(path).name)
        return compute(path)

    monkeypatch.setattr(data, "fingerprint", note)
    return names


def test_files_are_read_again_only_if_their_size_or_time_changes(tokenizer, write, tmp_path, hashed):
    split = write(b"a b\nc\n", b"b\nd\n")
    os.utime(split.source, (1e9, 1e9))
    os.utime(split.target, (1e9, 1e9))

    def build() -> Corpus:
        hashed.clear()
        return build_cache(tokenizer, split, tmp_path / "cache", max_length=5)

    first = build()
    assert sorted(hashed) == sorted(["de", "en", *data.ARRAYS])
    assert build().fingerprints == first.fingerprints
    assert hashed == []
    os.utime(split.source, (1e9 + 1, 1e9 + 1))  # another time, the same text
    assert build().fingerprints == first.fingerprints
    assert hashed == ["de"]
    build()
    assert hashed == []
    split.target.write_bytes(b"b\nd \n")
    os.utime(split.target, (1e9, 1e9))  # another size, the same time
    assert build().fingerprints != first.fingerprints
    assert hashed[0] == "en"


def test_a_file_that_was_just_written_is_not_trusted(tokenizer, write, tmp_path, hashed):
    split = write(b"a b\nc\n", b"b\nd\n")
    build_cache(tokenizer, split, tmp_path / "cache", max_length=5)
    hashed.clear()
    build_cache(tokenizer, split, tmp_path / "cache", max_length=5)
    assert hashed == ["de", "en"]


def test_a_cache_without_times_is_read_once_more(tokenizer, write, tmp_path, hashed):
    split = write(b"a b\nc\n", b"b\nd\n")
    for path in split.files.values():
        os.utime(path, (1e9, 1e9))
    build_cache(tokenizer, split, tmp_path / "cache", max_length=5)
    path = tmp_path / "cache" / data.HEADER
    header = json.loads(path.read_text())
    for stamps in (None, [], {"lines": 3}, {"lines": {"size": 1}}):
        path.write_text(json.dumps({**header, "stamps": stamps}))
        hashed.clear()
        build_cache(tokenizer, split, tmp_path / "cache", max_length=5)
        assert sorted(hashed) == sorted(["de", "en", *data.ARRAYS])
        assert json.loads(path.read_text()) == header


@pytest.mark.parametrize("name", list(data.ARRAYS))
def test_a_damaged_array_of_the_same_size_is_made_again(tokenizer, write, tmp_path, name):
    split = write(b"a b\nc\n", b"b\nd\n")
    build_cache(tokenizer, split, tmp_path / "cache", max_length=5)
    path = tmp_path / "cache" / name
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    corpus = build_cache(tokenizer, split, tmp_path / "cache", max_length=5)
    assert texts(tokenizer, corpus) == [("a b", "b"), ("c", "d")]
    assert path.read_bytes() == content


def test_text_other_than_expected_is_refused_and_the_cache_is_kept(tokenizer, write, tmp_path):
    corpus = build_cache(tokenizer, write(b"a\n", b"b\n"), tmp_path / "cache", max_length=5)
    before = (tmp_path / "cache" / data.HEADER).read_bytes()
    split = write(b"a\n", b"c\n")
    with pytest.raises(InputError, match=rf"{tmp_path / 'en'}: has changed since .*--overwrite"):
        build_cache(tokenizer, split, tmp_path / "cache", max_length=5, expected=corpus.fingerprints)
    assert (tmp_path / "cache" / data.HEADER).read_bytes() == before


# Configuration


def test_a_recipe_names_splits_beside_itself(tmp_path):
    class Recipe(Section):
        data: DataConfig

    path = tmp_path / "recipe.toml"
    path.write_text('[data.train]\nsource="a"\ntarget="b"\n[data.valid]\nsource="c"\ntarget="d"\ngold="e"\n')
    config = load(path, Recipe).data
    assert config.train.target == tmp_path / "b"
    assert config.valid.gold == tmp_path / "e"
    assert config.test is None
    assert config.max_length == 125
    with pytest.raises(
        InputError, match=r"unknown key data\.valid\.sorce; did you mean data\.valid\.source\?"
    ):
        load(path, Recipe, ["data.valid.sorce=x"])


def test_a_split_is_two_files_or_one_file_of_pairs(tmp_path):
    for wrong in ({}, {"source": "a"}, {"target": "b"}, {"source": "a", "pairs": "c"}):
        with pytest.raises(ValidationError, match="set source and target, or pairs alone"):
            SplitConfig(**wrong)
    assert str(SplitConfig(source="a", target="b")) == "a and b"
    assert SplitConfig(pairs="c").text("target") == TextColumn(Path("c"), 1)
    path = tmp_path / "recipe.toml"
    path.write_text('base = "nmt/multi30k"\n[data.train]\npairs = "p.tsv"\n[training]\nbatch_sentences = 5\n')
    config = load(path, NMTConfig, ["data.valid.pairs=v.tsv", "data.test.source=s"])
    assert config.data.train == SplitConfig(
        pairs=tmp_path / "p.tsv"
    )  # the base's source and target do not count
    assert config.data.valid == SplitConfig(pairs=Path.cwd() / "v.tsv")
    assert config.data.test.source == Path.cwd() / "s"
    assert (config.training.batch_tokens, config.training.batch_sentences) == (None, 5)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_pairs_in_one_file_give_the_same_corpus_as_two_files(tokenizer, write, tmp_path, pack):
    two = write(b"a b\n\nc\na\n", b"x\ny\nz z\nx\n")
    (tmp_path / "p").write_bytes(pack(b"a b\tx\n\ty\nc\tz z\na\tx\n"))
    one = SplitConfig(pairs=tmp_path / "p")
    options = {"max_length": 5, "max_dropped": 0.5}
    found = [
        build_cache(tokenizer, split, tmp_path / str(i), **options) for i, split in enumerate((two, one))
    ]
    for name, array in found[0].arrays.items():
        assert np.array_equal(array, found[1].arrays[name]), name
    assert found[1].dropped == {"blank": 1, "overlong": 0}
    assert found[1].fingerprints.keys() == {"pairs"}
    with pytest.raises(InputError, match=r"p \(column 1\), line 2: blank"):
        build_cache(tokenizer, one, tmp_path / "strict", max_length=None)
    learned = [
        Tokenizer.learn(TokenizerConfig(kind="words"), s.text("source"), s.text("target")) for s in (two, one)
    ]
    assert learned[0].fingerprint() == learned[1].fingerprint()


# Batches of tensors


def test_collate_pads_and_ends_targets():
    batch = collate(corpus_of([(1, 2), (3, 1), (2, 2)]), np.array([2, 1]))
    assert batch.source.tolist() == [[6, 6, PAD], [5, 5, 5]]
    assert batch.source_mask.tolist() == [[True, True, False], [True, True, True]]
    assert batch.target.tolist() == [[6, 6, EOS], [5, EOS, PAD]]
    assert batch.target_mask.tolist() == [[True, True, True], [True, True, False]]
    assert batch.index.tolist() == [2, 1]
    assert batch.queries == 5
    assert batch.source.dtype == batch.target.dtype == batch.index.dtype == torch.int64


def test_a_batch_moves_as_a_whole():
    batch = collate(corpus_of([(1, 2)]), [0])
    assert batch.to("meta").external is None
    batch = dataclasses.replace(batch, external=torch.zeros(1, 3, 1)).to("meta")
    tensors = [value for value in vars(batch).values() if isinstance(value, torch.Tensor)]
    assert len(tensors) == 6
    assert all(tensor.device.type == "meta" for tensor in tensors)
    assert (batch.queries, batch.examples) == (3, 1)


def test_no_pairs_make_a_batch_without_rows():
    batch = collate(corpus_of([(1, 2)]), np.array([], np.int64))
    assert batch.source.shape[0] == batch.target.shape[0] == batch.queries == 0


# Which pairs make a batch

lengths = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=60)
sizes = st.one_of(
    st.builds(lambda size: {"batch_tokens": size}, st.integers(1, 200)),
    st.builds(lambda size: {"batch_sentences": size}, st.integers(1, 9)),
)


@given(lengths, sizes, st.integers(1, 4), st.integers(1, 3), st.booleans())
def test_every_pair_comes_once_an_epoch_and_processes_share_global_batches(
    lengths, size, world, pool, shuffle
):
    corpus = corpus_of(lengths)
    shards = [
        Batches(corpus, **size, pool=pool, shuffle=shuffle, rank=rank, world=world).epoch_batches(3)
        for rank in range(world)
    ]
    assert sorted(np.concatenate([np.concatenate(shard) for shard in shards])) == list(range(len(lengths)))
    larger = {key: value * world for key, value in size.items()}
    alone = Batches(corpus, **larger, pool=pool, shuffle=shuffle).epoch_batches(3)
    assert {len(shard) for shard in shards} == {len(alone)}
    for step, batch in enumerate(alone):
        assert len(batch) > 0
        for rank in range(world):
            assert shards[rank][step].tolist() == batch[rank::world].tolist()


@given(lengths, st.integers(1, 200), st.integers(1, 3), st.booleans())
def test_padded_tokens_stay_within_the_limit(lengths, limit, pool, shuffle):
    corpus = corpus_of(lengths)
    for batch in Batches(corpus, batch_tokens=limit, pool=pool, shuffle=shuffle).epoch_batches(0):
        tensors = collate(corpus, batch)
        assert len(batch) == 1 or tensors.source.numel() + tensors.target.numel() <= limit


@given(lengths, st.integers(1, 200))
def test_token_batches_take_all_that_fits(lengths, limit):
    corpus = corpus_of(lengths)
    batches = Batches(corpus, batch_tokens=limit, shuffle=False).epoch_batches(0)
    for batch, following in pairwise(batches):
        tensors = collate(corpus, [*batch, following[0]])
        assert tensors.source.numel() + tensors.target.numel() > limit


def test_a_batch_may_be_just_full():
    batches = Batches(corpus_of([(1, 1)] * 4), batch_tokens=6, shuffle=False).epoch_batches(0)
    assert [len(batch) for batch in batches] == [2, 2]  # 1 source token, 1 target token and </s> each


def test_epochs_differ_and_repeat_exactly():
    corpus = corpus_of([(1 + index % 7, 1 + index % 5) for index in range(100)])

    def order(epoch: int, seed: int = 0) -> list[list[int]]:
        batches = Batches(corpus, batch_sentences=4, pool=5, seed=seed).epoch_batches(epoch)
        return [batch.tolist() for batch in batches]

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert order(1) != order(1, seed=1)
    assert sorted(map(sorted, order(1))) != sorted(map(sorted, order(2)))


def test_batches_are_of_like_length_but_come_in_mixed_order():
    random = np.random.default_rng(0)
    corpus = corpus_of([tuple(row) for row in random.integers(1, 50, (1200, 2)).tolist()])
    source = corpus.lengths("source")
    batches = Batches(corpus, batch_sentences=6, pool=100).epoch_batches(0)
    assert [len(batch) for batch in batches] == [6] * 200
    spread = np.mean([np.ptp(source[batch]) for batch in batches])
    assert spread < 2  # a pool of 600 sentences has about 12 of each length
    means = np.array([source[batch].mean() for batch in batches])
    assert abs(np.corrcoef(means, np.arange(200))[0, 1]) < 0.2


def test_a_pool_holds_so_many_batches_and_no_more():
    corpus = corpus_of([(length, 1) for length in range(1, 401)])
    source = corpus.lengths("source")
    narrow, wide = (
        np.mean(
            [
                np.ptp(source[batch])
                for batch in Batches(corpus, batch_sentences=4, pool=pool).epoch_batches(0)
            ]
        )
        for pool in (100, 2)
    )
    assert narrow == 3
    assert wide > 30


def test_evaluation_goes_by_length_in_a_fixed_order():
    corpus = corpus_of([(3, 1), (1, 2), (3, 1), (1, 1), (2, 9)])
    batches = Batches(corpus, batch_sentences=2, shuffle=False, pool=1)
    assert [batch.tolist() for batch in batches.epoch_batches(0)] == [[3, 1], [4, 0], [2]]
    assert [batch.tolist() for batch in batches.epoch_batches(7)] == [[3, 1], [4, 0], [2]]


@pytest.mark.parametrize("size", [{}, {"batch_tokens": 5, "batch_sentences": 5}, {"batch_tokens": 0}])
def test_a_batch_has_one_positive_size(size):
    with pytest.raises(InputError, match="set one of batch_tokens and batch_sentences"):
        Batches(corpus_of([(1, 1)]), **size)
