"""A task declares a few rows and one table, and gets results, tables, figures, a page and a terminal summary."""

import json
from dataclasses import replace

import pytest

from latentalign.core.objectives import OBJECTIVES
from latentalign.errors import InputError
from latentalign.reproduction import rows as rows_module
from latentalign.reproduction import run as run_module
from latentalign.reproduction.claims import Claim
from latentalign.reproduction.experiment import Experiment, GeneratedData, Row, objective_rows
from latentalign.reproduction.plan import make_plan
from latentalign.reproduction.run import reproduce
from latentalign.reproduction.tables import Column, FigureTable
from latentalign.reproduction.terminal import show_results
from latentalign.tasks.nmt.experiment import EXPERIMENT as TRANSLATION
from latentalign.tasks.vqa.experiment import EXPERIMENT as ANSWERING
from latentalign.web.pages import alignment_viewer

SCORES = {"soft": 3.0, "marginal": 2.5, "rws": 2.75, "changed": 4.0}
LOSS = Column("loss", "loss", 2)


def write_digits(folder):
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "digits.txt", "a") as file:
        file.write("1 one\n")


TOY = Experiment(
    task="toy",
    recipe_model=TRANSLATION.recipe_model,
    rows=objective_rows(["soft", "marginal"]),
    optional_rows=objective_rows(["rws"]),
    figures=("loss",),
    tables=(FigureTable("Losses", "Lower is better.", (LOSS, Column("absent", "absent"))),),
    terminal_columns=(LOSS,),
    data=GeneratedData(
        "digits",
        "nmt/demo",
        write_digits,
        "digits.txt",
        lambda folder: [f"data.test.source={folder}/digits.txt"],
    ),
)


@pytest.fixture
def commands(monkeypatch):
    """The commands that were run, answered without training anything."""
    asked = []
    costs = dict.fromkeys(rows_module.COSTS, 1.0)

    def answer(arguments, log, report):
        asked.append(arguments)
        if arguments[0] == "train":
            return costs
        name = arguments[1].rpartition("/")[2].rpartition("-")[0]
        for option in arguments:
            if option.startswith("--details="):
                examples = [
                    {"sentence": 1, "source": ["1"], "target": ["one"], "matrices": {"prior": [[1.0]]}}
                ]
                details = {"scores": {"loss": [-SCORES[name]] * 40}, "examples": examples}
                with open(option.removeprefix("--details="), "w") as file:
                    json.dump(details, file)
        return {"loss": SCORES[name], "other": 7}

    monkeypatch.setattr(rows_module, "run_command", answer)
    monkeypatch.setattr(run_module, "run_command", answer)
    return asked


def plan(out, experiment=TOY, rows=None, **options):
    return make_plan(experiment, None, rows, out=out, overrides=["training.warm_start_epochs=0"], **options)


def test_a_minimal_declaration_gets_everything(tmp_path, commands, capsys):
    made = plan(tmp_path / "out")
    results, failures = reproduce(made)
    assert failures == []
    assert [(r["row"], r["loss"]) for r in results] == [("soft", 3.0), ("marginal", 2.5)]
    assert json.loads((tmp_path / "out" / "results.json").read_text()) == results
    assert json.loads((tmp_path / "out" / "claims.json").read_text()) == []
    tables = (tmp_path / "out" / "tables.md").read_text()
    assert (
        tables
        == "## Losses\n\nLower is better.\n\n| row | loss |\n|---|---:|\n| soft | 3.00 |\n| marginal | 2.50 |\n"
    )
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Losses" in page
    assert "Training curves" in page
    assert (tmp_path / "out" / "figures" / "training-curves.png").is_file()
    show_results(made, results)
    shown = capsys.readouterr().out
    assert "2.50" in shown
    assert "report.html" in shown.replace("\n", "")


@pytest.mark.slow
def test_finished_rows_are_kept_and_named_rows_are_added(tmp_path, commands):
    reproduce(plan(tmp_path))
    count = len(commands)
    results, _ = reproduce(plan(tmp_path, rows=["rws"]))
    assert len(commands) == count + 2  # train and evaluate of the new row alone
    assert [r["row"] for r in results] == ["soft", "marginal", "rws"]


def test_data_is_generated_once_and_only_when_it_is_used(tmp_path):
    made = plan(tmp_path)
    assert not (tmp_path / "data").exists(), "a plan may still be refused"
    made.write_data()
    assert (tmp_path / "data" / "digits.txt").read_text() == "1 one\n"
    (tmp_path / "data" / "digits.txt").write_text("kept")
    made.write_data()
    assert (tmp_path / "data" / "digits.txt").read_text() == "kept"


def test_declared_claims_examples_and_viewers_appear(tmp_path, commands):
    experiment = replace(
        TOY,
        claims=(Claim("marginal is better", "loss", "marginal", "soft"),),
        details=("--sentences=1",),
        viewers=lambda context: [alignment_viewer(context.examples)],
    )
    reproduce(plan(tmp_path, experiment))
    (verdict,) = json.loads((tmp_path / "claims.json").read_text())
    assert (verdict["verdict"], verdict["lead"], verdict["unit"]) == ("seen", 0.5, "nats")
    page = (tmp_path / "report.html").read_text()
    assert "What the paper claims" in page
    assert '"target": ["one"]' in page


def test_ablations_are_written_beside_the_results(tmp_path, commands):
    with pytest.raises(InputError, match="the task toy has no ablations"):
        plan(tmp_path, ablations=True)
    row = Row("changed", "soft", ("model.dropout=0.1",))
    table = FigureTable("Ablations", "One change at a time.", (LOSS,))
    experiment = replace(TOY, ablations=(row,), ablation_table=table)
    reproduce(plan(tmp_path, experiment, ablations=True))
    assert "| changed | 4.00 |" in (tmp_path / "ablations.md").read_text()
    assert json.loads((tmp_path / "ablations.json").read_text())[0]["loss"] == 4.0
    assert "--set=model.dropout=0.1" in commands[0]
    assert not (tmp_path / "results.json").exists()


def test_a_task_without_generated_data_asks_for_a_recipe(tmp_path):
    with pytest.raises(InputError, match="name a recipe with --data"):
        plan(tmp_path, replace(TOY, data=None))


def test_rows_come_from_the_registry_of_objectives():
    assert set(OBJECTIVES) == {row.objective for row in TRANSLATION.known_rows}
    default = {row.objective for row in TRANSLATION.rows}
    assert default == {name for name, entry in OBJECTIVES.items() if entry.table is not None}
    answering = {row.objective for row in ANSWERING.rows}
    assert default - answering == {"relaxed"}, "regions are chosen, never mixed"
