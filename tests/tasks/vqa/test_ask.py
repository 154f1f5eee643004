"""`latentalign ask`: a picture file of any name in, answers and the places that the model looked at out."""

import dataclasses
import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from latentalign.cli.main import app
from latentalign.data.region_features import write_features
from latentalign.errors import InputError
from latentalign.tasks.vqa.answer import answer_questions
from latentalign.tasks.vqa.ask import ask_pictures, find_extractor, likeliest_places, name_place
from latentalign.tasks.vqa.extract import extract
from latentalign.tasks.vqa.extractors import EXTRACTORS
from support.extractors import tiny_extractor


@pytest.fixture
def photos(tmp_path):
    """Two pictures, neither of which has a number in its name."""
    generator = np.random.default_rng(0)
    for name in ("holiday.jpg", "my cat.png"):
        Image.fromarray(generator.integers(256, size=(40, 60, 3), dtype=np.uint8)).save(tmp_path / name)
    return [tmp_path / "holiday.jpg", tmp_path / "my cat.png"]


@pytest.fixture
def known(monkeypatch, trained):
    """An extractor that fits the trained model, by the name `tiny`."""
    monkeypatch.setitem(EXTRACTORS, "tiny", lambda: tiny_extractor(trained.vocabulary.region_dim))


def run(*arguments):
    return CliRunner().invoke(app, ["ask", *map(str, arguments)])


def test_a_question_about_files_is_answered_as_by_the_commands_one_by_one(trained, photos, known, tmp_path):
    found = ask_pictures(trained, photos, "what color is the circle?", extractor="tiny", top=2)
    folder = tmp_path / "numbered"
    folder.mkdir()
    for number, path in enumerate(photos, start=1):
        (folder / f"{number}{path.suffix}").write_bytes(path.read_bytes())
    write_features(tmp_path / "f", extract(folder, "tiny"), layout="tiny")
    asked = [{"question_id": n, "image_id": n, "question": "what color is the circle?"} for n in (1, 2)]
    (tmp_path / "q.json").write_text(json.dumps({"questions": asked}))
    expected = answer_questions(trained, tmp_path / "q.json", tmp_path / "f")
    assert [reply["answers"][0]["answer"] for reply in found["pictures"]] == list(expected.values())
    for path, reply in zip(photos, found["pictures"], strict=True):
        assert reply["picture"] == str(path)
        assert len(reply["answers"]) == 2
        assert sum(reply["look"]["looks"]["posterior"]) == pytest.approx(1)
        assert len(reply["look"]["boxes"]) == 6


def test_the_extractor_is_found_in_the_card_or_in_the_features_file(trained, tmp_path, known):
    with pytest.raises(InputError, match=r"not known: its features were .*layout scenes\. .*add --extractor"):
        find_extractor(trained)
    card = json.loads(trained.run.card.read_bytes())
    assert card["features"] == "scenes"
    run = dataclasses.replace(trained, run=type(trained.run)(tmp_path))
    write_features(tmp_path / "f", [(1, np.ones((1, 3)), np.float32([[0, 0, 1, 1]]))], layout="timm:resnet18")
    features = trained.config.data.train.model_copy(update={"features": tmp_path / "f"})
    data = trained.config.data.model_copy(update={"train": features})
    old = dataclasses.replace(run, config=trained.config.model_copy(update={"data": data}))
    assert find_extractor(old) == "timm:resnet18"  # a run without a card
    (tmp_path / "card.json").write_text('{"features": "efficientnet-lite0"}')
    assert find_extractor(old) == "efficientnet-lite0"
    (tmp_path / "card.json").unlink()
    (tmp_path / "f").unlink()
    with pytest.raises(InputError, match=r"is not known\. If you know it, add --extractor"):
        find_extractor(old)


def test_the_command_prints_answers_and_places_and_writes_a_page(trained_run, photos, known, tmp_path):
    page = tmp_path / "page.html"
    options = ("--extractor", "tiny", "--top", 3, "--out", page)
    result = run(trained_run, *photos, "what color is the wombat?", *options)
    assert result.exit_code == 0, result.output
    for text in ("holiday.jpg", "it looked: ", "never seen in training: wombat", "written: "):
        assert text in result.output
    written = page.read_text()
    assert "my cat.png: what color is the wombat?" in written
    assert written.count("data:image/jpeg;base64,") == 2
    assert isinstance(run(trained_run, photos[0], "what?", *options).exception, InputError)  # the page exists
    result = run(trained_run, photos[0], "what color is it?", "--extractor", "tiny", "--json")
    assert json.loads(result.stdout).keys() == {"question", "extractor", "predict", "pictures"}


@pytest.mark.parametrize(
    ("name", "question", "message"),
    [
        ("none.jpg", "what is it?", "none.jpg: No such file or directory; expected a picture"),
        ("broken.jpg", "what is it?", "broken.jpg: not a readable picture"),
        ("holiday.jpg", " ?! ", "question: there is no word in it"),
        ("holiday.jpg", "what is it?", "the extractor that this model was trained with is not known"),
    ],
)
def test_bad_requests_are_named(trained_run, photos, name, question, message):
    (photos[0].parent / "broken.jpg").write_bytes(b"text")
    error = run(trained_run, photos[0].parent / name, question).exception
    assert isinstance(error, InputError)
    assert message in str(error)


def test_an_extractor_of_another_size_is_refused(trained, photos, monkeypatch):
    monkeypatch.setitem(EXTRACTORS, "tiny", lambda: tiny_extractor(3))
    with pytest.raises(InputError, match=r"3 numbers a region, the model is for \d+; use the extractor"):
        ask_pictures(trained, photos, "what is it?", extractor="tiny")


def test_places_are_named_in_words():
    assert name_place([0, 0, 0.2, 0.2]) == "top left"
    assert name_place([0.4, 0.4, 0.6, 0.6]) == "centre"
    assert name_place([0.7, 0.4, 0.9, 0.6]) == "right"
    assert name_place([0.4, 0.9, 0.6, 1]) == "bottom"
    assert name_place([0, 0, 1, 1]) == "everywhere"


def test_regions_in_the_same_part_of_a_picture_count_together():
    look = {
        "boxes": [[0, 0, 0.1, 0.1], [0.4, 0.4, 0.6, 0.6], [0.1, 0.1, 0.2, 0.2]],
        "looks": {"posterior": [0.25, 0.375, 0.375]},
    }
    assert likeliest_places(look, 2) == [("top left", 0.625), ("centre", 0.375)]
