"""`latentalign features` converts foreign layouts into a features file."""

import json
from pathlib import Path

import numpy as np
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from latentalign.cli import features as command
from latentalign.data.region_features import (
    Features,
)
from latentalign.errors import InputError
from latentalign.tasks.vqa.extractors import EXTRACTORS
from support.extractors import tiny_extractor


@pytest.fixture
def run():
    """A function that runs the command: exit code or error, and standard output."""
    app = typer.Typer()
    app.command(command.NAME)(command.command)

    def run(*arguments) -> tuple[BaseException | None, str]:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        return result.exception, result.stdout

    return run


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "made" / "features.safetensors"


def random_picture(image_id, regions):
    """Random features and ordered boxes."""
    generator = np.random.default_rng(image_id)
    boxes = np.sort(generator.uniform(size=(regions, 2, 2)), axis=1).reshape(regions, 4)
    return image_id, generator.normal(size=(regions, 5)).astype(np.float32), boxes.astype(np.float32)


def test_the_command_converts_a_folder_and_prints_counts(run, tmp_path, path):
    folder = tmp_path / "npz"
    folder.mkdir()
    for image_id, features, boxes in (random_picture(4, 40), random_picture(3, 2)):
        np.savez(folder / f"image{image_id}.npz", x=features, bbox=boxes)
    error, out = run(folder, "--out", path, "--json")
    assert error is None
    assert json.loads(out) == {
        "file": str(path),
        "layout": "npz",
        "images": 2,
        "regions": 38,
        "size": 5,
        "left_out": 4,
    }
    with Features(path) as found:
        assert (found.image_ids.tolist(), found.layout) == ([3, 4], "npz")
    assert isinstance(run(folder, "--out", path)[0], InputError)
    error, out = run(folder, "--out", path, "--overwrite", "--max-regions", "0", "--dtype", "float16")
    assert error is None
    assert "42" in out


def test_the_command_keeps_all_cells_of_a_grid_and_takes_ids(run, tmp_path, path):
    np.save(tmp_path / "grid.npy", np.random.default_rng(0).normal(size=(2, 7, 7, 3)))
    (tmp_path / "ids").write_text("8\n5\n")
    error, out = run(tmp_path / "grid.npy", "--out", path, "--ids", tmp_path / "ids", "--json")
    assert error is None
    assert (json.loads(out)["regions"], json.loads(out)["left_out"]) == (98, 0)
    with Features(path) as found:
        assert found.image_ids.tolist() == [8, 5]
    for options in (("--layout", "nonsense"), ("--extractor", "nonsense"), ("--max-regions", "-1")):
        ids = () if options[0] == "--extractor" else ("--ids", tmp_path / "ids")
        arguments = (tmp_path / "grid.npy", "--out", tmp_path / "o", *ids, *options)
        assert isinstance(run(*arguments)[0], InputError), options
    both = ("--extractor", "efficientnet-lite0", "--ids", tmp_path / "ids")
    assert "--extractor" in str(run(tmp_path, "--out", tmp_path / "o", *both)[0])
    assert not (tmp_path / "o").exists()


def test_the_command_skips_bad_pictures_if_asked_and_lists_them(run, tmp_path, path, monkeypatch):
    monkeypatch.setitem(EXTRACTORS, "tiny", tiny_extractor)
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in (1, 2):
        Image.new("RGB", (20, 20)).save(folder / f"image{number}.png")
    (folder / "image3.png").write_bytes(b"text")
    error, _ = run(folder, "--out", path, "--extractor", "tiny")
    assert isinstance(error, InputError)
    assert "image3.png: not a readable picture" in str(error)
    assert not path.exists()
    error, out = run(folder, "--out", path, "--extractor", "tiny", "--skip-bad", "--json")
    assert error is None
    assert (json.loads(out)["images"], json.loads(out)["skipped"]) == (2, [str(folder / "image3.png")])
    with Features(path) as found:
        assert (found.image_ids.tolist(), found.layout) == ([1, 2], "tiny")
    assert "--skip-bad applies to pictures" in str(run(folder, "--out", tmp_path / "o", "--skip-bad")[0])
