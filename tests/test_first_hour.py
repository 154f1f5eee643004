"""The page "The first hour": its commands run at toy size, and its output is there."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from support.commands import command

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "first-hour.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def generator():
    path = ROOT / "docs" / "_generate" / "first_hour.py"
    spec = importlib.util.spec_from_file_location("first_hour", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_step_shows_its_output_and_time(generator):
    steps = generator.blocks(PAGE, "console")
    assert len(steps) == 8
    assert len(re.findall(r"^Time: \d+ s\.$", PAGE, flags=re.M)) == len(steps)
    for block in steps:
        assert len(block.splitlines()) > len(generator.commands(block))


@pytest.mark.slow
def test_the_commands_work_one_after_the_other(generator, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = generator.blocks(PAGE, "toml")[0]
    toy = recipe.replace("epochs = 3", "max_steps = 2").replace("vocab_size = 2000", "vocab_size = 400")
    assert toy.count("max_steps") == 1
    Path("my.toml").write_text(toy, encoding="utf-8")
    for line in (line for block in generator.blocks(PAGE, "console") for line in generator.commands(block)):
        program, *arguments = shlex.split(line)
        if program == "latentalign":
            done = command(*arguments)
            assert done.returncode == 0, (line, done.stderr.decode())
            for path in Path("text").glob("*"):  # the demo language at toy size
                lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
                path.write_text("".join(lines[:40]), encoding="utf-8")
        else:
            assert program == "head"
            assert all(Path(name).is_file() for name in arguments[1:])
    assert Path("report.html").stat().st_size > 10_000
