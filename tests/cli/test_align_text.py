"""`latentalign align` without a run: text in, links out, and what it says about bad input."""

import gzip
import json

import pytest

from latentalign.tasks.alignment.schema import AlignerRecord
from support.aligners import demo_text
from support.commands import command

TEXT = [*demo_text()[:40], ("", ""), ("das Haus", ""), *demo_text()[40:60]]


@pytest.fixture
def files(tmp_path):
    for side, name in enumerate(("source", "target")):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in TEXT), encoding="utf-8")
    return tmp_path


def both(folder):
    return ["--source", folder / "source", "--target", folder / "target"]


def align(*arguments, code=0):
    done = command("align", *arguments)
    said = done.stderr.decode()
    assert done.returncode == code, said
    assert "Traceback" not in said
    return done.stdout.decode().split("\n")[:-1], said


@pytest.mark.slow
def test_it_trains_writes_links_and_keeps_the_run(files):
    links, said = align(*both(files), "--save", files / "run")
    assert len(links) == len(TEXT)
    assert links[40] == links[41] == ""
    assert "62 pairs" in said
    assert "expected F1" in said
    (files / "pairs").write_bytes(gzip.compress("".join(f"{a}\t{b}\n" for a, b in TEXT).encode()))
    assert align("--pairs", files / "pairs")[0] == links
    options = ["--format", "json", "--nbest", "2", "--phrases", "3", "-o", files / "out"]
    align(files / "run", *both(files), *options)
    records = [json.loads(line) for line in (files / "out").read_text().splitlines()]
    for record, expected in zip(records, links, strict=True):
        AlignerRecord.model_validate(record)
        assert " ".join(f"{k['source']}-{k['target']}" for k in record["links"]) == expected


def test_a_folder_with_files_is_not_overwritten(files):
    (files / "full").mkdir()
    (files / "full" / "mine").write_text("mine")
    _, said = align(*both(files), "--save", files / "full", code=2)
    assert "full is not empty" in said
    align(*both(files), "--save", files / "full", "--overwrite")
    assert (files / "full" / "mine").read_text() == "mine"


@pytest.mark.parametrize(
    ("text", "lines"), [("", 0), ("\n \n\t\n", 3)], ids=["empty files", "only blank lines"]
)
def test_text_without_words_has_as_many_empty_lines(tmp_path, text, lines):
    for name in ("source", "target"):
        (tmp_path / name).write_text(text)
    found, said = align(*both(tmp_path))
    assert found == [""] * lines
    assert "there is no sentence pair to learn from" in said
    assert f"{lines} pairs, 0 + 0 words: nothing to link" in said
    _, said = align(*both(tmp_path), "--save", tmp_path / "run", code=2)
    assert "there is no sentence pair to learn from" in said
    assert not (tmp_path / "run").exists()


def test_characters_with_marks_are_aligned(tmp_path):
    for name in ("source", "target"):
        (tmp_path / name).write_text("e\u0301a b\nxyz\nabc\n", encoding="utf-8")
    found, _ = align(*both(tmp_path), "--tokenize", "characters", "--format", "json")
    record = json.loads(found[0])
    assert record["source"] == ["e\u0301", "a", "b"]
    assert record["source_spans"] == [[0, 2], [2, 3], [4, 5]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\n", "has 1 lines but"),
        (b"a\0b\n" * 62, "source, line 1: a NUL character"),
        (b"ok\na\xffb\n" * 31, "source, line 2: not UTF-8"),
        (None, "source: no such file"),
    ],
)
def test_bad_files_are_named(files, content, message):
    (files / "source").unlink()
    if content is not None:
        (files / "source").write_bytes(content)
    found, said = align(*both(files), code=2)
    assert found == []
    assert message in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tokenize", "bytes"], "--tokenize must be words or characters"),
        (["--using", "inferred"], "--using must be one of posterior, path"),
        (["--symmetrize", "all"], "--symmetrize must be one of"),
        (["--at-least", "2"], "--at-least must be a probability"),
        (["--threshold", "high"], "--threshold must be a number or auto"),
        (["--reverse", "run"], "an aligner learns both directions"),
        (["--pairs", "p.tsv"], "pass --source and --target with one file each, or --pairs"),
    ],
)
def test_bad_options_are_refused_before_training(files, options, message):
    _, said = align(*both(files), *options, code=2)
    assert message in said
    assert "learned from" not in said


def test_other_commands_say_what_they_work_for(files):
    align(*both(files), "--save", files / "run")
    for words, message in (
        (["translate", files / "run", "--input", files / "source"], "use `latentalign align`"),
        (["diagnose", files / "run"], "an aligner learns by counting"),
        (["convert", files / "run", "--objective", "soft", "--out", files / "other"], "no objective soft"),
    ):
        done = command(*words)
        assert done.returncode == 2
        assert message in done.stderr.decode()
    (files / "run" / "model.safetensors").write_bytes(b"damaged")
    align(files / "run", *both(files), code=4)


@pytest.mark.parametrize("option", ["--nbest", "--phrases"])
def test_what_only_json_can_hold_is_refused_without_it(files, option):
    links, said = align(*both(files), option, "2", code=2)
    assert links == []
    assert f"{option} needs --format json" in said
