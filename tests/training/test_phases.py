"""Both phases of a training run say what they used, and a user learns in time if too little is left."""

import json
from types import SimpleNamespace

import pytest

from latentalign.training import loop
from latentalign.training import progress as training_progress
from latentalign.training.phases import warn_after, warn_before, warn_between
from latentalign.training.position import Position
from latentalign.training.recipe import TrainingConfig
from latentalign.training.run import Run
from latentalign.training.time_left import TimeLeft, limited_seconds, steps_left
from latentalign.training.warm_start import warm_start_recipe

WARM = ("training.warm_start_objective=soft", "training.warm_start_epochs=1")


def test_summary_card_and_metrics_name_what_each_phase_used(digits, tmp_path):
    result = digits.train(tmp_path / "run", *WARM, "training.max_steps=3", "training.log_steps=1")
    warm, main = result["phases"]
    assert (warm["phase"], warm["objective"], warm["steps"], warm["epochs"]) == (
        "warm start",
        "soft",
        3,
        0.75,
    )
    assert (main["objective"], main["steps"], main["epochs"]) == ("variational-sample", 3, 0.75)
    assert warm["ended_by"] == main["ended_by"] == result["ended_by"] == "max_steps"
    assert result["epochs"] == 0.75, "not a whole epoch"
    assert result["warm_start"] == "0.75 epochs of soft"
    assert json.loads((tmp_path / "run" / "card.json").read_text())["phases"] == result["phases"]
    history = Run(tmp_path / "run").history()
    assert [(r["phase"], r["epochs"]) for r in history if r["kind"] == "training"] == [
        ("training", 0.25),
        ("training", 0.5),
        ("training", 0.75),
    ]
    assert {r["phase"] for r in Run(tmp_path / "run" / "warm-start").history()} == {"warm start"}


def test_a_warm_start_uses_at_most_half_of_the_minutes(digits, tmp_path, monkeypatch, capsys):
    clock = iter(range(10**6))
    monkeypatch.setattr(loop.time, "perf_counter", lambda: 30.0 * next(clock))  # each update takes 30 seconds
    options = [*WARM, "training.warm_start_epochs=9", "training.max_minutes=3"]
    assert warm_start_recipe(digits.recipe(*options)).training.max_minutes == 1.5
    result = digits.train(tmp_path / "run", *options)
    assert [(p["steps"], p["minutes"], p["ended_by"]) for p in result["phases"]] == [
        (4, 2.0, "max_minutes"),  # the time is known to be over one step later
        (3, 1.5, "max_minutes"),
    ]
    said = capsys.readouterr().err
    assert "the warm start took 2 of training.max_minutes = 3" in said
    assert "variational-sample was trained for 3 steps only (0.75 epochs)" in said


def test_a_resumed_run_still_knows_its_warm_start(digits, tmp_path):
    digits.train(tmp_path / "run", *WARM, "training.max_steps=2")
    (tmp_path / "run" / "warm-start" / "card.json").write_text("damaged")
    result = digits.train(tmp_path / "run", *WARM, "training.max_steps=4", resume=True)
    assert [(p["phase"], p["steps"]) for p in result["phases"]] == [("warm start", 2), ("training", 4)]
    assert result["phases"][0]["ended_by"] is None, "only the card says why"


def test_curves_show_the_warm_start_first(digits, tmp_path):
    digits.train(tmp_path / "run", *WARM)
    points = Run(tmp_path / "run").validations()
    assert [p["phase"] for p in points] == ["warm start", "training", "training"]
    assert points[0]["seconds"] < points[1]["seconds"] < points[2]["seconds"]


@pytest.mark.parametrize("change", [{"seconds": None}, {"seconds": "x"}, {"bound": None}, {"ppl": [1]}])
def test_a_validation_without_a_figure_is_left_out_of_the_curves(change, tmp_path):
    good = {"kind": "validation", "step": 1, "seconds": 2.0, "bound": 3.0, "ppl": 4.0}
    bad = {k: v for k, v in {**good, **change}.items() if v is not None}
    text = "".join(json.dumps(r) + "\n" for r in (bad, good))
    for folder in (tmp_path, tmp_path / "warm-start"):
        folder.mkdir(exist_ok=True)
        (folder / "metrics.jsonl").write_text(text)
    assert len(Run(tmp_path).validations()) == 2


def recipe(**training):
    return SimpleNamespace(
        training=TrainingConfig(**training), objective=SimpleNamespace(name="variational-sample")
    )


def test_warnings_about_too_little_are_given_only_then():
    first = recipe(epochs=2)
    assert "after 0.5 of 2 epochs" in warn_before(recipe(max_steps=5), first, 10)
    assert warn_before(recipe(max_steps=20), first, 10) is None
    assert warn_before(recipe(), first, 10) is None
    warm = {"phase": "warm start", "objective": "soft", "steps": 10, "epochs": 1, "minutes": 2.0}
    assert "about 0.5 epochs" in warn_between(recipe(max_minutes=3), warm, 10)
    assert warn_between(recipe(max_minutes=4), warm, 10) is None
    assert warn_between(recipe(), warm, 10) is None
    short = {"objective": "marginal", "steps": 2, "epochs": 0.1, "ended_by": "max_minutes"}
    assert "marginal was trained for 2 steps only" in warn_after([warm, short])
    assert warn_after([short]) is None
    assert warn_after([warm, {**short, "epochs": 1.0}]) is None
    assert warn_after([warm, {**short, "ended_by": "patience"}]) is None


@pytest.mark.parametrize(
    ("settings", "position", "steps"),
    [
        ({"epochs": 3}, Position(), 30),
        ({"epochs": 3}, Position(step=12, epoch=1, batch=2), 18),
        ({"epochs": 3, "accumulate": 2}, Position(step=6, epoch=1, batch=2), 9),
        ({"epochs": 3, "max_steps": 20}, Position(step=12, epoch=1, batch=2), 8),
        ({"epochs": 1}, Position(step=12, epoch=1, batch=2), 0),
    ],
)
def test_the_steps_left_follow_the_limit_that_comes_first(settings, position, steps):
    assert steps_left(TrainingConfig(**settings), position, 10) == steps


def test_the_time_left_follows_minutes_and_the_phase_after_a_warm_start(monkeypatch):
    now = iter([100.0, 120.0, 120.0, 120.0])
    monkeypatch.setattr("latentalign.training.time_left.time.monotonic", lambda: next(now))
    later = TrainingConfig(epochs=3)
    clock = TimeLeft(TrainingConfig(epochs=2), Position(), later)
    assert clock.estimate(Position(), 10) is None
    position = Position(step=10, epoch=1, seconds=10.0)  # one second a step, and as much for everything else
    assert clock.estimate(position, 10) == pytest.approx(2 * (10 + 30))
    clock.later = TrainingConfig(epochs=3, max_minutes=0.5)
    assert clock.estimate(position, 10) == pytest.approx(2 * 20), (
        "30 seconds of updates, 10 of which are over"
    )
    clock.later = None
    assert clock.estimate(position, 10) == pytest.approx(2 * 10)
    limited = TrainingConfig(epochs=2, max_minutes=0.25)
    assert limited_seconds(limited, position, 10, 1.0) == pytest.approx(5)


def test_slow_steps_are_reported_before_the_next_line_is_due(capsys, monkeypatch):
    position = Position(step=1, batch=1, queries=10, seconds=1.0)
    with training_progress.TrainingProgress("run", TrainingConfig(epochs=2), Position()) as shown:
        shown.show(position, 100, log=False)
        assert capsys.readouterr().err == ""
        monkeypatch.setattr(training_progress, "LONGEST_SILENCE", 0.0)
        shown.show(position, 100, log=False)
    assert capsys.readouterr().err.startswith("run: step 1, epoch 1/2, loss ")
