"""Every command: streams that are closed, signals, memory, and how much is printed."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from latentalign.cli import guard as guard_module
from latentalign.cli.guard import guard
from latentalign.errors import Interrupted
from latentalign.progress import Verbosity, inform, set_verbosity, verbosity
from toy_task.data import digits_settings, write_digits
from toy_task.task import RECIPE


@pytest.fixture(autouse=True)
def _restore(monkeypatch):
    monkeypatch.setattr(guard_module, "ignore_signals", lambda: None)
    yield
    set_verbosity(Verbosity.NORMAL)


def shell(text: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        f"{sys.executable} -m latentalign {text}", shell=True, capture_output=True, timeout=120
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["translate run", "evaluate run", "aer --gold a --predicted b"])
def test_closed_standard_output_is_one_message(name):
    done = shell(f"{name} < /dev/null >&-")
    assert done.returncode == 5
    assert done.stderr == b"latentalign: standard output is closed; redirect it to a file or to /dev/null\n"


@pytest.mark.slow
def test_closed_standard_error_and_input_lose_no_exit_code():
    done = shell("translate no-such-run <&- 2>&-")
    assert (done.returncode, done.stdout) == (4, b""), "messages do not end up in the output"


@pytest.mark.slow
def test_a_full_device_is_reported(tmp_path):
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    done = shell("recipe list > /dev/full")
    assert done.returncode == 5
    assert b"Traceback" not in done.stderr
    assert b"No space left" in done.stderr


@pytest.mark.slow
def test_a_reader_that_closes_the_pipe_has_an_exit_code_of_its_own():
    read, write = os.pipe()
    os.close(read)
    arguments = [sys.executable, "-m", "latentalign", "recipe", "list"]
    done = subprocess.run(arguments, stdout=write, stderr=subprocess.PIPE, timeout=120)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


def test_quiet_and_verbose_stand_before_or_after_the_command(capsys, monkeypatch):
    import typer

    from latentalign.cli.main import HELP_NAMES, latentalign_command

    app = typer.Typer(rich_markup_mode=None, context_settings=HELP_NAMES)
    app.callback()(latentalign_command)
    seen = []

    def say(word: str = "x") -> None:
        """Say something."""
        seen.append(verbosity())
        inform(word)

    app.command("say")(guard(say))
    for arguments in (
        ["-q", "say"],
        ["say", "-q"],
        ["say", "--quiet"],
        ["-v", "say"],
        ["say", "-v"],
        ["say"],
    ):
        set_verbosity(Verbosity.NORMAL)
        app(arguments, standalone_mode=False)
    assert [level.name for level in seen] == ["QUIET"] * 3 + ["VERBOSE"] * 2 + ["NORMAL"]
    assert capsys.readouterr().err == "latentalign: x\n" * 3


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (Interrupted(signal.SIGTERM, "saved"), 143, "latentalign: ended by SIGTERM; saved\n"),
        (KeyboardInterrupt(), 130, "latentalign: ended by Ctrl-C\n"),
    ],
)
def test_an_interruption_is_one_message_and_an_exit_code(error, code, message, capsys):
    def end() -> None:
        raise error

    with pytest.raises(SystemExit) as caught:
        guard(end)()
    assert caught.value.code == code
    assert capsys.readouterr().err == message


def test_only_the_leading_process_speaks(capsys, monkeypatch):
    def end() -> None:
        raise KeyboardInterrupt

    monkeypatch.setenv("RANK", "1")
    with pytest.raises(SystemExit):
        guard(end)()
    assert capsys.readouterr().err == ""


def test_ctrl_c_while_the_program_starts_is_no_traceback(capsys, monkeypatch):
    from latentalign import __main__
    from latentalign.cli import main as main_module

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(main_module, "main", interrupted)
    with pytest.raises(SystemExit) as caught:
        __main__.main()
    assert caught.value.code == 130
    assert capsys.readouterr().err == "latentalign: ended by Ctrl-C\n"


@pytest.fixture
def digits(tmp_path, monkeypatch):
    """Options of `train` for the toy task."""
    write_digits(tmp_path / "data")
    tests = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("LATENTALIGN_PLUGINS", "toy_task")
    return [RECIPE, *(f"--set={setting}" for setting in digits_settings(tmp_path / "data"))]


@pytest.mark.slow
@pytest.mark.parametrize("limit", [None, 8 * 10**9])
def test_a_model_beyond_the_memory_is_one_message_and_leaves_nothing(limit, digits, tmp_path):
    import resource

    def lower_limit() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    size = 10**9 if limit is None else 60_000  # one of its matrices needs 14 GB
    arguments = ["train", *digits, "--out", tmp_path / "run", f"--set=model.size={size}"]
    done = subprocess.run(
        [sys.executable, "-m", "latentalign", *map(str, arguments)],
        capture_output=True,
        preexec_fn=lower_limit,
    )
    assert done.returncode == 7, done.stderr.decode()
    assert b"Traceback" not in done.stderr
    assert b"memory is used up when" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_ctrl_c_saves_and_prints_the_command_that_resumes(digits, tmp_path):
    more = ["--set=training.epochs=100000", "--set=training.patience=100000", "--set=training.log_steps=1"]
    arguments = [str(a) for a in ("train", *digits, "--out", tmp_path / "run", *more)]
    # A background job of some shells ignores Ctrl-C; this one must not.
    process = subprocess.Popen(
        [sys.executable, "-m", "latentalign", *arguments],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    metrics = tmp_path / "run" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not metrics.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in errors
    assert b"ended by Ctrl-C; saved after step " in errors
    again = errors.decode().strip().split("\n")[-1]
    assert again.startswith("python -m latentalign train ")
    assert again.endswith(" --resume")
    text = again.replace("python", sys.executable, 1) + " --set=training.epochs=1 -q --json"
    done = subprocess.run(text, shell=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == b"", "quiet"


@pytest.mark.slow
def test_train_prints_a_plain_line_per_log_steps_on_stderr(digits, tmp_path):
    # Not in a forked process: those may have been started before the toy task was made known.
    train = [sys.executable, "-m", "latentalign", "train", *map(str, digits), "--json"]
    more = ["--out", str(tmp_path / "run"), "--set=training.log_steps=2"]
    done = subprocess.run([*train, *more], capture_output=True)
    lines = done.stderr.decode().splitlines()
    steps = [line for line in lines if line.startswith("run: step ")]
    assert [line.split(",")[0] for line in steps] == [f"run: step {n}" for n in (2, 4, 6, 8)]
    assert all(line.endswith(" left") for line in steps)
    assert sum("validation after step" in line for line in lines) == 2
    assert json.loads(done.stdout)["steps"] == 8
