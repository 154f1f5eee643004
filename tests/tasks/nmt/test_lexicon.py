"""Lexicons: files and their errors, where entries occur, and which constraints an output satisfies."""

import pytest

from latentalign.errors import InputError
from latentalign.tasks.nmt.constraints import Constraint, find_constraints, satisfied_by
from latentalign.tasks.nmt.lexicon import Entry, plain, read_lexicon
from latentalign.tasks.nmt.tokenizer import Tokenizer, TokenizerConfig

SOURCE = "Der alte Hund bellt .\nNeu York ist neu , (Neu York) !\n"
TARGET = "the old dog barks .\nNew York is new , (New York) !\n"


def learn(tmp_path, **options):
    (tmp_path / "s").write_text(SOURCE, encoding="utf-8")
    (tmp_path / "t").write_text(TARGET, encoding="utf-8")
    config = TokenizerConfig(**{"kind": "words", "joint": False, "vocab_size": 400, **options})
    return Tokenizer.learn(config, tmp_path / "s", tmp_path / "t")


@pytest.fixture
def tokenizer(tmp_path):
    return learn(tmp_path)


def write(tmp_path, text):
    path = tmp_path / "lexicon.tsv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Hund\tdog\nHund\n", "line 2: 1 column; expected source, target"),
        ("Hund\tdog\t1\tx\n", "line 1: 4 columns; expected source, target"),
        ("Hund\tdog\n\n", "line 2: a blank line"),
        (" \tdog\n", "line 1: the source is empty"),
        ("Hund\t \n", "line 1: the target is empty"),
        ("Hund\tdog\theavy\n", "line 1: 'heavy' is no weight"),
        ("Hund\tdog\t0\n", "line 1: '0' is no weight"),
        ("Hund\tdog\t-1\n", "line 1: '-1' is no weight"),
        ("Hund\tdog\tinf\n", "line 1: 'inf' is no weight"),
        ("Hund\tdog\t1e999\n", "line 1: '1e999' is no weight"),
        ("Hund\tdog\tnan\n", "line 1: 'nan' is no weight"),
        ("Hund\tdog\t\n", "line 1: '' is no weight"),
        ("Hund\tdog\t2\nHund\tdog\n", "line 2: line 1 has the same entry with the weight 2, not 1"),
        (b"Hund\tdog\nH\xfcnd\tdog\n", "line 2: not UTF-8"),
        ("", "no entries"),
    ],
)
def test_bad_files_are_refused_with_file_and_line(tokenizer, tmp_path, text, message):
    with pytest.raises(InputError, match=message) as error:
        read_lexicon(write(tmp_path, text), tokenizer)
    assert "lexicon.tsv" in str(error.value)


def test_a_missing_file_is_named(tokenizer, tmp_path):
    with pytest.raises(InputError, match="missing"):
        read_lexicon(tmp_path / "missing.tsv", tokenizer)


def test_targets_that_the_model_cannot_write_are_refused(tokenizer, tmp_path):
    lexicon = read_lexicon(write(tmp_path, "Hund\tdog\nHund\told hound\n"), tokenizer)
    with pytest.raises(InputError, match=r"lexicon\.tsv, line 2: the model cannot write 'old hound'"):
        lexicon.require_producible(tokenizer)


def test_several_targets_are_alternatives_and_repeated_lines_count_once(tokenizer, tmp_path):
    lexicon = read_lexicon(write(tmp_path, "Hund\tdog\nHund\told dog\t0.5\nHund\tdog\n"), tokenizer)
    (place,) = lexicon.find(["Hund"])
    assert [(e.target, e.weight, e.line) for e in place.entries] == [
        (("dog",), 1.0, 1),
        (("old", "dog"), 0.5, 2),
    ]


def test_the_longest_phrase_wins_and_uses_its_words(tokenizer, tmp_path):
    text = "Neu\tnew\nNeu York\tNew York\nYork ist\tYork is\n"
    lexicon = read_lexicon(write(tmp_path, text), tokenizer)
    found = lexicon.find(["Neu", "York", "ist", "Neu", "Neu"])
    assert [(p.start, p.end) for p in found] == [(0, 2), (3, 4), (4, 5)]


def test_punctuation_at_the_edges_of_words_and_case_are_ignored_where_the_tokenizer_ignores_case(tmp_path):
    assert [plain(w, lowercase=False) for w in ("(Hund),", "...", "U-Bahn", "Hund")] == [
        "Hund",
        "...",
        "U-Bahn",
        "Hund",
    ]
    for lowercase, found in ((True, 2), (False, 1)):
        tokenizer = learn(tmp_path, kind="bpe", lowercase=lowercase)
        lexicon = read_lexicon(write(tmp_path, "Hund\tdog\n"), tokenizer)
        lines = ["ein (Hund), ein hund!"]
        (constraints,) = find_constraints(lexicon, tokenizer, lines, tokenizer.encode_source_batch(lines))
        assert [c.start for c in constraints] == [1, 3][:found]


def test_links_between_words_that_the_lexicon_knows(tokenizer, tmp_path):
    lexicon = read_lexicon(write(tmp_path, "Neu York\tNew York\t2\nneu\tnew\nneu\tYork\n"), tokenizer)
    links = lexicon.match(["Neu", "York", "ist", "neu"], ["new", "is", "New", "York"])
    assert links == {(0, 2): 2.0, (0, 3): 2.0, (1, 2): 2.0, (1, 3): 2.0, (3, 0): 1.0, (3, 3): 1.0}


def test_constraints_know_the_pieces_of_their_words_up_to_a_cut(tmp_path):
    tokenizer = learn(tmp_path, kind="bpe", vocab_size=300)
    lexicon = read_lexicon(write(tmp_path, "alte Hund\told dog\nbellt\tbarks\n"), tokenizer)
    line = "der alte Hund bellt"
    encoded = tokenizer.encode_source(line)
    ((phrase, verb),) = find_constraints(lexicon, tokenizer, [line], [encoded])
    assert {encoded.words[t] for t in phrase.pieces} == {1, 2}
    assert len(phrase.pieces) == sum(w in (1, 2) for w in encoded.words)
    assert tokenizer.decode_target(phrase.targets[0]) == "old dog"
    cut = encoded.cut(verb.pieces[0])
    assert [len(c) for c in find_constraints(lexicon, tokenizer, [line], [cut])] == [1]


def constraint(*targets):
    entries = tuple(Entry(("x",), tuple(t.split()), t, 1.0, 1) for t in targets)
    return Constraint(0, 1, (0,), entries, ((4,),) * len(entries))


@pytest.mark.parametrize(
    ("constraints", "output", "expected"),
    [
        ([["dog"]], "the dog", [(1, 2)]),
        ([["dog"]], "the dogs", [None]),
        ([["dog"], ["dog"]], "the dog", [(1, 2), None]),  # one word satisfies one constraint
        ([["dog"], ["dog"]], "dog dog", [(0, 1), (1, 2)]),
        ([["dog", "hound"], ["dog"]], "dog hound", [(1, 2), (0, 1)]),  # the first one moves
        ([["New York"]], "a New York", [(1, 3)]),
        ([["New York"]], "York New", [None]),
        ([], "dog", []),
        ([["dog"]], "", [None]),
    ],
)
def test_as_many_constraints_as_possible_are_satisfied(constraints, output, expected):
    found = satisfied_by([constraint(*targets) for targets in constraints], output.split())
    assert found == expected
