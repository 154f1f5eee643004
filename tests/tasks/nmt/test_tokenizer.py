import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from latentalign.errors import CheckpointError, InputError
from latentalign.tasks.nmt.tokenizer import BOS, EOS, PAD, SPECIALS, UNK, Tokenizer, TokenizerConfig

GERMAN = """Der Hund schläft.
Ein Hund (klein, schwarz) läuft über die Straße!
Der kleine Hund mag „das“ Haus nicht.
Zwei Männer und 3,5 Hunde <s> laufen.
"""
ENGLISH = """The dog sleeps.
A dog (small, black) runs across the street!
The small dog doesn't like "the" house.
Two men and 3.5 dogs <s> run.
"""
SEGMENTED = "Der Hu@@ nd schlä@@ ft .\nEin Hu@@ nd lä@@ uft\nHu@@ nd </s>\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("text")
    (folder / "de").write_text(GERMAN, "utf-8")
    (folder / "en").write_text(ENGLISH, "utf-8")
    return folder / "de", folder / "en"


@pytest.fixture(scope="module")
def bpe(files) -> Tokenizer:
    return Tokenizer.learn(TokenizerConfig(vocab_size=400), *files)


@pytest.fixture(scope="module")
def words(files) -> Tokenizer:
    return Tokenizer.learn(TokenizerConfig(kind="words", joint=False), *files)


@pytest.fixture(scope="module")
def segmented(tmp_path_factory) -> Tokenizer:
    path = tmp_path_factory.mktemp("segmented") / "de"
    path.write_text(SEGMENTED, "utf-8")
    return Tokenizer.learn(TokenizerConfig(kind="segmented"), path, path)


def pieces(tokenizer: Tokenizer, line: str) -> list[str]:
    return [tokenizer.target_vocabulary.id_to_token(token) for token in tokenizer.encode_target(line).ids]


def spelling(tokenizer: Tokenizer, line: str) -> list[str]:
    return [word.text for word in tokenizer.find_words(line, "source")]


any_text = st.text(st.characters(exclude_categories=["Cs"]))
odd_text = st.text(st.sampled_from(" \t\u2028\u00a0\x1c▁ĠHund<>/s0x41@.,„“龘🙂é\u0301\0")) | any_text


@given(odd_text)
def test_bpe_loses_nothing_but_runs_of_whitespace(bpe, line):
    encoded = bpe.encode_target(line)
    assert bpe.decode_target(encoded.ids) == " ".join(line.split())
    assert UNK not in encoded.ids
    assert all(token > EOS for token in encoded.ids)


@given(odd_text)
def test_every_piece_points_at_the_word_that_holds_it(bpe, line):
    encoded = bpe.encode_target(line)
    assert encoded.words == sorted(encoded.words)
    spelt = [
        bpe.decode_target(
            [token for token, word in zip(encoded.ids, encoded.words, strict=True) if word == index]
        )
        for index in range(len(line.split()))
    ]
    assert spelt == line.split() == spelling(bpe, line)
    assert len(set(encoded.words)) == len(spelt)
    assert bpe.target_words(encoded.ids) == encoded.words


@given(st.lists(st.integers(EOS + 1, 300), max_size=20))
def test_words_of_any_generated_ids_match_the_decoded_text(bpe, ids):
    text = bpe.decode_target(ids)
    assert len(text.splitlines()) <= 1
    positions = bpe.target_words(ids)
    assert len(positions) == len(ids)
    assert max(positions, default=0) == max(0, len(text.split()) - 1)


def test_punctuation_is_cut_from_words(bpe):
    assert pieces(bpe, "Hund") == [" Hund"]
    assert pieces(bpe, "Hund.") == [" Hund", "."]
    assert bpe.encode_source("Der Hund. (Hund)").words[-1] == 2


def test_specials_spelt_in_text_are_only_text(bpe, words):
    for tokenizer in (bpe, words):
        ids = tokenizer.encode_source("<pad> <s> </s> Hund").ids
        assert not {PAD, BOS, EOS} & set(ids)
    assert words.encode_source("</s> Hund").ids[0] == UNK
    text = "<pad> <s>x</s> <unk> <0x41> Hund"
    assert bpe.decode_target(bpe.encode_target(text).ids) == text


@pytest.mark.parametrize("kind", ["bpe", "words", "segmented"])
def test_specials_come_first_in_both_vocabularies(files, kind):
    tokenizer = Tokenizer.learn(TokenizerConfig(kind=kind, joint=False), *files)
    for vocabulary in (tokenizer.source_vocabulary, tokenizer.target_vocabulary):
        assert [vocabulary.id_to_token(token) for token in range(4)] == SPECIALS
        assert sorted(vocabulary.get_vocab().values()) == list(range(vocabulary.get_vocab_size()))


def test_joint_means_one_vocabulary(files, bpe, words):
    assert bpe.source_size == bpe.target_size
    assert bpe.encode_source("Hund dog") == bpe.encode_target("Hund dog")
    assert words.source_json != words.target_json
    assert words.encode_source("Hund").ids != [UNK]
    assert words.encode_target("Hund").ids == [UNK]
    joint = Tokenizer.learn(TokenizerConfig(kind="words"), *files)
    assert UNK not in joint.encode_target("Hund dog").ids
    apart = Tokenizer.learn(TokenizerConfig(joint=False), *files)
    assert apart.source_vocabulary.token_to_id(" sleeps") is None
    assert apart.target_vocabulary.token_to_id(" sleeps") is not None


def test_words_are_taken_as_they_stand(words):
    encoded = words.encode_source("Der  Hund\u2028schläft. Wal")
    assert encoded.words == [0, 1, 2, 3]
    assert encoded.ids[3] == UNK
    assert UNK not in encoded.ids[:3]
    ids = [BOS, *words.encode_target("The dog whale sleeps.").ids, EOS, PAD]
    assert words.decode_target(ids) == "The dog <unk> sleeps."


def test_vocabulary_keeps_the_most_frequent(tmp_path):
    path = tmp_path / "text"
    path.write_text("b b a a c c c d\n")
    few = Tokenizer.learn(TokenizerConfig(kind="words", vocab_size=6), path, path)
    assert few.source_size == 6
    assert [token == UNK for token in few.encode_source("a b c d").ids] == [False, True, False, True]
    frequent = Tokenizer.learn(TokenizerConfig(kind="words", min_count=4), path, path)
    assert [token == UNK for token in frequent.encode_source("a b c d").ids] == [False, False, False, True]


def test_segmented_pieces_point_at_joined_words(segmented):
    encoded = segmented.encode_source("Der Hu@@ nd wä@@ chst . Hu@@")
    assert encoded.words == [0, 1, 1, 2, 2, 3, 4]
    assert spelling(segmented, "Der Hu@@ nd wä@@ chst . Hu@@") == ["Der", "Hund", "wächst", ".", "Hu"]
    assert encoded.ids[3] == UNK
    assert (
        segmented.decode_target(segmented.encode_target("Ein Hu@@ nd schlä@@ ft .").ids)
        == "Ein Hund schläft ."
    )
    assert EOS not in segmented.encode_source("Hu@@ nd </s>").ids


@given(st.lists(st.sampled_from(["a", "a@@", "@@", "@@@", "b@@b"]), max_size=8))
def test_segmented_words_exist(segmented, parts):
    positions = segmented.encode_source(" ".join(parts)).words
    assert len(positions) == len(parts)
    assert max(positions, default=0) == max(0, len(segmented.find_words(" ".join(parts), "source")) - 1)


@given(odd_text, st.booleans())
def test_a_word_stands_in_the_line_where_its_span_says(bpe, line, lowercase):
    tokenizer = Tokenizer(bpe.kind, lowercase, bpe.source_json, bpe.target_json)
    found = tokenizer.find_words(line, "source")
    assert [line[word.start : word.end] for word in found] == [word.text for word in found] == line.split()
    assert len(found) == max(tokenizer.encode_source(line).words, default=-1) + 1


@given(st.lists(st.sampled_from(["a", "A@@", "@@", "@@@", "b@@b"]), max_size=8))
def test_a_segmented_word_spans_its_pieces(segmented, parts):
    line = "  ".join(parts)
    found = segmented.find_words(line, "source")
    assert len(found) == max(segmented.encode_source(line).words, default=-1) + 1
    assert [part for word in found for part in line[word.start : word.end].split()] == parts
    assert "".join(word.text for word in found) == re.sub("@@( |$)", "", " ".join(parts)).replace(" ", "")


@given(st.lists(st.lists(odd_text, max_size=4), max_size=3))
@pytest.mark.parametrize("name", ["bpe", "words", "segmented"])
def test_arrays_contain_the_ids_of_every_line(request, name, chunks):
    learned = request.getfixturevalue(name)
    tokenizer = Tokenizer(learned.kind, False, learned.source_json, learned.target_json)
    for lines in chunks:  # later chunks use what earlier ones have stored
        for side, expected in (
            ("source", tokenizer.source_ids(lines)),
            ("target", tokenizer.target_ids(lines)),
        ):
            ids, lengths = tokenizer.id_arrays(lines, side)
            assert lengths.tolist() == list(map(len, expected))
            assert ids.tolist() == [token for row in expected for token in row]


def test_text_that_cannot_be_encoded_leaves_no_trace(bpe):
    tokenizer = Tokenizer(bpe.kind, False, bpe.source_json, bpe.target_json)
    with pytest.raises(InputError, match="lone surrogate"):
        tokenizer.id_arrays(["Hund new \ud800"], "source")
    lines = ["new Hund", "x"]
    expected = [token for row in tokenizer.source_ids(lines) for token in row]
    assert tokenizer.id_arrays(lines, "source")[0].tolist() == expected


def test_a_full_table_of_units_is_emptied(bpe, monkeypatch):
    monkeypatch.setattr("latentalign.tasks.nmt.tokenizer.LARGEST_TABLE", 2)
    tokenizer = Tokenizer(bpe.kind, False, bpe.source_json, bpe.target_json)
    for line in ("a b c d", "a e", "f a"):
        assert tokenizer.id_arrays([line], "source")[0].tolist() == tokenizer.source_ids([line])[0]
        assert len(tokenizer._tables["source"]) <= 4


def test_lowercase_lowers_all_text(files):
    tokenizer = Tokenizer.learn(TokenizerConfig(vocab_size=400, lowercase=True), *files)
    assert tokenizer.decode_target(tokenizer.encode_target("Der HUND").ids) == "der hund"
    assert tokenizer.encode_source("HUND") == tokenizer.encode_source("hund")
    assert spelling(tokenizer, "HUND") == ["HUND"]


@pytest.mark.parametrize("name", ["bpe", "words", "segmented"])
def test_batches_and_single_lines_agree(request, name):
    tokenizer = request.getfixturevalue(name)
    lines = GERMAN.split("\n")
    assert tokenizer.encode_source_batch(lines) == [tokenizer.encode_source(line) for line in lines]
    assert tokenizer.encode_target_batch(lines) == [tokenizer.encode_target(line) for line in lines]
    assert tokenizer.source_ids(lines) == [encoded.ids for encoded in tokenizer.encode_source_batch(lines)]
    assert tokenizer.encode_source("").ids == tokenizer.encode_source(" \t").words == []


@pytest.mark.parametrize("name", ["bpe", "words", "segmented"])
def test_a_saved_tokenizer_is_the_same(request, tmp_path, name):
    tokenizer = request.getfixturevalue(name)
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded == tokenizer
    assert loaded.fingerprint() == tokenizer.fingerprint()
    assert loaded.encode_target_batch(ENGLISH.split("\n")) == tokenizer.encode_target_batch(
        ENGLISH.split("\n")
    )
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]


def test_learning_twice_gives_the_same_tokenizer(files, bpe):
    # 70 places for characters that all occur once: a choice among equals must not be left to chance.
    crowd = files[0].with_name("crowd")
    crowd.write_text("".join(chr(0x4E00 + index) for index in range(500)), "utf-8")
    first, second = (Tokenizer.learn(TokenizerConfig(vocab_size=400), crowd, crowd) for _ in range(2))
    assert first == second
    assert first.source_size == 400
    assert first.fingerprint() != bpe.fingerprint()


def _damaged(content: dict, **changes) -> bytes:
    return json.dumps({**content, **changes}).encode()


def test_a_damaged_file_is_a_checkpoint_error_that_names_it(bpe, tmp_path):
    path = tmp_path / "tokenizer.json"
    bpe.save(path)
    raw = path.read_bytes()
    content = json.loads(raw)
    for damaged, expected in [
        (raw[: len(raw) // 2], "not JSON"),
        (b"\xff\xff", "not JSON"),
        (b"[]", "not a tokenizer"),
        (b'{"version": "1.0"}', "not a tokenizer"),
        (_damaged(content, version=99), "version 99"),
        (_damaged(content, source=content["source"][:-1]), "damaged"),
        (_damaged(content, source=None), "damaged"),
        (_damaged(content, lowercase=True), "checksum"),
        (_damaged(content, sha256="0"), "checksum"),
        (json.dumps({key: content[key] for key in ("format", "version")}).encode(), "damaged"),
    ]:
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=expected) as caught:
            Tokenizer.load(path)
        assert str(path) in str(caught.value)
    with pytest.raises(CheckpointError, match="is missing"):
        Tokenizer.load(tmp_path / "absent.json")


def test_a_file_without_words_teaches_nothing(files, tmp_path):
    blank = tmp_path / "blank"
    blank.write_text("\n \n")
    for kind in ("bpe", "words"):
        with pytest.raises(InputError, match=rf"{blank}: there is no text"):
            Tokenizer.learn(TokenizerConfig(kind=kind), files[0], blank)
    with pytest.raises(InputError, match="no such file"):
        Tokenizer.learn(TokenizerConfig(), files[0], tmp_path / "absent")


def test_only_some_lines_are_learnt_from_when_asked(tmp_path):
    path = tmp_path / "text"
    path.write_text("".join(f"w{index}\n" for index in range(10)))
    tokenizer = Tokenizer.learn(TokenizerConfig(kind="words", max_lines=3), path, path)
    known = [index for index in range(10) if tokenizer.encode_source(f"w{index}").ids != [UNK]]
    assert known == [0, 4, 8]


def test_a_vocabulary_too_small_for_bytes_is_refused():
    with pytest.raises(ValidationError, match="at least 300"):
        TokenizerConfig(vocab_size=100)
    assert TokenizerConfig(kind="words", vocab_size=100).vocab_size == 100


def test_lone_surrogates_are_bad_input(bpe):
    with pytest.raises(InputError, match="surrogate"):
        bpe.encode_source_batch(["fine", "x\ud800"])
