"""The package in examples/plugin, as if it were installed: its names work in the library, recipes and commands."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from latentalign import DISTRIBUTIONS, OBJECTIVES, PREDICTIVES, SCORES, LatentAttention
from latentalign.cli.main import app, main
from latentalign.config import Recipe
from latentalign.data import demo
from latentalign.tasks.nmt.model import ModelConfig, TranslationModel
from latentalign.tasks.registry import TASKS, task_of_recipe
from latentalign.training.objective import ObjectiveConfig
from support.nmt import SIZES

ROOT = Path(__file__).resolve().parents[1]
PLUGIN = ROOT / "examples" / "plugin"
RUN = ROOT / "tests" / "fixtures" / "run-v1"
REGISTRIES = (DISTRIBUTIONS, OBJECTIVES, PREDICTIVES, SCORES, TASKS)


@pytest.fixture(scope="module")
def metadata(tmp_path_factory) -> Path:
    """A folder with the metadata that installing the package would write."""
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    folder = tmp_path_factory.mktemp("site-packages")
    info = folder / f"latentalign_example_plugin-{project['version']}.dist-info"
    info.mkdir()
    header = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(header, encoding="utf-8")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def installed(metadata, monkeypatch):
    """The package is installed for one test; afterwards, registries are as before."""
    for folder in (metadata, PLUGIN):
        monkeypatch.syspath_prepend(str(folder))
    before = [(registry, dict(registry._entries)) for registry in REGISTRIES]
    for registry in REGISTRIES:
        monkeypatch.setattr(registry, "_loaded", False)
    yield
    for module in ("latentalign_example_plugin", "latentalign_example_task"):
        sys.modules.pop(module, None)
    for registry, entries in before:
        registry.clear()
        registry._entries.update(entries)


def choices():
    """A latent choice whose prior and score are the package's."""
    torch.manual_seed(0)
    attention = LatentAttention(4, 5, 6, score="cosine", distribution="taylor", inference=False)
    return attention(3 * torch.randn(2, 3, 4), torch.randn(2, 7, 5))


def test_the_names_are_unknown_without_the_package():
    for registry, name in ((OBJECTIVES, "entropy-marginal"), (SCORES, "cosine"), (PREDICTIVES, "nucleus")):
        assert name not in registry


def test_the_page_shows_the_entry_points_of_the_package():
    package = (PLUGIN / "pyproject.toml").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
    assert re.search(r"\[project.entry-points.*?(?=\n\n\[tool)", package, re.DOTALL)[0] in page


@pytest.mark.usefixtures("installed")
def test_every_declared_entry_is_found_and_comes_from_the_package():
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = {registry.group: registry for registry in REGISTRIES}
    for group, points in project["entry-points"].items():
        for name in points:
            assert name in list(groups[group])
            assert groups[group][name] is not None


@pytest.mark.usefixtures("installed")
def test_the_objective_is_the_marginal_likelihood_with_an_entropy_bonus():
    latent = choices().observe(torch.randint(6, (2, 3)))
    found = OBJECTIVES["entropy-marginal"](bonus=0.5)(latent)
    torch.testing.assert_close(found.value, OBJECTIVES["marginal"]()(latent).value)
    torch.testing.assert_close(found.surrogate - found.value, 0.5 * latent.prior.entropy)
    assert OBJECTIVES["entropy-marginal"].maximises


@pytest.mark.usefixtures("installed")
def test_the_distribution_is_normalised_over_the_members_that_exist():
    mean = choices().prior.mean
    torch.testing.assert_close(mean.sum(-1), torch.ones(2, 3))
    scores = torch.tensor([[2.0, 1.5, 0.0, 9.0]])
    found = DISTRIBUTIONS["taylor"].from_scores(scores, exists=torch.tensor([[True, True, True, False]]))
    torch.testing.assert_close(found.mean, torch.tensor([[5.0, 3.625, 1.0, 0.0]]) / 9.625)


@pytest.mark.usefixtures("installed")
def test_the_predictive_keeps_the_most_probable_members():
    choice = choices()
    torch.testing.assert_close(choice.predict("nucleus:1"), choice.predict("exact"))
    torch.testing.assert_close(choice.predict("nucleus:1e-6"), choice.predict("kmax:1"))
    with pytest.raises(ValueError, match="expected a share above 0 and at most 1, got '2'"):
        choice.predict("nucleus:2")


@pytest.mark.usefixtures("installed")
def test_a_recipe_may_name_the_score_the_objective_and_the_distribution():
    recipe = ModelConfig(attention="cosine", encoder_size=4, decoder_size=6)
    score = TranslationModel(recipe, source_size=5, target_size=5).decoder.score
    assert type(score).__module__ == "latentalign_example_plugin"
    named = ObjectiveConfig(name="entropy-marginal", bonus=0.2, distribution="taylor")
    assert named.build().bonus == 0.2


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_translate_predicts_with_the_package():
    line = (RUN / "text.de").read_text(encoding="utf-8").split("\n")[0] + "\n"

    def translate(how):
        done = CliRunner().invoke(app, ["translate", str(RUN), "--predict", how], input=line)
        assert done.exit_code == 0, done.output
        return done.stdout

    assert translate("nucleus:1") == translate("exact") != ""


@pytest.mark.usefixtures("installed")
def test_a_recipe_may_name_the_task():
    recipe = Recipe("mine", {"task": "words"}, ROOT)
    assert task_of_recipe(recipe).title == "translation of words"
    assert task_of_recipe(recipe).recipe.model_fields["tokenizer"].default.kind == "words"


def test_a_package_that_cannot_be_imported_is_named_without_a_traceback(tmp_path, monkeypatch, capfd):
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n", encoding="utf-8")
    points = "[latentalign.predictives]\nbroken = no_such_module:Broken\n"
    (info / "entry_points.txt").write_text(points, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(PREDICTIVES, "_loaded", False)
    monkeypatch.setattr(sys, "argv", ["latentalign", "translate", str(RUN), "--predict", "broken"])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"der Hund\n")))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert re.search("broken = 'no_such_module:Broken'.* repair or uninstall", capfd.readouterr().err)


@pytest.mark.slow
def test_the_commands_find_the_package_in_new_processes(metadata, tmp_path):
    demo.write(tmp_path / "data", train=100, valid=10, test=10)
    shutil.copy(PLUGIN / "recipe.toml", tmp_path)
    path = os.pathsep.join([str(ROOT / "src"), str(metadata), str(PLUGIN)])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}

    def latentalign(*arguments, text=""):
        command = [sys.executable, "-m", "latentalign", *map(str, arguments)]
        done = subprocess.run(
            command, env=environment, input=text, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    out = tmp_path / "run"
    small = [f"--set={size}" for size in (*SIZES, "training.max_steps=2") if "batch" not in size]
    named = ["--objective", "entropy-marginal"]
    printed = latentalign("train", tmp_path / "recipe.toml", "--out", out, "--json", *named, *small)
    assert json.loads(printed)["steps"] == 2
    assert json.loads((out / "card.json").read_text(encoding="utf-8"))["task"] == "words"
    assert latentalign("translate", out, "--predict", "nucleus:0.9", text="der Hund\n").count("\n") == 1
