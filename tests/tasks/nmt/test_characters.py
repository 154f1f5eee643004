"""Characters as tokens: marks stay with their base, spaces survive, and both sides may be divided differently."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentalign.errors import InputError
from latentalign.tasks.nmt.schemes import Characters, TokenizerConfig
from latentalign.tasks.nmt.tokenizer import UNK, Tokenizer

SCHEME = Characters(lowercase=False)


@pytest.mark.parametrize(
    ("line", "characters"),
    [
        ("abc", ["a", "b", "c"]),
        ("e\u0301te\u0301", ["e\u0301", "t", "e\u0301"]),  # accents as marks of their own
        ("t\u0361\u0283", ["t\u0361", "\u0283"]),
        (" a  b ", ["a", "\u2581", "b"]),
        (
            "\u0915\u094d\u0930\u093e",
            ["\u0915\u094d", "\u0930", "\u093e"],
        ),  # virama joins, a vowel sign does not
        ("\u0301a", ["\u0301", "a"]),
        ("a \u0301", ["a", "\u2581", "\u0301"]),
        ("", []),
    ],
)
def test_marks_stay_with_their_base_character(line, characters):
    assert SCHEME.split(line) == characters


@given(st.text(max_size=20))
def test_characters_cover_the_line_and_join_to_it_again(line):
    found = SCHEME.find_words(line)
    for word, following in itertools.pairwise(found):
        assert word.end == following.start
    for word in found:
        assert word.text == "\u2581" or line[word.start : word.end] == word.text
    if "\u2581" not in line:
        assert SCHEME.join(SCHEME.split(line)) == " ".join(line.split())


@pytest.fixture
def tokenizer(tmp_path):
    (tmp_path / "letters").write_text("cat\nact\n", encoding="utf-8")
    (tmp_path / "sounds").write_text("k æ tʃ\næ k t\n", encoding="utf-8")
    config = TokenizerConfig(kind="characters", target_kind="words", joint=False)
    return Tokenizer.learn(config, tmp_path / "letters", tmp_path / "sounds")


def test_each_side_has_its_own_kind_and_is_restored_from_its_file(tokenizer, tmp_path):
    assert len(tokenizer.encode_source("cat").ids) == 3
    assert len(tokenizer.encode_target("k tʃ").ids) == 2
    assert tokenizer.decode_target(tokenizer.encode_target("k tʃ").ids) == "k tʃ"
    assert tokenizer.encode_source("xc").ids[0] == UNK
    tokenizer.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert again.fingerprint() == tokenizer.fingerprint()
    assert again.encode_target("tʃ").ids == tokenizer.encode_target("tʃ").ids
    assert [len(words) for words in again.find_pair_words("cat", "k æ tʃ")] == [3, 3]


def test_fast_encoding_agrees_with_encoding_line_by_line(tokenizer):
    lines = ["cat", "tac a", ""]
    ids, lengths = tokenizer.id_arrays(lines, "source")
    assert ids.tolist() == [token for line in lines for token in tokenizer.encode_source(line).ids]
    assert lengths.tolist() == [3, 5, 0]


def test_a_joint_vocabulary_has_one_kind():
    with pytest.raises(ValueError, match="joint = false"):
        TokenizerConfig(kind="characters", target_kind="words")


def test_bpe_on_the_target_alone_needs_room_for_bytes_too():
    with pytest.raises(ValueError, match="at least 300"):
        TokenizerConfig(kind="characters", target_kind="bpe", joint=False, vocab_size=100)


def test_lone_surrogates_are_refused(tokenizer):
    with pytest.raises(InputError, match="surrogate"):
        tokenizer.encode_source("\ud800")
