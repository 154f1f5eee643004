"""One command from pictures to a page."""

import json

import pytest

from latentalign.reproduction.plan import make_plan
from latentalign.reproduction.run import reproduce
from latentalign.reproduction.terminal import show_results
from latentalign.tasks.vqa.experiment import EXPERIMENT, scenes_settings


@pytest.mark.slow
def test_rows_tables_and_a_page(pictures, sizes, tmp_path, capsys):
    settings = [*scenes_settings(pictures), *sizes]
    rows = ["variational-enum"]
    plan = make_plan(EXPERIMENT, "vqa/scenes", rows, out=tmp_path, overrides=settings)
    results, failures = reproduce(plan)
    assert failures == []
    show_results(plan, results)
    (record,) = json.loads((tmp_path / "results.json").read_text())
    for name in (
        "objective", "seed", "nll_exact", "nll_soft", "nll_kmax5", "accuracy", "accuracy_official", "entropy_prior",
        "entropy_inferred", "grounding_prior", "grounding_inferred", "grounding_posterior", "seconds",
    ):  # fmt: skip
        assert record[name] is not None, name
    page = (tmp_path / "report.html").read_text()
    for text in (f"{record['nll']:.3f}", f"{record['accuracy']:.2f}", "Where it looks"):
        assert text in page
    assert f"{record['nll_kmax5']:.3f}" in (tmp_path / "tables.md").read_text()
    assert "report.html" in capsys.readouterr().out.replace("\n", "")
