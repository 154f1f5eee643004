"""A task that is registered with one line runs through every command; no file of the package knows it."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import toy_task
from latentalign.config import read_recipe
from latentalign.tasks.registry import TASKS, task_of_data, task_of_recipe, task_of_run
from support.client import Client
from toy_task.data import digits_settings, write_digits
from toy_task.task import RECIPE

TESTS = Path(__file__).resolve().parents[1]


def environment() -> dict[str, str]:
    """An environment that makes the task known, as an installed plugin would be."""
    paths = [str(TESTS), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "LATENTALIGN_PLUGINS": "toy_task",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }


def command_line(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "latentalign", *map(str, arguments)]


def latentalign(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `latentalign ARGUMENTS` in a process that knows the task from its environment alone."""
    return subprocess.run(command_line(*arguments), capture_output=True, text=True, env=environment())


def output_of(*arguments: object) -> str:
    """What `latentalign ARGUMENTS` prints; it must succeed."""
    done = latentalign(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    write_digits(folder / "data")
    options = [f"--set={setting}" for setting in digits_settings(folder / "data")]
    result = json.loads(output_of("train", RECIPE, "--out", folder / "run", "--json", *options))
    assert result["steps"] == 8
    return folder / "run"


def test_the_task_is_found_by_name_recipe_and_data():
    assert TASKS["digits"] is task_of_recipe(read_recipe(RECIPE)) is task_of_data("digits")
    assert type(TASKS["digits"]) is toy_task.DigitsTask


@pytest.mark.slow
def test_a_run_names_its_task_and_is_evaluated(run, tmp_path):
    assert task_of_run(run)[0].name == "digits"
    assert json.loads((run / "card.json").read_text())["task"] == "digits"
    found = json.loads(output_of("evaluate", run, "--json", "--details", tmp_path / "details.json"))
    assert 1 < found["ppl"] < 20
    (stored,) = json.loads((run / "evaluation" / "test.json").read_text())["results"]
    assert stored["figures"] == found
    assert stored["identity"]["data"].keys() == {"data.test"}
    assert len(json.loads((tmp_path / "details.json").read_text())["examples"]) == 8


@pytest.mark.slow
def test_a_run_is_diagnosed_and_reported(run, tmp_path):
    found = json.loads(output_of("diagnose", run, "--draws", 2, "--batch", 2, "--json", "--out", tmp_path))
    assert found["bounds"]["elbo_gap"] >= 0
    assert {e["estimator"] for e in found["gradients"]} >= {"marginal", "variational-sample"}
    output_of("report", run, "--out", tmp_path / "report.html")
    assert "four" in (tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_its_experiment_is_reproduced(tmp_path):
    output_of("reproduce", "--task", "digits", "--out", tmp_path / "out")
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [r["row"] for r in results] == ["soft", "variational-sample"]
    assert "| soft |" in (tmp_path / "out" / "tables.md").read_text()
    assert (tmp_path / "out" / "report.html").is_file()


@pytest.mark.slow
def test_a_model_is_served(run):
    command = command_line("serve", run, "--port", 0)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as server:
        try:
            announcement = next(line for line in server.stderr if "open http" in line)
            client = Client(re.search(r"http://[\d.:]+", announcement)[0])
            words = client.found("/api/spell", {"digits": [4, 2]})["words"]
            assert len(words) == 2
            assert client.found("/api/about")["task"] == "spelling digits"
        finally:
            server.send_signal(signal.SIGINT)


@pytest.mark.slow
def test_commands_of_other_tasks_refuse_its_runs(run, tmp_path):
    for command in ("translate", "align --source a --target a", "serve --features f"):
        (tmp_path / "a").write_text("1\n")
        name, *options = command.replace(" a", f" {tmp_path / 'a'}").split(" ")
        done = latentalign(name, run, *options)
        assert done.returncode == 2
        assert "this" in done.stderr
        assert "spelling digits" in done.stderr
