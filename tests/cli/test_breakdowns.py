"""Breakdowns in the terminal: sub-tables with rare types folded."""

import pytest

from latentalign.cli.breakdowns import breakdown_table, fold_rare, is_breakdown
from latentalign.cli.common import show


def figures(questions, accuracy, official=None):
    return {"questions": questions, "accuracy_paper": accuracy, "accuracy_official": official}


def test_rare_types_are_folded_into_one_row_with_weighted_means():
    parts = {f"type {n}": figures(100 - n, 50.0) for n in range(5)} | {
        "rare": figures(1, 10.0),
        "rarer": figures(3, 30.0),
    }
    folded = fold_rare(parts, most=6)
    assert list(folded) == [*(f"type {n}" for n in range(5)), "2 rarer types"]
    assert folded["2 rarer types"] == {
        "questions": 4,
        "accuracy_paper": pytest.approx(25.0),
        "accuracy_official": None,
    }
    assert fold_rare(parts, most=7) is parts


def test_columns_without_a_figure_of_their_own_are_left_out():
    table = breakdown_table("by_question_type", {"is it": {"accuracy": 50.0, **figures(2, 50.0)}})
    assert [column.header for column in table.columns] == ["", "accuracy paper", "questions"]


def test_a_result_is_shown_with_a_table_for_each_breakdown(capsys):
    show({"nll": 1.5, "by_answer_type": {"yes/no": figures(2, 50.0)}}, as_json=False, title="run")
    shown = capsys.readouterr().out
    assert "by answer type" in shown
    assert "50.00" in shown
    assert "{" not in shown


def test_only_named_figures_are_a_breakdown():
    assert is_breakdown({"a": {}})
    for value in (None, 1.0, {}, {"a": 1}, "text"):
        assert not is_breakdown(value)
