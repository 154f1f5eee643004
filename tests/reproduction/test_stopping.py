"""`reproduce` that is asked to stop: its commands end, and it says what is finished and how to continue."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from latentalign.errors import Interrupted
from latentalign.interrupts import handle_signals, raise_interrupted
from latentalign.progress import Bars
from latentalign.reproduction import processes
from latentalign.reproduction import rows as rows_module
from latentalign.reproduction.experiment import Experiment, Row
from latentalign.reproduction.plan import Plan
from latentalign.reproduction.processes import CommandFailed, end_commands_on_interrupt, run_command
from latentalign.reproduction.rows import count_finished, latest_figures, show_progress
from latentalign.reproduction.run import reproduce
from latentalign.training.recipe import TaskRecipe

ROWS = (Row("soft", "soft"), Row("marginal", "marginal"))
EXPERIMENT = Experiment(
    task="x", recipe_model=TaskRecipe, rows=ROWS, figures=("ppl",), tables=(), terminal_columns=()
)


def make(out: Path) -> Plan:
    return Plan(EXPERIMENT, "x", ROWS, (0,), out, config=TaskRecipe())


def test_an_interruption_ends_the_commands_of_all_threads_and_starts_no_more(tmp_path, monkeypatch):
    sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
    start = processes.start_command
    monkeypatch.setattr(processes, "start_command", lambda command, log: start(sleeper, log))
    found = []

    def work() -> None:
        with pytest.raises(CommandFailed) as caught:
            run_command(["train"], tmp_path / "log", lambda: None)
        found.append(caught.value.exit_code)

    thread = threading.Thread(target=work)

    def interrupt() -> None:
        with handle_signals(raise_interrupted), end_commands_on_interrupt():
            thread.start()
            while not processes._RUNNING:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted):
        interrupt()
    thread.join(60)
    assert found == [143]
    with pytest.raises(CommandFailed, match="not started"):
        run_command(["train"], tmp_path / "log", lambda: None)
    with end_commands_on_interrupt():
        assert not processes.is_stopping(), "the next call starts afresh"


def test_the_message_counts_finished_rows(tmp_path, monkeypatch):
    plan = make(tmp_path)

    def answer(arguments, log, report):
        if "--objective=marginal" in arguments:
            raise Interrupted(signal.SIGINT)
        costs = dict.fromkeys(rows_module.COSTS, 1)
        return {"ppl": 2.0} if arguments[0] == "evaluate" else costs

    monkeypatch.setattr(rows_module, "run_command", answer)
    monkeypatch.setattr(rows_module.WarmStarts, "provide", lambda *arguments: None)
    with pytest.raises(Interrupted) as caught:
        reproduce(plan)
    assert caught.value.saved.startswith("1 of 2 rows are finished")
    assert caught.value.exit_code == 130
    assert count_finished(plan) == caught.value.saved


def test_metrics_with_missing_or_odd_figures_are_shown_as_far_as_they_go(tmp_path, capsys):
    lines = [
        {"kind": "training", "step": 1, "bound": 9.0, "tokens_per_second": "fast", "epochs": 0.5},
        {"kind": "validation", "step": 2, "seconds": None},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert latest_figures(lines) == ["bound 9.000"]
    lines.append({"bound": 1.5e72, "tokens_per_second": 12_345.6})
    assert latest_figures(lines) == ["bound 1.5e+72", "12,346 tokens/s"]
    with Bars() as bars:
        show_progress(tmp_path, bars.add("soft", 3, unit="epochs", interval=0.0))
    assert capsys.readouterr().err == "soft: 0 of 3 epochs, bound 9.000\n"


@pytest.mark.slow
def test_sigterm_ends_reproduce_and_its_children_with_a_message(tmp_path):
    tests = Path(__file__).resolve().parents[1]
    paths = os.pathsep.join([str(tests), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "LATENTALIGN_PLUGINS": "toy_task", "PYTHONPATH": paths}
    more = ["--set=training.epochs=100000", "--set=training.patience=100000", "--set=training.log_steps=1"]
    arguments = ["reproduce", "--task", "digits", "--out", str(tmp_path / "out"), "--rows", "soft", *more]
    process = subprocess.Popen(
        [sys.executable, "-m", "latentalign", *arguments], stderr=subprocess.PIPE, env=environment
    )
    run = tmp_path / "out" / "runs" / "soft-0"
    deadline = time.monotonic() + 120
    while not (run / "metrics.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.terminate()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143, errors
    text = errors.decode()
    assert "Traceback" not in text
    assert "ended by SIGTERM; 0 of 1 rows are finished" in text
    assert text.strip().split("\n")[-1].startswith("python -m latentalign reproduce --task digits")
    assert (run / "checkpoint" / "current.json").is_file(), "the child has saved"
    log = (tmp_path / "out" / "logs" / "soft-0.log").read_text()
    assert "ended by SIGTERM; saved after step" in log
