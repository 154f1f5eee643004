"""latentalign bench as scripts use it: one JSON object, tables, and bad input named before anything is measured."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial

import pytest
from typer.testing import CliRunner

from latentalign.bench import measure
from latentalign.bench.workload import PRESETS
from latentalign.cli.main import app
from latentalign.core.objectives import OBJECTIVES
from latentalign.errors import CheckpointError, InputError
from support.bench import SHORT, TINY, Broken, InProcess


@pytest.fixture
def bench(monkeypatch):
    """The command on toys, without processes of its own."""
    monkeypatch.setitem(PRESETS, "multi30k", TINY)
    monkeypatch.setattr(measure, "QUICK", SHORT)
    monkeypatch.setitem(OBJECTIVES, "broken", Broken)
    monkeypatch.setattr(measure, "measure", partial(measure.measure, start=InProcess))
    return lambda *more: CliRunner().invoke(app, ["bench", "--quick", "--threads", "1", *map(str, more)])


@pytest.mark.slow
def test_json_is_one_object_with_ratios_to_another(bench, tmp_path):
    figures = {"tokens_per_second": 1.0, "peak_memory_mb": 2.0, "gemm_share": 0.1, "cost_vs_soft": 4.0}
    (tmp_path / "old.json").write_text(
        json.dumps({"rows": [{"objective": "soft", "options": {}, **figures}]})
    )
    files = ["--plot", tmp_path / "a.png", "--compare", tmp_path / "old.json"]
    done = bench("--rows", "rws:n=2", "--batch", 3, "--json", *files)
    assert done.exception is None, done.exception
    result = json.loads(done.stdout)
    assert {"gemm_gflops", "rows", "growth", "decode"} <= result.keys()
    assert [row["objective"] for row in result["rows"]] == ["soft", "rws"]
    assert {"options", *figures} <= result["rows"][1].keys()
    assert result["workload"]["batch"] == 3
    assert [row["cost_vs_soft"] for row in result["compare"]] == [0.25, None]
    assert (tmp_path / "a.png").is_file()


@pytest.mark.slow
def test_tables_are_printed_and_failed_rows_are_named(bench):
    done = bench("--rows", "marginal,broken")
    assert done.exit_code == 0
    for word in ("training", "growth", "decoding", "marginal", "kmax:5"):
        assert word in done.stdout
    assert "broken" not in done.stdout
    assert "failed: broken: ArithmeticError: cannot be used" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["--rows", "margnal"], InputError, "did you mean 'marginal'"),
        (["--preset", "wmt"], InputError, "multi30k"),
        (["--compare", "absent.json"], InputError, "absent.json: No such file"),
        (["--plot", "no/such/folder/a.png"], InputError, "no folder"),
        (["--run", "no/such/run"], CheckpointError, "no such run"),
    ],
)
def test_bad_input_is_named_before_anything_is_measured(bench, monkeypatch, arguments, error, message):
    monkeypatch.setattr(measure, "measure", None)
    done = bench(*arguments)
    assert isinstance(done.exception, error)
    assert message in str(done.exception)


@pytest.mark.slow
def test_a_fault_is_exit_code_2_without_a_traceback():
    command = [sys.executable, "-m", "latentalign", "bench", "--rows", "sfot"]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    assert done.returncode == 2
    assert "--rows sfot: unknown objective 'sfot'; did you mean 'soft'?" in done.stderr
    assert "Traceback" not in done.stderr
