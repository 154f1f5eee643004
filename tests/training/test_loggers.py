"""Users attach their own loggers; a failing one is reported and never ends a training run."""

import json
import signal
import sys
import types
from pathlib import Path

import pytest

from latentalign.errors import InputError, Interrupted
from latentalign.training import loggers
from latentalign.training.loggers import find_logger
from latentalign.training.loop import Trainer
from latentalign.training.run import Run

WARM = ("training.warm_start_objective=soft", "training.warm_start_epochs=1")


class Recorder:
    """A logger that remembers what it receives."""

    def __init__(self, recipe, folder):
        self.recipe, self.folder, self.records, self.ends = recipe, folder, [], []

    def log(self, record):
        self.records.append(record)

    def end(self, summary):
        self.ends.append(summary)


class Collector(list):
    """Makes recorders and keeps them."""

    def __call__(self, recipe, folder):
        self.append(Recorder(recipe, folder))
        return self[-1]


@pytest.fixture
def module(monkeypatch):
    """A module that a recipe can name."""
    made = types.ModuleType("my_loggers")
    made.collect, made.number = Collector(), 3
    monkeypatch.setitem(sys.modules, "my_loggers", made)
    return made


def test_a_logger_of_the_recipe_gets_recipe_records_and_summary(digits, tmp_path, module):
    result = digits.train(
        tmp_path / "run", *WARM, "training.log_steps=2", "training.logger=my_loggers:collect"
    )
    (logger,) = module.collect
    assert logger.recipe["objective"]["name"] == "variational-sample"
    assert logger.recipe["training"]["epochs"] == 2
    assert logger.folder == tmp_path / "run"
    written = [*Run(tmp_path / "run" / "warm-start").history(), *Run(tmp_path / "run").history()]
    assert json.loads(json.dumps(logger.records)) == written
    assert {r["kind"] for r in logger.records} == {"training", "validation"}
    assert logger.ends == [result]


def test_a_logger_can_be_passed_in_python(digits, tmp_path):
    collect = Collector()
    digits.train(tmp_path / "run", logger=collect)
    assert len(collect[0].records) == 2


def test_an_interrupted_run_ends_its_logger_without_a_summary(digits, tmp_path, monkeypatch):
    def stop(self, group):
        raise Interrupted(signal.SIGTERM)

    monkeypatch.setattr(Trainer, "update", stop)
    collect = Collector()
    with pytest.raises(Interrupted):
        digits.train(tmp_path / "run", logger=collect)
    assert collect[0].ends == [None]


def test_a_failing_logger_is_reported_once_and_training_goes_on(digits, tmp_path, capsys):
    class Failing(Recorder):
        def log(self, record):
            raise ConnectionError("no network")

    result = digits.train(tmp_path / "run", "training.log_steps=1", logger=Failing)
    assert result["steps"] == 8
    said = capsys.readouterr().err
    assert said.count("no network") == 1
    assert "Failing failed and training continues: ConnectionError: no network" in said
    assert "failed 10 times; metrics.jsonl is complete" in said
    assert len(Run(tmp_path / "run").history()) == 10


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my_loggers", r'expected "package.module:function"'),
        ("no_such_package.loggers:make", "no_such_package.loggers cannot be imported"),
        ("my_loggers:make", "my_loggers has no make"),
        ("my_loggers:number", "cannot be called"),
    ],
)
def test_a_logger_that_does_not_exist_is_refused_before_anything_is_made(
    name, message, digits, tmp_path, module
):
    with pytest.raises(InputError, match=message):
        digits.train(tmp_path / "run", f"training.logger={name}")
    assert not (tmp_path / "run").exists()


def test_a_logger_that_cannot_start_refuses_the_run(digits, tmp_path):
    def broken(recipe, folder):
        raise PermissionError("log in first")

    with pytest.raises(InputError, match="the logger cannot be started: PermissionError: log in first"):
        digits.train(tmp_path / "run", logger=broken)
    assert not (tmp_path / "run").exists()


def test_tensorboard_gets_every_figure(digits, tmp_path, monkeypatch):
    written = []

    class SummaryWriter:
        def __init__(self, folder):
            self.folder = folder

        def add_scalar(self, name, value, step):
            written.append((Path(self.folder), name, step))

        def flush(self):
            pass

        def close(self):
            written.append("closed")

    fake = types.ModuleType("torch.utils.tensorboard")
    fake.SummaryWriter = SummaryWriter
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    monkeypatch.setattr(loggers, "require_tensorboard", lambda: None)
    monkeypatch.setattr("latentalign.training.trainable.require_tensorboard", lambda: None)
    digits.train(tmp_path / "run", "training.tensorboard=true", "training.log_steps=4")
    folder = tmp_path / "run" / "tensorboard"
    assert (folder, "training/bound", 4) in written
    assert (folder, "validation/ppl", 8) in written
    assert written[-1] == "closed"


def test_tensorboard_without_its_package_names_the_extra_and_makes_nothing(digits, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(InputError, match=r'pip install "latentalign\[tensorboard\]"'):
        digits.train(tmp_path / "run", "training.tensorboard=true")
    assert not (tmp_path / "run").exists()


def test_a_factory_is_found_by_its_name(module):
    assert find_logger("my_loggers:collect") is module.collect
