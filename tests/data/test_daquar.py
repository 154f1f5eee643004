"""DAQUAR's text files become the official layout; images are never shared, and odd lines are named."""

import json
import os
import re

import pytest

from latentalign.data import daquar
from latentalign.errors import InputError, StorageError
from latentalign.tasks.vqa.questions import match_annotations, read_annotations, read_questions

PAIRS = """\
what is on the  right side of the table in the image1 ?
garbage_bin
how many chairs are there in this image1 ?
3
What color is the wall of the image9 ?
red ,white,  dark   blue
what is on the bed image9?
pillow
what is left of the image2 behind the table made of on image2 ?
4, 6
"""


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "all_qa_pairs.txt").write_text(PAIRS)
    (folder / "train_images_list.txt").write_text("image1\nimage2\nimage3")
    (folder / "test_images_list.txt").write_text("image9\r\n")
    return folder


@pytest.fixture
def second_image_held_out(monkeypatch):
    monkeypatch.setattr(daquar, "_is_validation", lambda image_id: image_id == 2)


@pytest.mark.usefixtures("second_image_held_out")
def test_pairs_become_questions_and_annotations(source, tmp_path):
    out = tmp_path / "new" / "out"
    parts = daquar.convert(source, out)
    assert parts == {
        "train": daquar.Part(questions=2, several=0, images=1),
        "valid": daquar.Part(questions=1, several=1, images=1),
        "test": daquar.Part(questions=2, several=1, images=1),
    }
    assert len(os.listdir(out)) == 6
    read = {
        split: [
            (pair[0].question_id, pair[0].image_id, pair[0].question, pair[1].answers)
            for pair in match_annotations(
                read_questions(out / f"questions.{split}.json"),
                read_annotations(out / f"annotations.{split}.json"),
            )
        ]
        for split in parts
    }
    assert read == {
        "train": [
            (1, 1, "what is on the right side of the table?", ("garbage_bin",)),
            (2, 1, "how many chairs are there?", ("3",)),
        ],
        "valid": [(5, 2, "what is left of the image behind the table made of?", ("4, 6",))],
        "test": [
            (3, 9, "What color is the wall?", ("red, white, dark blue",)),
            (4, 9, "what is on the bed?", ("pillow",)),
        ],
    }


@pytest.mark.usefixtures("second_image_held_out")
def test_types_come_from_the_first_words_and_the_answer(source, tmp_path):
    daquar.convert(source, tmp_path)
    entries = [
        entry
        for split in daquar.SPLITS
        for entry in json.loads((tmp_path / f"annotations.{split}.json").read_text())["annotations"]
    ]
    assert {entry["question_id"]: (entry["question_type"], entry["answer_type"]) for entry in entries} == {
        1: ("what is", "other"),
        2: ("how many", "number"),
        3: ("what color", "other"),
        4: ("what is", "other"),
        5: ("what is", "other"),
    }
    assert entries[0] == {
        "question_id": 1,
        "image_id": 1,
        "question_type": "what is",
        "answer_type": "other",
        "multiple_choice_answer": "garbage_bin",
        "answers": [{"answer_id": 1, "answer": "garbage_bin", "answer_confidence": "yes"}],
    }


@pytest.mark.parametrize(
    ("name", "text", "line", "expected"),
    [
        ("all_qa_pairs.txt", PAIRS + "what is this in the image1 ?\n", 11, "has no answer"),
        ("all_qa_pairs.txt", "chair\n" + PAIRS, 1, "expected a question"),
        ("all_qa_pairs.txt", PAIRS + "\n" + PAIRS, 11, "expected a question"),
        ("all_qa_pairs.txt", "what is this in the image1\ntable\n", 1, "expected a question"),
        ("all_qa_pairs.txt", "what is this ?\ntable\n", 1, "expected a question"),
        ("all_qa_pairs.txt", "what is image1 in the room ?\ntable\n", 1, "expected a question"),
        ("all_qa_pairs.txt", "in the image1 ?\ntable\n", 1, "expected a question"),
        ("all_qa_pairs.txt", "?\ntable\n", 1, "expected a question"),
        ("all_qa_pairs.txt", " " * 200_000 + "\ntable\n", 1, "expected a question"),
        ("all_qa_pairs.txt", "what is in the image9999999999 ?\ntable\n", 1, "expected a question"),
        ("all_qa_pairs.txt", PAIRS.replace("3\n", " \n"), 4, "expected an answer"),
        ("all_qa_pairs.txt", PAIRS.replace("red ,", "red , ,"), 6, "expected an answer"),
        ("all_qa_pairs.txt", PAIRS.replace("4, 6", "4, 6,"), 10, "expected an answer"),
        ("all_qa_pairs.txt", PAIRS.replace("image2 ?", "image4 ?"), 9, "image4 is in neither"),
        ("all_qa_pairs.txt", PAIRS.replace("pillow", "pil\0low"), 8, "NUL"),
        ("train_images_list.txt", "image1\nimage2\n\n", 3, "such as image12"),
        ("train_images_list.txt", "image1\npicture2\n", 2, "such as image12"),
        ("train_images_list.txt", "image1\nimage2\nimage1\n", 3, "image1 is listed twice"),
        ("test_images_list.txt", "image9\nimage2\n", 2, "image2 is listed twice"),
        ("test_images_list.txt", "image9.jpg\n", 1, "such as image12"),
    ],
)
def test_a_malformed_line_is_named_and_nothing_written(source, tmp_path, name, text, line, expected):
    (source / name).write_text(text)
    with pytest.raises(InputError, match=re.escape(expected)) as caught:
        daquar.convert(source, tmp_path / "out")
    assert str(caught.value).startswith(f"{source / name}, line {line}: ")
    assert len(str(caught.value)) < len(str(source / name)) + 250
    assert not (tmp_path / "out").exists()


def test_photographs_are_linked_unless_something_has_the_name(source, tmp_path):
    (source / "images").mkdir()
    (source / "images" / "image1.jpg").touch()
    daquar.convert(source, tmp_path / "a")
    assert (tmp_path / "a" / "images").is_symlink()
    assert (tmp_path / "a" / "images" / "image1.jpg").is_file()
    daquar.convert(source, tmp_path / "a", overwrite=True)
    (tmp_path / "b" / "images").mkdir(parents=True)
    daquar.convert(source, tmp_path / "b")
    assert not (tmp_path / "b" / "images").is_symlink()


@pytest.mark.parametrize("name", [daquar.PAIRS, *daquar.LISTS.values()])
def test_a_missing_file_is_named(source, tmp_path, name):
    (source / name).unlink()
    with pytest.raises(InputError, match=f"{name}: no such file"):
        daquar.convert(source, tmp_path / "out")


def test_files_are_replaced_only_when_asked(source, tmp_path):
    out = tmp_path / "out"
    daquar.convert(source, out)
    kept = {name: (out / name).read_bytes() for name in os.listdir(out)}
    (source / "all_qa_pairs.txt").write_text("")
    with pytest.raises(InputError, match=r"questions\.train\.json already exists"):
        daquar.convert(source, out)
    assert kept == {name: (out / name).read_bytes() for name in os.listdir(out)}
    daquar.convert(source, out, overwrite=True)
    assert read_questions(out / "questions.test.json") == []


def test_a_folder_that_cannot_be_written_is_named(source, tmp_path):
    (tmp_path / "out").write_text("a file")
    with pytest.raises(StorageError, match=r"cannot write in .*out"):
        daquar.convert(source, tmp_path / "out")


@pytest.mark.slow
@pytest.mark.data
def test_the_published_files_split_into_disjoint_images(corpora, tmp_path):
    if not (corpora / "daquar").is_dir():
        pytest.skip("daquar is absent from the research corpora")
    parts = daquar.convert(corpora / "daquar", tmp_path)
    assert parts["test"] == daquar.Part(questions=5673, several=597, images=653)
    assert parts["train"] == daquar.Part(questions=6184, several=585, images=719)
    assert parts["valid"] == daquar.Part(questions=611, several=61, images=75)
    images = {}
    for split in daquar.SPLITS:
        pairs = match_annotations(
            read_questions(tmp_path / f"questions.{split}.json"),
            read_annotations(tmp_path / f"annotations.{split}.json"),
        )
        assert len(pairs) == parts[split].questions
        images[split] = {question.image_id for question, _ in pairs}
        assert not any(re.search(r"image\d|\?.", question.question) for question, _ in pairs)
    assert sum(map(len, images.values())) == len(set.union(*images.values())) == 1447
