"""The official files are read and written exactly; everything else is an error that says where."""

import copy
import gzip
import json
import os
from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentalign.errors import InputError, StorageError
from latentalign.tasks.vqa.accuracy import accuracies
from latentalign.tasks.vqa.questions import (
    Annotation,
    Coverage,
    Question,
    answer_vocabulary,
    half_of,
    match_annotations,
    read_annotations,
    read_questions,
    read_results,
    require_words,
    words,
    write_results,
)

QUESTIONS = {
    "info": {"version": "2.0"},
    "questions": [
        {"question_id": 70, "image_id": 7, "question": "What is it?"},
        {"question_id": 71, "image_id": 7, "question": "Où?", "split": "train"},
    ],
}
ANNOTATIONS = {
    "annotations": [
        {
            "question_id": 71,
            "image_id": 7,
            "question_type": "what",
            "answer_type": "other",
            "multiple_choice_answer": "cat",
            "answers": [
                {"answer_id": 1, "answer": "cat", "answer_confidence": "yes"},
                {"answer": "un café"},
            ],
            "regions": [[0, 0.25, 0.5, 1], [0.1, 0.1, 0.2, 0.2]],
        },
        {
            "question_id": 70,
            "image_id": 7,
            "question_type": "is",
            "answer_type": "yes/no",
            "answers": [{"answer": "yes"}],
        },
    ]
}
RESULTS = [{"question_id": 70, "answer": "yes"}, {"question_id": 71, "answer": "cat"}]
READ = {
    "questions": [Question(70, 7, "What is it?"), Question(71, 7, "Où?")],
    "annotations": [
        Annotation(71, 7, "what", "other", ("cat", "un café"), ((0.0, 0.25, 0.5, 1.0), (0.1, 0.1, 0.2, 0.2))),
        Annotation(70, 7, "is", "yes/no", ("yes",), ()),
    ],
    "results": {70: "yes", 71: "cat"},
}
DOCUMENTS = {"questions": QUESTIONS, "annotations": ANNOTATIONS, "results": RESULTS}
READERS = {"questions": read_questions, "annotations": read_annotations, "results": read_results}


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "file"
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return path

    return write


@pytest.mark.parametrize("kind", READERS)
def test_plain_and_gzip_are_told_apart_by_content(write, kind):
    for text in (json.dumps(DOCUMENTS[kind]), json.dumps(DOCUMENTS[kind], ensure_ascii=False, indent=1)):
        data = text.encode()
        half = len(data) // 2
        in_two = gzip.compress(data[:half]) + gzip.compress(data[half:])
        for content in (data, b"\xef\xbb\xbf" + data, gzip.compress(data), in_two):
            assert READERS[kind](write(content)) == READ[kind]
            assert READERS[kind](str(write(content))) == READ[kind]


def changed(kind, place, key, value):
    """A document with one value replaced, or removed where it is Ellipsis."""
    document = copy.deepcopy(DOCUMENTS[kind])
    entry = (document if kind == "results" else document[kind])[place]
    if value is ...:
        del entry[key]
    else:
        entry[key] = value
    return document


ILL_TYPED = [
    *(
        (kind, key, value)
        for kind, keys in {
            "questions": ("question_id", "image_id"),
            "annotations": ("question_id", "image_id"),
            "results": ("question_id",),
        }.items()
        for key in keys
        for value in (..., "71", 71.0, True, None, -1, 2**63, int("9" * 4000), [71])
    ),
    *(
        (kind, key, value)
        for kind, keys in {
            "questions": ("question",),
            "annotations": ("question_type", "answer_type"),
            "results": ("answer",),
        }.items()
        for key in keys
        for value in (..., 1, None, ["cat"], {"text": "x" * 500}, "half \ud83d")
    ),
    *(("annotations", "answers", value) for value in (..., "yes", None, [], ["yes"], [{}], [{"answer": 1}])),
    ("annotations", "answers", [{"answer": "yes"}, {"answer": "\udc00"}]),
    ("annotations", "answers", {"answer": "yes"}),
]


@pytest.mark.parametrize(("kind", "key", "value"), ILL_TYPED)
def test_a_missing_or_ill_typed_key_is_named_with_its_entry(write, kind, key, value):
    path = write(changed(kind, 1, key, value))
    with pytest.raises(InputError, match=r"expected|is missing") as caught:
        READERS[kind](path)
    message = str(caught.value)
    assert message.startswith(f"{path}, entry 2: ")
    assert repr(key) in message
    assert len(message) < len(str(path)) + 250


@pytest.mark.parametrize(
    "regions",
    [
        "none",
        None,
        [0.5],
        [[0.1, 0.1, 0.2]],
        [[0.1, 0.1, 0.2, 0.2, 0.3]],
        [["0", 0, 1, 1]],
        [[False, 0, 1, True]],
        [[0, 0, 1, float("nan")]],
        [[float("nan"), 0, 1, 1]],
        [[0, 0, 1, float("inf")]],
        [[-0.01, 0, 1, 1]],
        [[0, 0, 1, 1.01]],
        [[0, 0, 1, 10**400]],
        [[0.5, 0, 0.5, 1]],
        [[0, 0.6, 1, 0.5]],
        [[0, 0, 1, 1], [10, 20, 30, 40]],
    ],
)
def test_boxes_that_are_none_are_refused(write, regions):
    path = write(changed("annotations", 0, "regions", regions))
    with pytest.raises(InputError, match=r"entry 1: key 'regions': expected") as caught:
        read_annotations(path)
    assert not isinstance(regions, list) or f"box {len(regions)}" in str(caught.value)


@pytest.mark.parametrize("kind", READERS)
def test_a_question_id_stands_once_in_a_file(write, kind):
    entries = DOCUMENTS[kind] if kind == "results" else DOCUMENTS[kind][kind]
    entries = [*entries, entries[0]]
    path = write(entries if kind == "results" else {kind: entries})
    number = entries[0]["question_id"]
    with pytest.raises(InputError, match=rf"file, entry 3: question_id {number} occurs again, after entry 1"):
        READERS[kind](path)


@pytest.mark.parametrize("kind", READERS)
def test_another_layout_is_said_to_be_one(write, kind):
    for content in (
        {"data": []},
        {kind: {}},
        3,
        "text",
        None,
        [{"a": 1}] * 1000 if kind != "results" else {},
    ):
        with pytest.raises(InputError, match=r"file: expected .*, found ") as caught:
            READERS[kind](write(content))
        assert len(str(caught.value)) < 300
    for entry in (None, 3, "text", [1]):
        with pytest.raises(InputError, match=r"file, entry 1: expected an object"):
            READERS[kind](write([entry] if kind == "results" else {kind: [entry]}))
    assert not READERS[kind](write([] if kind == "results" else {kind: []}))


def test_questions_in_the_place_of_annotations_are_noticed(write):
    with pytest.raises(InputError, match=r'expected an object \{"annotations".*keys .*questions'):
        read_annotations(write(QUESTIONS))


PACKED = gzip.compress(json.dumps(QUESTIONS).encode(), mtime=0)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "line 1, column 1: not JSON"),
        (b'{"questions": [\n  {"question_id": 1,}]}', "line 2, column 21: not JSON"),
        (b'{"questions": []} x', "line 1, column 19: not JSON"),
        (b'{"questions": [', "line 1, column 16: not JSON"),
        (b'{"questions": [\n"\xff"]}', "line 2: not UTF-8 (byte 0xff)"),
        (json.dumps(QUESTIONS).encode("utf-16"), "line 1: not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'{"questions": ' + b"9" * 5000 + b"}", "too many digits"),
        (PACKED[:-1], "gzip data ends early"),
        (PACKED[: len(PACKED) // 2], "gzip data ends early"),
        (PACKED[:2], "gzip data ends early"),
        (PACKED + b"x", "damaged gzip data"),
        (PACKED[:-8] + bytes(8), "damaged gzip data"),
        (PACKED[:10] + b"\xff" * 20, "damaged gzip data"),
        (gzip.compress(b"{", mtime=0), "line 1, column 2: not JSON"),
    ],
)
def test_damaged_files_are_refused_and_the_place_named(write, data, expected):
    path = write(data)
    for read in READERS.values():
        with pytest.raises(InputError) as caught:
            read(path)
        assert str(caught.value).startswith(str(path))
        assert expected in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    for read in READERS.values():
        for path, message in (
            (tmp_path / "absent", "no such file"),
            (tmp_path, "is a directory"),
            ("no\0name", "no such file"),
        ):
            with pytest.raises(InputError, match=message):
                read(path)


@given(
    st.binary(max_size=60)
    | st.recursive(
        st.none() | st.integers() | st.floats() | st.text(max_size=3) | st.sampled_from(["cat", 70, True]),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["questions", "annotations", "question_id", "image_id", "answers", "answer"]),
                inner,
            )
        ),
        max_leaves=12,
    ).map(lambda document: json.dumps(document).encode())
)
def test_no_bytes_raise_anything_but_input_errors(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "fuzzed"
    path.write_bytes(data)
    for read in READERS.values():
        with suppress(InputError):
            assert isinstance(read(path), list | dict)


def test_results_are_written_whole_and_read_back(tmp_path):
    path, answers = tmp_path / "results.json", {3: 'a "b"\n', 1: "Où?", 2: ""}
    write_results(path, answers)
    assert read_results(path) == answers
    assert json.loads(path.read_text())[0] == {"question_id": 3, "answer": 'a "b"\n'}
    with pytest.raises(InputError, match=r"results\.json already exists"):
        write_results(path, {})
    assert read_results(path) == answers
    write_results(path, {}, overwrite=True)
    assert read_results(path) == {}
    assert os.listdir(tmp_path) == ["results.json"]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "results.json"
    write_results(path, {1: "yes"})

    def fail(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(StorageError, match="Input/output error"):
        write_results(path, {1: "no"}, overwrite=True)
    assert os.listdir(tmp_path) == ["results.json"]
    assert read_results(path) == {1: "yes"}
    with pytest.raises(StorageError):
        write_results(tmp_path / "absent" / "results.json", {1: "no"})


def test_pairs_follow_the_questions_whatever_the_order_of_the_annotations():
    assert match_annotations(READ["questions"], READ["annotations"]) == list(
        zip(READ["questions"], reversed(READ["annotations"]), strict=True)
    )


def test_what_does_not_match_is_named():
    questions, annotations = READ["questions"], READ["annotations"]
    with pytest.raises(InputError, match=r"question_id 71 has no annotation \(1 of 2"):
        match_annotations(questions, annotations[1:])
    with pytest.raises(InputError, match=r"question_id 70 has no question \(1 of 2"):
        match_annotations(questions[1:], annotations)
    with pytest.raises(InputError, match=r"question_id 70: .*about image 8, .*about image 7"):
        match_annotations([Question(70, 8, ""), questions[1]], annotations)
    with pytest.raises(InputError, match="question_id 71 has more than one question"):
        match_annotations([*questions, Question(71, 7, "")], annotations)
    with pytest.raises(InputError, match="question_id 71 has more than one annotation"):
        match_annotations(questions, [*annotations, Annotation(71, 7, "", "", ("cat",), ())])


def answered(number, *answers):
    return Annotation(number, 1, "what", "other", answers, ())


def test_the_vocabulary_has_the_most_frequent_answers_and_ties_go_by_text():
    annotations = [
        answered(1, "dog", "dog", "cat", "cat"),
        answered(2, "dog", "Cat", "ant"),
        answered(3, "ant", "cow"),
        answered(4, "cow", "bee"),
    ]  # dog 3, ant, cat and cow 2, Cat and bee 1, of 11
    assert answer_vocabulary(annotations, 1) == (["dog"], Coverage(votes=3 / 11, questions=2 / 4))
    assert answer_vocabulary(annotations, 3) == (["dog", "ant", "cat"], Coverage(7 / 11, 3 / 4))
    assert answer_vocabulary(annotations, 99) == (["dog", "ant", "cat", "cow", "Cat", "bee"], Coverage(1, 1))
    for wrong in ((annotations, 0), ([], 3)):
        with pytest.raises(InputError, match="must be at least 1"):
            answer_vocabulary(*wrong)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What's the man's  T-shirt?", ["what's", "the", "man's", "t", "shirt"]),
        ("Is it 10:30, or 3.5?!", ["is", "it", "10", "30", "or", "3", "5"]),
        ("the 'red' boys' 2nd_car", ["the", "red", "boys", "2nd", "car"]),
        ("It\u2019s cafe\u0301 \u00c9T\u00c9", ["it's", "caf\u00e9", "\u00e9t\u00e9"]),
        (" ''?_- ", []),
        ("", []),
    ],
)
def test_words_are_letters_digits_and_inner_apostrophes(question, expected):
    assert words(question) == expected


def test_halves_are_fixed_by_seed_and_image():
    assert [half_of(image, 0) for image in range(12)] == [1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0]
    assert 400 < sum(half_of(image, 0) for image in range(1000)) < 600
    agreeing = sum(half_of(image, 0) == half_of(image, 1) for image in range(1000))
    assert 400 < agreeing < 600


@pytest.mark.data
@pytest.mark.slow
def test_sixty_thousand_questions_are_read_and_scored(corpora, tmp_path):
    folder = corpora / "vqa2-part"
    if not folder.is_dir():
        pytest.skip("vqa2-part is absent from the research corpora")
    pairs = []
    for split in ("train", "valid", "test"):
        files = (folder / f"{kind}.{split}.json.gz" for kind in ("questions", "annotations"))
        pairs += match_annotations(read_questions(next(files)), read_annotations(next(files)))
    annotations = [annotation for _, annotation in pairs]
    assert len(annotations) == 60_000
    assert all(words(question.question) for question, _ in pairs)
    answers, coverage = answer_vocabulary(annotations, 3000)
    assert len(answers) == 3000
    assert answers[:5] == ["no", "yes", "2", "1", "3"]
    assert coverage.votes == pytest.approx(549_970 / 600_000)
    assert coverage.questions == pytest.approx(59_327 / 60_000)
    most_frequent = {a.question_id: Counter(a.answers).most_common(1)[0][0] for a in annotations}
    write_results(tmp_path / "results.json", most_frequent)
    score = accuracies(read_results(tmp_path / "results.json"), annotations)
    assert score.exact == 1
    assert score.paper == pytest.approx(0.97689, abs=1e-4)
    assert score.official == pytest.approx(0.96760, abs=1e-4)  # as the official script gives
    assert {name: part.questions for name, part in score.by_answer_type.items()} == dict.fromkeys(
        ("number", "other", "yes/no"), 20_000
    )


@pytest.mark.parametrize("question", ["", "  ", "?!", "..."])
def test_a_question_without_a_word_is_refused_wherever_it_is_read(tmp_path, question):
    path = tmp_path / "questions.json"
    path.write_text(json.dumps({"questions": [{"question_id": 3, "image_id": 7, "question": question}]}))
    with pytest.raises(InputError, match=r"entry 1: key 'question': expected at least one word"):
        read_questions(path)
    with pytest.raises(InputError, match="question: there is no word in it"):
        require_words(question)
