"""`latentalign recipe`: what is shipped, and what a recipe means in full."""

import json
import tomllib
from pathlib import Path

import pytest

from latentalign import config
from latentalign.config import load, read_recipe, shipped_description, shipped_recipes
from latentalign.recipe_reference import recipe_tables
from latentalign.recipe_text import recipe_text
from latentalign.tasks.nmt.recipe import NMTConfig
from latentalign.tasks.registry import task_of_recipe
from latentalign.tasks.vqa.recipe import VQAConfig
from support.commands import command

OWN = """
task = "nmt"
[data.train]
source = "train.fr"
target = "train.en"
[data.valid]
source = "valid.fr"
target = "valid.en"
"""


def write(folder: Path, text: str = "") -> Path:
    path = folder / "own.toml"
    path.write_text(OWN + text)
    return path


@pytest.mark.parametrize("name", shipped_recipes())
@pytest.mark.parametrize("explain", [False, True])
def test_a_shown_recipe_has_every_key_and_loads_back_equal(name, explain, tmp_path):
    model = task_of_recipe(read_recipe(name)).recipe
    loaded = load(name, model)
    text = recipe_text(loaded, explain=explain)
    path = tmp_path / "shown.toml"
    path.write_text(text)
    assert load(path, model) == loaded
    lines = [line.removeprefix("# ") for line in text.split("\n")]
    for table in recipe_tables(model):
        if f"# [{table.name}] is not set" not in text:
            for key in table.keys:
                assert any(line.startswith((f"{key.name} = ", f"{key.name} is not set")) for line in lines), (
                    key
                )
    meaning = recipe_tables(model)[0].keys[0].meaning
    assert (meaning.split(".")[0] in text) is explain


def test_options_of_an_objective_are_shown_with_their_defaults(tmp_path):
    text = recipe_text(load(write(tmp_path), NMTConfig, ["objective.n=5"]))
    assert "\nn = 5\n" in text
    assert '\n# baseline = "soft"  # default\n' in text


def test_every_shipped_recipe_has_a_description():
    for name in shipped_recipes():
        assert 20 < len(shipped_description(name)) < 100
        assert shipped_description(name).endswith(".")


def test_recipe_list_names_what_is_shipped():
    found = json.loads(command("recipe", "list", "--json").stdout)["recipes"]
    assert [row["name"] for row in found] == shipped_recipes()
    assert {row["task"] for row in found} == {"alignment", "nmt", "vqa"}
    lines = command("recipe", "list").stdout.decode().splitlines()
    assert lines[0].split("  ")[0] == shipped_recipes()[0]


def test_recipe_show_prints_the_effective_recipe(tmp_path):
    path = write(tmp_path, "[model]\nencoder_size = 128\nencoder_layers = 1\n")
    done = command("recipe", "show", path, "--set", "training.epochs=3")
    shown = tomllib.loads(done.stdout.decode())
    assert shown["training"]["epochs"] == 3
    assert (shown["inference"]["layers"], shown["inference"]["size"]) == (1, 128)
    wrong = command("recipe", "show", "nmt/dem")
    assert wrong.returncode == 2
    assert b"did you mean nmt/demo?" in wrong.stderr


def test_the_inference_network_follows_the_model_unless_it_is_set(tmp_path):
    path = write(tmp_path, "[model]\nencoder_size = 128\nencoder_layers = 1\n")
    assert (load(path, NMTConfig).inference.layers, load(path, NMTConfig).inference.size) == (1, 128)
    own = load(path, NMTConfig, ["inference.size=64", "inference.layers=3"]).inference
    assert (own.layers, own.size) == (3, 64)
    paper = load(write(tmp_path), NMTConfig).inference
    assert (paper.layers, paper.size) == (2, 512)


def test_the_inference_network_of_question_answering_follows_the_prior():
    loaded = load("vqa/scenes", VQAConfig, ["model.attention_size=77"])
    assert loaded.inference.size == 128  # as the recipe says
    table = read_recipe("vqa/scenes").table
    del table["inference"]["size"]
    recipe = config.Recipe("scenes", table, Path.cwd())
    assert recipe.build(VQAConfig, ["model.attention_size=77"]).inference.size == 77


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--objective", "variatonal-sample"),
            "--objective: unknown objective 'variatonal-sample'; did you mean ",
        ),
        (
            ("--set", "objective.name=sotf"),
            "--set: objective.name: unknown objective 'sotf'; did you mean 'soft'?",
        ),
        (("--set", "objective.m=3"), "--set: objective: variational-sample has no option 'm'"),
        (
            ("--set", "objective.kl_weight=low"),
            "--set: objective: variational-sample: kl_weight must be a number, got 'low'",
        ),
        (("--set", "tokenizer.vocab_size=100"), "--set: tokenizer: vocab_size must be at least 300"),
        (("--set", "trainig.epochs=3"), "--set: unknown key trainig; did you mean training?"),
    ],
)
def test_a_typo_on_the_command_line_blames_the_flag(arguments, message, tmp_path):
    done = command("train", write(tmp_path), "--out", tmp_path / "run", *arguments)
    assert done.returncode == 2
    assert done.stderr.decode().startswith(f"latentalign: {message}")
    assert not (tmp_path / "run").exists()
