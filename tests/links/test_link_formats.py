"""Every dialect of word-alignment files is read alike; everything else is an error that says where."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentalign.errors import InputError
from latentalign.links.formats import read_gold, read_links, read_predicted
from latentalign.links.scores import score
from latentalign.links.sets import Gold, format_pharaoh, lacks_zero, stray_links

SENTENCES = [
    Gold(frozenset({(0, 0), (1, 2)}), frozenset({(2, 1)})),
    Gold(frozenset()),
    Gold(frozenset({(11, 10)})),
]


@pytest.fixture
def write(tmp_path):
    def write(data: bytes):
        path = tmp_path / "links"
        path.write_bytes(data)
        return path

    return write


@pytest.mark.parametrize(
    ("data", "one_based"),
    [
        (b"0-0 1-2 2?1\n\n11-10\n", None),
        (b"0-0 1-2 2p1\n\n11-10", None),  # no line end at the end
        (b"1-1 2-3 3?2\n\n12-11\n", True),
        (b"0-0 1-2 2?1 0-0 0?0\n\n11-10\n", False),  # repeated links; sure wins
        (b"7 0-0 1-2 2?1\n8\n12 11-10\n", None),  # sentence numbers
        (b"0\t0-0 1-2  2p1 \n\n2\t11-10\n", None),
        (b"\xef\xbb\xbf0-0 1-2 2?1\r\n\r\n11-10\r\n", None),  # byte order mark and CRLF
        (b"1 1 1\n1 2 3 S\n1 3 2 P\n3 12 11 S 0.5\n", None),  # NAACL
        (b"0003 12 11 0.5\n0001 1 1 S 1\n\n1 2 3 S\n1 3 2 P .25\n1 1 1 P\n", None),
        (b"1\t1\t1\n1 2 3 S\r\n1 3 2 P\n3 12 11 S 0.5\n", True),
    ],
)
def test_all_dialects_say_the_same(write, data, one_based):
    assert read_gold(write(data), one_based=one_based) == SENTENCES


def test_empty_lines_are_sentences_without_links(write):
    assert read_links(write(b"\n0-1\n\n \n")) == [frozenset(), frozenset({(0, 1)}), frozenset(), frozenset()]
    assert read_links(write(b"")) == []


def test_links_without_a_zero_count_from_zero_unless_told(write):
    path = write(b"1-1 2-2\n")
    assert read_gold(path) == [Gold(frozenset({(1, 1), (2, 2)}))]
    assert lacks_zero(read_gold(path))
    assert read_gold(path, one_based=True) == [Gold(frozenset({(0, 0), (1, 1)}))]
    assert read_links(path, one_based=True) == [frozenset({(0, 0), (1, 1)})]


def test_naacl_sentences_without_links_are_filled(write):
    path = write(b"2 1 1\n")
    assert [len(gold.sure) for gold in read_gold(path)] == [0, 1]
    assert [len(gold.sure) for gold in read_gold(path, sentences=4)] == [0, 1, 0, 0]
    with pytest.raises(InputError, match=r":1: '2': expected a sentence number of at most 1"):
        read_gold(path, sentences=1)


def test_pharaoh_lines_must_be_as_many_as_sentences(write):
    assert len(read_gold(write(b"0-0\n\n"), sentences=2)) == 2
    with pytest.raises(InputError, match="2 lines of links for 3 sentences"):
        read_gold(write(b"0-0\n\n"), sentences=3)


@pytest.mark.parametrize(
    ("data", "where", "token"),
    [
        (b"0-0\n0-0 1- 2-2\n", 2, "1-"),
        (b"-1-0\n", 1, "-1-0"),
        (b"0--1\n", 1, "0--1"),
        (b"0-0\n\n1000000-0\n", 3, "1000000-0"),
        (b"0-" + b"9" * 5000, 1, "999..."),
        ("0-٣".encode(), 1, "٣"),
        ("0-0\u20281-1\n".encode(), 1, "u2028"),
        ("0-0\u00a01-1\n".encode(), 1, "xa0"),
        (b"0-0 1-1/1\n", 1, "1-1/1"),
        (b"0-0 1-1-1\n", 1, "1-1-1"),
        (b"0-0\n0:1\n", 2, "0:1"),
        (b"0-0\n3 1-1\n", 2, "'3'"),  # a number where the first line has none
        (b"1 0-0\n1-1\n", 2, "1-1"),  # none where the first line has one
        (b"1 0-0\n3 0-0\n2 0-0\n", 3, "'2'"),  # shuffled
        (b"1 0-0\n1 0-0\n", 2, "'1'"),
        (b"9" * 5000 + b" 0-0\n", 1, "999..."),
        (b"0-0\n\xff\n", 2, "UTF-8"),
        (b"1 2\n", 1, "1 2"),
        (b"1 1 1\n1 1 x\n", 2, "'x'"),
        (b"1 1 x\n", 1, "'x'"),
        (b"1" * 19 + b" 0-0\n", 1, "1111"),
        (b"1 1 1\n1 0 1\n", 2, "'0'"),  # NAACL counts from 1
        (b"1 1 1\n0 1 1\n", 2, "'0'"),
        (b"1 1 1\n1 1 1 Q\n", 2, "'Q'"),
        (b"1 1 1\n1 1 1 S high\n", 2, "'high'"),
        (b"1 1 1\n1 1 1 S 1 1\n", 2, "'1'"),
        (b"1 1 1\n1 1 1 S nan\n", 2, "'nan'"),
        (b"1 1 1\n1 1-1\n", 2, "'1-1'"),
        (b"1 1 1\n9999999 1 1\n", 2, "9999999"),
    ],
)
def test_errors_name_file_line_token_and_what_was_expected(write, data, where, token):
    path = write(data)
    with pytest.raises(InputError, match="expected") as caught:
        read_gold(path)
    message = str(caught.value)
    assert message.startswith(f"{path}:{where}: ")
    assert token in message.removeprefix(str(path))
    assert len(message) < len(str(path)) + 200


def test_a_zero_in_links_said_to_count_from_one_is_refused(write):
    with pytest.raises(InputError, match=r":2: '1-0': expected numbers from 1"):
        read_gold(write(b"1-1\n1-0\n"), one_based=True)


@pytest.mark.parametrize(
    ("data", "token"), [(b"0-0 1?1\n", "1?1"), (b"0-0 1p1\n", "1p1"), (b"1 2 3 S\n", "2")]
)
def test_predictions_are_neither_marked_nor_naacl(write, data, token):
    with pytest.raises(InputError, match="such as 3-4") as caught:
        read_links(write(data))
    assert repr(token) in str(caught.value)


def test_zeros_in_front_of_a_number_do_not_make_it_large(write):
    assert read_links(write(b"0000000001-02\n")) == [frozenset({(1, 2)})]
    assert read_links(write(b"1" * 18 + b" 0-0\n")) == [frozenset({(0, 0)})]


def test_naacl_sentences_may_have_possible_links_alone(write):
    assert read_gold(write(b"1 1 1 P\n")) == [Gold(frozenset(), frozenset({(0, 0)}))]


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match="is a directory, expected a file of word links"):
        read_links(tmp_path)
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(InputError, match=path.name):
            read_gold(path)


@given(
    st.lists(st.frozensets(st.tuples(st.integers(0, 999_999), st.integers(0, 999)), max_size=5), max_size=5)
)
def test_what_is_formatted_is_read_back(tmp_path_factory, sentences):
    path = tmp_path_factory.getbasetemp() / "formatted"
    path.write_text("".join(format_pharaoh(links) + "\n" for links in sentences))
    assert read_links(path) == sentences
    assert read_gold(path) == [Gold(links) for links in sentences]


NEAR_MISSES = st.text(alphabet="0123-?pSP. \t\r\n٣\u2028", max_size=30).map(str.encode)


@given(
    st.binary(max_size=60) | NEAR_MISSES, st.sampled_from([None, True, False]), st.none() | st.integers(0, 3)
)
def test_no_bytes_raise_anything_but_input_errors(tmp_path_factory, data, one_based, sentences):
    path = tmp_path_factory.getbasetemp() / "fuzzed"
    path.write_bytes(data)
    for read in (
        lambda: read_gold(path, one_based=one_based, sentences=sentences),
        lambda: read_links(path, one_based=bool(one_based)),
    ):
        with suppress(InputError):
            assert isinstance(read(), list)


@pytest.mark.data
def test_europarl_gold_fits_its_texts(corpora):
    folder = corpora / "gold-de-en"
    gold = read_gold(folder / "test.align", sentences=100)
    lengths = [
        [len(line.split()) for line in (folder / name).read_bytes().splitlines()]
        for name in ("test.de", "test.en")
    ]
    assert stray_links(gold, *lengths) == [(63, 12, 16)]  # a slip of the annotator, 12-12
    assert sum(len(sentence.sure) for sentence in gold) == 1233
    assert not lacks_zero(gold)
    predicted = read_links(folder / "test.align")
    assert score(gold, predicted, bootstrap=10).aer == 0
    assert 0.5 < score(gold, [*predicted[1:], predicted[0]], bootstrap=0).aer < 1
    assert len(stray_links(gold, *reversed(lengths))) > 20


def test_links_may_have_probabilities(write):
    path = write(b"0-0:0.5 1-2:1\n\n11-10:1e-3\n")
    found = read_predicted(path)
    assert found.probabilities == [{(0, 0): 0.5, (1, 2): 1.0}, {}, {(11, 10): 0.001}]
    assert found.links == [frozenset({(0, 0), (1, 2)}), frozenset(), frozenset({(11, 10)})]
    assert read_links(path) == found.links
    assert found.weights == found.probabilities
    assert found.candidates is None


def test_links_without_probabilities_are_certain(write):
    found = read_predicted(write(b"0-0 1-2\n\n"))
    assert found.probabilities is None
    assert found.weights == [{(0, 0): 1.0, (1, 2): 1.0}, {}]


def test_json_lines_are_links(write):
    link = b'{"source": 1, "target": 0, "probability": 1.0000001, "more": 3}'
    found = read_predicted(write(b'{"line": 0, "links": [' + link + b']}\n{"links": []}\n'))
    assert found.probabilities == [{(1, 0): 1.0}, {}]
    assert found.candidates is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"0-0:0.5 1-1\n", r":1: '1-1': expected a probability for all links or none, as in '0-0:0.5'"),
        (b"0-0\n1-1:0.5\n", r":2: '1-1:0.5': expected a probability for all links or none"),
        (b"0-0:1.01\n", r":1: '0-0:1.01': expected a probability from 0 to 1"),
        (b"0-0:nan\n", r":1: '0-0:nan': expected a probability"),
        (b"0-0:\n", r":1: '0-0:': expected a probability"),
        (b"0-0:-0.5\n", r":1: '0-0:-0.5': expected a probability"),
        (b"0-0:0.5 0-0:0.4\n", r":1: '0-0:0.4': expected every link once"),
        (b'{"links": []}\n\n', r':2: .*expected a JSON object with the key "links"'),
        (b'{"links": 3}\n', r':1: .*expected a JSON object with the key "links"'),
        (b'{"links": [{"source": 1, "target": 0}]}\n', ":1: .*expected a link with source, target and prob"),
        (b'{"links": [{"source": true, "target": 0, "probability": 1}]}\n', ":1: .*expected a link with"),
        (b'{"links": [[0, 0]]}\n', ":1: .*expected a link with"),
        (b'{"links": [], "posteriors": [[2]]}\n', ":1: .*expected `posteriors` as rows"),
    ],
)
def test_damaged_probabilities_are_named(write, data, message):
    with pytest.raises(InputError, match=message):
        read_predicted(write(data))


def test_gold_links_have_no_probabilities(write):
    with pytest.raises(InputError, match=r":1: '0-0:0.5'"):
        read_gold(write(b"0-0:0.5\n"))
