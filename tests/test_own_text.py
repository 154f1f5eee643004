"""The recipes of docs/your-own-text.md work as they stand, at toy size."""

import re
from pathlib import Path

import pytest

from latentalign.config import load
from latentalign.data import demo
from latentalign.tasks.nmt.recipe import NMTConfig
from latentalign.tasks.nmt.task import TRANSLATION
from latentalign.training.run import Run
from support.commands import command

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "your-own-text.md").read_text(encoding="utf-8")
TOY = [
    *(f"model.{name}=8" for name in ("embedding", "encoder_size", "decoder_size", "attention_size", "head_size")),
    "tokenizer.vocab_size=400", "training.max_steps=4", "training.warm_start_epochs=1", "training.threads=1",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The files that the page describes, beside its recipes."""
    folder = tmp_path_factory.mktemp("own")
    demo.write(folder, train=120, valid=12, test=12)
    for path in folder.glob("*.de"):
        path.rename(path.with_suffix(".fr"))
    small, medium = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (folder / "small.toml").write_text(small)
    (folder / "medium.toml").write_text(medium)
    return folder


def test_the_recipes_are_complete_and_the_inference_network_follows_the_model(folder):
    small, medium = (load(folder / f"{name}.toml", NMTConfig) for name in ("small", "medium"))
    assert small.data == medium.data
    assert (small.inference.layers, small.inference.size) == (1, 128)
    assert (medium.inference.layers, medium.inference.size) == (1, 256)
    assert medium.training.warm_start_objective == "soft"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["small", "medium"])
def test_the_recipes_train(folder, name):
    config = load(folder / f"{name}.toml", NMTConfig, TOY)
    run = Run(folder / f"run-{name}")
    assert TRANSLATION.train(config, run, resume=False, overwrite=False)["steps"] == 4
    assert load(run.config, NMTConfig) == config  # a run does not need the base


@pytest.mark.slow
def test_the_commands_of_the_page_work_in_order(folder, monkeypatch):
    monkeypatch.chdir(folder)
    sets = [f"--set={each}" for each in TOY]
    shown = re.search(r"^```\n(latentalign check-data.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[1]
    for line in shown.splitlines():
        _, *arguments = line.partition("#")[0].split()
        inside = [folder / a if (folder / a).exists() or "." in a or a == "run" else a for a in arguments]
        done = command(*inside, *(sets if arguments[0] in ("train", "check-data") else []))
        assert done.returncode == 0, (line, done.stderr.decode())
    assert (folder / "out.en").read_text().count("\n") == 12
    assert (folder / "links.jsonl").read_text().count("\n") == 12
    assert (folder / "run" / "evaluation" / "test.json").is_file()
