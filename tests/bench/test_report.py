"""Tables say what the result says; comparisons are ratios; bad files are named."""

import copy
import io
import json
import re

import pytest
from rich.console import Console

from latentalign.bench.plot import draw
from latentalign.bench.report import compare, read_result, show
from latentalign.errors import InputError
from latentalign.reproduction.plots import check_picture_path
from latentalign.tasks.nmt.model import ModelConfig
from support.bench import TINY


def row(name, speed, cost, share, **options):
    counted = {"emissions_per_token": 11.5, "gflop_per_token": 0.025}
    measured = {
        "tokens_per_second": speed,
        "peak_memory_mb": 321.0,
        "gemm_share": share,
        "cost_vs_soft": cost,
    }
    return {"objective": name, "options": options, **measured, **counted}


RESULT = {
    "gemm_gflops": 123.4,
    "rows": [
        row("soft", 6543.0, 1.0, 0.5),
        row("marginal", 1234.0, 5.3, 0.75),
        {**row("marginal", 4321.0, None, 0.25, tolerance=0.01, tail="sample"), "visited": 1.75}
        | {"certificate_share": 0.142},
    ],
    "growth": [
        {"axis": a, "size": s, "objective": o, "tokens_per_second": 1500.0 / s, "peak_memory_mb": 9.0 * s}
        for a, s in (("T", 10), ("T", 40), ("V", 2000))
        for o in ("soft", "marginal")
    ][:-1],
    "decode": [{"predict": "kmax:5", "beam": 5, "batch": 32, "sentences_per_second": 45.6}],
    "failures": {},
    "workload": TINY.about(),
    "threads": 2,
    "versions": {"python": "3.11", "torch": "2.13"},
}


def printed(result, **more):
    out = io.StringIO()
    show(result, console=Console(width=80, file=out), **more)
    return out.getvalue()


def test_tables_hold_every_figure_within_eighty_columns():
    text = printed(RESULT)
    for shown in (
        "6,543",
        "5.30",
        "75 %",
        "11.50",
        "25.0",
        "321",
        "1.75",
        "14 %",
        "123.4",
        "45.6",
        "V 50",
        "2.13",
    ):
        assert shown in text
    assert "2 threads" in text
    assert "T = 40" in text
    assert max(map(len, text.split("\n"))) <= 80


def test_a_transformer_is_described_by_its_own_sizes():
    model = ModelConfig(
        backbone="transformer", embedding=1024, heads=16, emission_state="lagged"
    ).model_dump()
    text = printed({**RESULT, "workload": {**RESULT["workload"], "model": model}})
    assert "transformer: width 1024, 16 heads, encoder 2 and decoder 2 layers, lagged state" in text


def test_columns_that_no_row_fills_are_absent():
    assert "visited" in printed(RESULT)
    assert "visited" not in printed({**RESULT, "rows": RESULT["rows"][:2]})


def test_only_a_random_model_is_said_to_be_bounded():
    assert "outputs are as long" in printed(RESULT).replace("\n", " ")
    run = {**RESULT, "workload": {**RESULT["workload"], "run": "runs/a"}}
    assert "outputs are as long" not in printed(run).replace("\n", " ")
    assert "runs/a" in printed(run)


def test_ratios_are_this_over_the_other():
    other = copy.deepcopy(RESULT)
    other["rows"] = [row("marginal", 617.0, 10.6, 0.25), row("soft", 6543.0, 1.0, 0.0)]
    soft, marginal, certified = compare(RESULT, other)
    assert marginal["cost_vs_soft"] == 0.5
    assert marginal["gemm_share"] == 3.0
    assert marginal["tokens_per_second"] == 2.0
    assert soft["gemm_share"] is None
    assert certified["tokens_per_second"] is None
    text = printed({**RESULT, "compare": [soft, marginal, certified]}, other="old.json")
    assert "this / old.json" in text


def test_a_result_is_read_back(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(RESULT))
    assert read_result(path) == json.loads(json.dumps(RESULT))


@pytest.mark.parametrize(
    "text", ["", "[]", "7", "{}", '{"rows": 3}', '{"rows": [{}]}', '{"rows": [3]}', b"\xff".decode("latin1")]
)
def test_what_is_no_result_is_refused(tmp_path, text):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"bad\.json"):
        read_result(path)


def test_figures_that_are_no_numbers_are_refused(tmp_path):
    bad = copy.deepcopy(RESULT)
    bad["rows"][1]["gemm_share"] = "half"
    (tmp_path / "bad.json").write_text(json.dumps(bad))
    with pytest.raises(InputError, match="half"):
        read_result(tmp_path / "bad.json")
    with pytest.raises(InputError, match="No such file"):
        read_result(tmp_path / "absent.json")


@pytest.mark.slow
def test_a_picture_is_drawn(tmp_path):
    draw(RESULT, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    draw({**RESULT, "growth": []}, tmp_path / "b.png")
    draw(RESULT, tmp_path / "c.svg")
    svg = (tmp_path / "c.svg").read_text()
    assert "prefers-color-scheme: dark" in svg
    assert "currentColor" in svg
    assert "marginal" in svg
    assert all("fill: currentColor" in tag for tag in re.findall(r"<text [^>]*>", svg))


def test_a_picture_that_cannot_be_written_is_refused_beforehand(tmp_path):
    check_picture_path(tmp_path / "a.png")
    with pytest.raises(InputError, match="no folder"):
        check_picture_path(tmp_path / "no" / "a.png")
    with pytest.raises(InputError, match=r"\.png"):
        check_picture_path(tmp_path / "a.txt")
