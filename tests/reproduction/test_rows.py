"""Rows have an identity: what was trained in another way never stands in the same table."""

import io
import json

import pytest
from rich.console import Console

from latentalign.errors import InputError
from latentalign.reproduction.rows import Plan, Row, finished_rows, require_same_settings
from latentalign.reproduction.tables import Column
from latentalign.reproduction.terminal import show_table

SOFT, MARGINAL = Row("soft", "soft"), Row("marginal", "marginal")


def plan(out, *overrides, rows=(SOFT,), seeds=(0,)):
    return Plan(
        "nmt/demo", rows, seeds, out, ("ppl",), epochs=1, overrides=overrides, order=("soft", "marginal")
    )


def finish(made, row, seed):
    path = made.finished(row.name, seed)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"row": row.name, "seed": seed, "settings": made.settings(row)}))


def test_rows_of_another_training_are_refused_and_threads_are_free(tmp_path):
    finish(plan(tmp_path, "training.epochs=3"), SOFT, 0)
    require_same_settings(plan(tmp_path, "training.epochs=3", "training.threads=1"))
    with pytest.raises(InputError, match=r"other settings \(training.epochs=3, training.epochs=8\)"):
        require_same_settings(plan(tmp_path, "training.epochs=8"))


def test_rows_finished_by_earlier_commands_stay_in_the_tables(tmp_path):
    for row, seed in ((MARGINAL, 0), (SOFT, 1), (SOFT, 0)):
        finish(plan(tmp_path), row, seed)
    found = [(r["row"], r["seed"]) for r in finished_rows(plan(tmp_path, rows=(MARGINAL,)))]
    assert found == [("soft", 0), ("soft", 1), ("marginal", 0)]


@pytest.mark.parametrize("task", ["nmt", "vqa"])
def test_no_figure_is_cut_in_a_terminal_of_80_columns(task):
    import latentalign.nmt.reproduce as nmt
    import latentalign.vqa.reproduce as vqa

    shown: dict[str, Column] = {"nmt": nmt, "vqa": vqa}[task].SHOWN
    record = {"row": "variational-sample", **{c.figure: 99.8888 for c in shown.values()}, "seconds": 12345.0}
    console = Console(file=io.StringIO(), width=80)
    show_table(console, "title", shown, [record])
    assert "\u2026" not in console.file.getvalue()
