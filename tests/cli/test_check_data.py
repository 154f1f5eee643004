"""`latentalign check-data` as scripts use it: what it prints, and how it ends."""

import json
import sys
from pathlib import Path

import pytest

from latentalign.cli.main import main
from latentalign.data import demo


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    demo.write(folder, train=600, valid=60, test=60)
    return folder


@pytest.fixture
def shifted(files, tmp_path) -> list[str]:
    """Options that replace the training text by one of which a source line was deleted."""
    source, target = ((files / f"train.{end}").read_bytes().splitlines(keepends=True) for end in ("de", "en"))
    (tmp_path / "s").write_bytes(b"".join(source[:200] + source[201:]))
    (tmp_path / "t").write_bytes(b"".join(target[:-1]))
    return [f"--set=data.train.source={tmp_path / 's'}", f"--set=data.train.target={tmp_path / 't'}"]


@pytest.fixture
def run(files, tmp_path, monkeypatch, capsys):
    """A function that runs the command on a recipe of the files: exit code, standard output, standard error."""
    text = "\n".join(
        f'[data.{split}]\nsource = "{files / split}.de"\ntarget = "{files / split}.en"'
        for split in ("train", "valid", "test")
    )
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(text)

    def run(*options: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["latentalign", "check-data", str(recipe), *options])
        monkeypatch.chdir(tmp_path)
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == []  # no run, no cache
        return int(ended.value.code or 0), captured.out, captured.err

    return run


def test_clean_text_ends_with_zero_and_a_table(run):
    code, out, err = run("--strict")
    assert (code, err) == (0, "")
    for word in ("train", "valid", "test", "pairs", "600", "leaked", "shifts"):
        assert word in out


def test_one_json_object_and_nothing_else(run):
    code, out, _ = run("--json")
    result = json.loads(out)
    assert code == 0
    assert list(result["splits"]) == ["train", "valid", "test"]
    assert result["splits"]["train"]["pairs"] == 600
    assert result["warnings"] == []


def test_warnings_end_with_zero_unless_strict(run, shifted):
    code, _, err = run(*shifted)
    assert code == 0
    assert "latentalign: warning: train: lines 1" in err
    assert "on, line n of the source fits line n+1 of the target" in err
    code, out, err = run("--strict", "--json", *shifted)
    assert code == 2
    assert abs(json.loads(out)["splits"]["train"]["shifts"][0]["place"] - 201) < 10
    assert "--strict was given" in err


def test_text_that_cannot_be_read_ends_with_two(run, files, tmp_path):
    assert run("--set=data.test.source=absent")[0] == 2
    code, _, err = run(f"--set=data.test.source={files / 'train.de'}")
    assert code == 2
    assert "has 600 lines" in err
    (tmp_path / "latin").write_bytes("größer\n".encode("latin-1") * 60)
    code, _, err = run(f"--set=data.valid.source={tmp_path / 'latin'}")
    assert code == 2
    assert "line 1: not UTF-8" in err


def test_a_misspelt_key_ends_with_two(run):
    code, _, err = run("--set=data.trian.source=x")
    assert code == 2
    assert "unknown key data.trian" in err


def test_misaligned_pairs_are_listed_and_left_out_of_copies(run, files, tmp_path):
    source, target = ((files / f"test.{end}").read_bytes().splitlines(keepends=True) for end in ("de", "en"))
    (tmp_path / "s").write_bytes(b"".join(source))
    (tmp_path / "t").write_bytes(b"".join(target[:20] + target[40:60] + target[40:]))
    sets = [f"--set=data.test.{key}={tmp_path / key[0]}" for key in ("source", "target")]
    copies = files / "copies"
    code, out, _ = run("--json", "--filtered", str(copies), *sets)
    assert code == 0
    counts = json.loads(out)["splits"]["test"]
    assert 17 <= counts["misaligned"] <= 22
    kept = (copies / "test.lines").read_text().split()
    assert len(kept) == 60 - counts["misaligned"]
    assert (copies / "test.target").read_bytes().count(b"\n") == len(kept)
    code, _, err = run("--filtered", str(copies), *sets)
    assert code == 2
    assert "is not empty" in err


def test_recipes_of_word_alignment_are_checked(run, files, tmp_path, monkeypatch, capsys):
    text = ['task = "alignment"']
    for split in ("train", "test"):  # the test text may be learned from
        text += [f"[data.{split}]", f'source = "{files / "train"}.de"', f'target = "{files / "train"}.en"']
    (tmp_path / "align.toml").write_text("\n".join(text))
    monkeypatch.setattr(sys, "argv", ["latentalign", "check-data", str(tmp_path / "align.toml"), "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    result = json.loads(capsys.readouterr().out)
    assert not ended.value.code
    assert result["splits"]["test"]["leaked"] == 600
    assert result["warnings"] == []
    assert not any("training text" in note for note in result["notes"])
