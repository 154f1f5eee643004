"""Hints name the next command, and only commands that exist."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from latentalign.cli import hints
from latentalign.cli.main import COMMANDS, app
from latentalign.config import shipped_recipes
from latentalign.data.known import names

HOME = Path("latentalign-data")


@pytest.fixture
def said(capsys):
    """Commands that were named on stderr since the last call."""

    def commands():
        return re.findall(r"`latentalign ([^`]*)`", capsys.readouterr().err)

    return commands


@pytest.mark.parametrize("name", names())
def test_every_corpus_has_a_next_command(name, said):
    hints.suggest_after_data(name, HOME / name, HOME)
    found = said()
    assert found
    for command in found:
        assert command.split()[0] in {module.NAME for module in COMMANDS}
        if command.startswith("train "):
            assert command.split()[1] in shipped_recipes()
    hints.suggest_after_data(name, Path("elsewhere"), HOME)
    assert not said()  # the recipes would not find it


def test_features_lead_to_the_recipe_that_needs_them(said, capsys):
    hints.suggest_after_features(HOME / "daquar" / "features.safetensors", HOME)
    assert said() == ["train vqa/daquar --out run --objective marginal"]
    hints.suggest_after_features(Path("mine.safetensors"), HOME)
    assert "write mine.safetensors into a recipe as `features`" in capsys.readouterr().err


def test_names_with_blanks_are_quoted(said):
    hints.suggest_after_training(Path("my run"))
    hints.suggest_after_evaluation(Path("my run"))
    assert said() == ["evaluate 'my run'", "report 'my run' --out report.html", "serve 'my run'"]


def test_the_command_that_makes_data_names_the_next_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "source"
    (source / "images").mkdir(parents=True)
    (source / "all_qa_pairs.txt").write_text("what is red in the image1 ?\nchair\n")
    (source / "train_images_list.txt").write_text("image1\n")
    (source / "test_images_list.txt").write_text("image2\n")
    result = CliRunner().invoke(app, ["data", "daquar", "--from", "source"])
    assert result.exit_code == 0, result.output
    assert (
        "next: `latentalign features latentalign-data/daquar/images --extractor efficientnet-lite0 "
        "--out latentalign-data/daquar/features.safetensors`" in result.stderr
    )
