"""One command from nothing to a page; stopped in the middle of a row, it goes on as if nothing had happened."""

import json
import math
import os
import signal
import subprocess
import sys
import time

import pytest

from latentalign.errors import InputError
from latentalign.reproduction import rows as rows_module
from latentalign.reproduction import warm_starts as warm_starts_module
from latentalign.reproduction.plan import make_plan
from latentalign.tasks.nmt.experiment import ABLATIONS, EXPERIMENT
from latentalign.tasks.nmt.recipe import NMTConfig
from latentalign.tasks.nmt.task import TRANSLATION
from latentalign.training.run import Run
from support.nmt import SIZES, data_overrides, tiny

pytestmark = pytest.mark.slow

TIMES = ("seconds", "tokens_per_second", "peak_memory_mb")


def command(out, demo_files):
    settings = [*data_overrides(demo_files), *SIZES, "training.max_steps=25", "training.checkpoint_steps=3",
                "search.beam=2"]  # fmt: skip
    return [
        sys.executable, "-m", "latentalign", "reproduce", "--data=nmt/demo", "--rows=rws",
        f"--out={out}", *(f"--set={s}" for s in settings),
    ]  # fmt: skip


def untimed(path):
    return [{k: v for k, v in r.items() if k not in TIMES} for r in json.loads(path.read_text())]


def test_killed_in_the_middle_of_a_row_it_ends_as_undisturbed(demo_files, tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    subprocess.run(command(whole, demo_files), check=True, capture_output=True, env=environment)
    process = subprocess.Popen(
        command(cut, demo_files), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    )
    pointer = cut / "runs" / "rws-0" / "checkpoint" / "current.json"
    until = time.monotonic() + 120
    while not pointer.exists() and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (cut / "rows" / "rws-0.json").exists()
    subprocess.run(command(cut, demo_files), check=True, capture_output=True, env=environment)
    assert untimed(cut / "results.json") == untimed(whole / "results.json")
    record = json.loads((cut / "results.json").read_text())[0]
    for name in (
        "objective", "seed", "ppl", "ppl_exact", "ppl_soft", "ppl_kmax5", "bleu", "entropy_prior", "entropy_inferred",
        "elbo_gap", "aer_prior", "aer_inferred", "aer_posterior", *TIMES,
    ):  # fmt: skip
        assert record[name] is not None, name
    assert f"{record['ppl']:.3f}" in (cut / "tables.md").read_text()
    page = (cut / "report.html").read_text()
    assert f"{record['ppl']:.3f}" in page
    assert record["kmax_curve"][-1] == pytest.approx(record["ppl_exact"], rel=1e-6)
    assert record["kmax_curve"][4] == pytest.approx(record["ppl_kmax5"], rel=1e-6)
    details = json.loads((cut / "details" / "rws-0.json").read_text())
    tokens = sum(details["tokens"])
    for name in ("ppl", "ppl_exact", "ppl_soft", "ppl_kmax5"):
        assert math.exp(-sum(details["scores"][name]) / tokens) == pytest.approx(record[name], rel=1e-5)
    assert sum(details["scores"]["entropy_prior"]) / tokens == pytest.approx(
        record["entropy_prior"], rel=1e-5
    )
    assert record["samples"] == 5


def test_rows_and_ablations_are_known_by_name_and_their_settings_exist():
    import latentalign.config as recipes

    for row in (*EXPERIMENT.known_rows, *ABLATIONS):
        recipes.load("nmt/demo", NMTConfig, [f"objective.name={row.objective}", *row.overrides])
    with pytest.raises(InputError, match="unknown row"):
        make_plan(EXPERIMENT, "nmt/demo", ["sotf"], out="out")


def test_what_rows_train_first_is_trained_once_and_as_each_would_have_trained_it(
    demo_files, tmp_path, monkeypatch
):
    settings = [*data_overrides(demo_files), *SIZES, "training.max_steps=6", "training.warm_start_epochs=1",
                "training.decay_always=1", "search.beam=1"]  # fmt: skip
    asked, run_command = [], rows_module.run_command

    def run_and_note(command, *rest):
        asked.append(command)
        return run_command(command, *rest)

    for module in (rows_module, warm_starts_module):
        monkeypatch.setattr(module, "run_command", run_and_note)
    rows = ["soft", "hard-sample", "gumbel", "relaxed"]
    plan = make_plan(EXPERIMENT, "nmt/demo", rows, out=tmp_path / "out", overrides=settings, jobs=2)
    results, failures = rows_module.train_rows(plan)
    assert not failures
    warm = [c for c in asked if c[0] == "train" and "warm-starts" in c[1]]
    assert len(warm) == 1
    firsts = {r["row"]: r["warm_start"] for r in results}
    assert firsts == dict.fromkeys(rows[:3], "0.24 epochs of soft") | {
        "relaxed": "0.24 epochs of relaxed-hard"
    }
    relaxed = tmp_path / "out" / "runs" / "relaxed-0"
    assert (relaxed / "warm-start" / "metrics.jsonl").exists()  # trained there, on the data of its run
    assert not (relaxed / "warm-start" / "cache").exists()
    assert not list((tmp_path / "out" / "warm-starts").glob("relaxed-hard-0*"))
    alone = tmp_path / "alone"
    TRANSLATION.train(tiny(demo_files, "gumbel", *settings), Run(alone), resume=False, overwrite=False)
    shared = tmp_path / "out" / "runs" / "gumbel-0"
    for name in ("warm-start/model.safetensors", "model.safetensors"):
        assert (alone / name).read_bytes() == (shared / name).read_bytes(), name
    assert "decay_always" not in (shared / "warm-start" / "config.toml").read_text()
    again, _ = rows_module.train_rows(plan)
    assert again == results
    plan.result_file("gumbel", 0).unlink()
    (tmp_path / "out" / "runs" / "gumbel-0").rename(tmp_path / "away")
    once_more, _ = rows_module.train_rows(plan)  # from what the rows have in common, which is finished
    assert [{k: v for k, v in r.items() if k not in TIMES} for r in once_more] == [
        {k: v for k, v in r.items() if k not in TIMES} for r in results
    ]
