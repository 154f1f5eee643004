"""Rows have an identity: what was trained in another way never stands in the same table."""

import io
import json
from dataclasses import replace
from importlib import import_module

import pytest
from rich.console import Console

from latentalign import config as recipes
from latentalign.errors import InputError
from latentalign.reproduction import rows as rows_module
from latentalign.reproduction.experiment import Experiment, Row
from latentalign.reproduction.plan import Plan, make_plan, require_same_settings
from latentalign.reproduction.processes import CommandFailed
from latentalign.reproduction.results import read_results
from latentalign.reproduction.rows import train_rows
from latentalign.reproduction.tables import failures_table, markdown
from latentalign.reproduction.terminal import show_table
from latentalign.tasks.nmt.recipe import NMTConfig

SOFT, MARGINAL = Row("soft", "soft"), Row("marginal", "marginal")
EXPERIMENT = Experiment(
    task="nmt",
    recipe_model=NMTConfig,
    rows=(SOFT, MARGINAL),
    figures=("ppl",),
    tables=(),
    terminal_columns=(),
)


def plan(out, *overrides, rows=(SOFT,), seeds=(0,)):
    overrides = ("training.warm_start_epochs=0", *overrides)
    config = recipes.load("nmt/demo", NMTConfig, [f"data.train.source={out}/train.de", *overrides])
    return Plan(EXPERIMENT, "nmt/demo", rows, seeds, out, config=config, overrides=overrides)


def begin(made, row, seed):
    path = made.settings_file(row.name, seed)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(made.settings(row)))


def finish(made, row, seed):
    begin(made, row, seed)
    path = made.result_file(row.name, seed)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"row": row.name, "seed": seed}))


@pytest.mark.parametrize("leave", [begin, finish])
@pytest.mark.parametrize("rows", [(SOFT,), (MARGINAL,)])
def test_rows_of_another_training_are_refused_and_threads_are_free(rows, leave, tmp_path):
    leave(plan(tmp_path, "training.epochs=3", "training.clip=4"), SOFT, 0)
    same = ("training.clip=4", "training.epochs=3", "training.threads=1")
    require_same_settings(plan(tmp_path, *same, rows=rows))
    with pytest.raises(
        InputError, match=r"soft-0 was trained with other settings \(training.epochs = 3, now 8\)"
    ):
        require_same_settings(plan(tmp_path, "training.epochs=8", "training.clip=4", rows=rows))


def planned_rows(tmp_path, *overrides):
    certified = Row("certified", "marginal", ("objective.tolerance=0.01",))
    experiment = replace(EXPERIMENT, rows=(SOFT, MARGINAL, certified))
    return make_plan(experiment, "nmt/demo", out=tmp_path, overrides=overrides)


def test_an_option_belongs_to_the_rows_whose_objectives_have_it(tmp_path):
    made = planned_rows(tmp_path, "objective.tolerance=0.1", "training.clip=4")
    assert [row.overrides for row in made.rows] == [
        (),
        ("objective.tolerance=0.1",),
        ("objective.tolerance=0.1", "objective.tolerance=0.01"),
    ]
    assert made.overrides == ("training.clip=4",)


def test_an_option_that_no_row_has_or_a_wrong_value_is_refused(tmp_path):
    with pytest.raises(
        InputError, match=r"objective.samples=3: none of the rows .*: soft, marginal, certified"
    ):
        planned_rows(tmp_path, "objective.samples=3")
    with pytest.raises(InputError, match="tolerance must not be negative"):
        planned_rows(tmp_path, "objective.tolerance=-1.0")


def test_a_row_with_settings_of_its_own_is_another_row(tmp_path):
    finish(plan(tmp_path), SOFT, 0)
    with pytest.raises(InputError, match=r"\(soft, now soft model.dropout=0\)"):
        require_same_settings(plan(tmp_path, rows=(Row("soft", "soft", ("model.dropout=0",)),)))


def test_a_setting_younger_than_a_row_was_at_its_default(tmp_path):
    made = plan(tmp_path)
    for key in made.settings(SOFT)["shared"]:
        recipes.default_value(made.config, key)
    finish(made, SOFT, 0)
    path = made.settings_file("soft", 0)
    settings = json.loads(path.read_text())
    del settings["shared"]["training.compile"]
    path.write_text(json.dumps(settings))
    require_same_settings(made)
    with pytest.raises(InputError, match=r"\(training.compile = False, now True\)"):
        require_same_settings(plan(tmp_path, "training.compile=true"))


def test_a_folder_may_be_moved_and_a_row_of_unknown_settings_is_refused(tmp_path):
    (tmp_path / "here").mkdir()
    finish(plan(tmp_path / "here"), SOFT, 0)
    (tmp_path / "here").rename(tmp_path / "there")
    require_same_settings(plan(tmp_path / "there"))
    plan(tmp_path / "there").settings_file("soft", 0).unlink()
    with pytest.raises(InputError, match="the settings of soft-0 are not known"):
        require_same_settings(plan(tmp_path / "there"))


def test_a_figure_beyond_all_numbers_is_null_and_loses_no_row(tmp_path, monkeypatch):
    answers = {"train": dict.fromkeys(("warm_start", "samples")), "evaluate": {"ppl": float("inf")}}
    for name in ("seconds", "tokens_per_second", "peak_memory_mb", "epochs", "steps"):
        answers["train"][name] = 1.0
    monkeypatch.setattr(rows_module, "run_command", lambda arguments, log, report: answers[arguments[0]])
    results, failures = train_rows(plan(tmp_path))
    assert (results[0]["ppl"], failures) == (None, [])


def test_a_task_that_counts_no_steps_has_rows_too(tmp_path, monkeypatch):
    answers = {"train": {"seconds": 2.0}, "evaluate": {"ppl": 3.0}}
    monkeypatch.setattr(rows_module, "run_command", lambda arguments, log, report: answers[arguments[0]])
    results, failures = train_rows(plan(tmp_path))
    assert (results[0]["seconds"], results[0]["steps"], failures) == (2.0, None, [])


def test_a_failed_row_names_its_reason_and_code_and_a_full_disk_is_one(tmp_path, monkeypatch, capsys):
    def answer(arguments, log, report):
        if "--objective=soft" in arguments:
            raise CommandFailed("ended with 3: [data.test] [/odd]", 3)
        if arguments[0] == "evaluate":
            return {"ppl": 2.0}
        return dict.fromkeys(("seconds", "tokens_per_second", "peak_memory_mb", "epochs", "steps", "warm_start",
                              "samples"), 1)  # fmt: skip

    monkeypatch.setattr(rows_module, "run_command", answer)
    results, failures = train_rows(plan(tmp_path, rows=(SOFT, MARGINAL)))
    assert "failed: soft, seed 0: ended with 3: [data.test] [/odd]" in capsys.readouterr().err
    assert [r["row"] for r in results] == ["marginal"]
    assert [(f.row, f.code, str(f)) for f in failures] == [
        ("soft", 3, "soft, seed 0: ended with 3: [data.test] [/odd]")
    ]
    assert "ended with 3" in markdown(failures_table(failures))
    with pytest.raises(InputError, match="no row could be trained") as caught:
        train_rows(plan(tmp_path / "alone", rows=(SOFT,)))
    assert caught.value.exit_code == 3


def test_rows_finished_by_earlier_commands_stay_in_the_tables(tmp_path):
    for row, seed in ((MARGINAL, 0), (SOFT, 1), (SOFT, 0)):
        finish(plan(tmp_path), row, seed)
    found = [(r["row"], r["seed"]) for r in read_results(tmp_path, plan(tmp_path).row_order)]
    assert found == [("soft", 0), ("soft", 1), ("marginal", 0)]


@pytest.mark.parametrize("task", ["nmt", "vqa"])
def test_no_figure_is_cut_in_a_terminal_of_80_columns(task):
    columns = import_module(f"latentalign.tasks.{task}.experiment").EXPERIMENT.terminal_columns
    record = {"row": "variational-sample", **{c.figure: 99.8888 for c in columns}, "seconds": 12345.0}
    console = Console(file=io.StringIO(), width=80)
    show_table(console, "title", columns, [record])
    assert "\u2026" not in console.file.getvalue()


def test_of_several_at_a_time_the_longest_begin_first(tmp_path):
    one = plan(tmp_path, rows=(SOFT, MARGINAL, Row("mine", "variational-enum")), seeds=(0, 1))
    assert [(row.name, seed) for row, seed in one.training_runs()][:3] == [
        ("soft", 0),
        ("soft", 1),
        ("marginal", 0),
    ]
    names = [(row.name, seed) for row, seed in replace(one, jobs=2).training_runs()]
    assert names == [(name, seed) for name in ("mine", "marginal", "soft") for seed in (0, 1)]
