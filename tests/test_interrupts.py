"""Ctrl-C and SIGTERM end a process with one message, and never twice."""

import os
import signal
import threading

import pytest

from latentalign.errors import Interrupted
from latentalign.interrupts import (
    command_again,
    first_interruption,
    handle_signals,
    program_name,
    raise_interrupted,
    say_how_to_continue,
)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_becomes_an_interruption_with_the_code_of_shells(number, code):
    before = signal.getsignal(number)
    with pytest.raises(Interrupted) as caught, handle_signals(raise_interrupted):
        os.kill(os.getpid(), number)
    assert caught.value.exit_code == code
    assert isinstance(caught.value, KeyboardInterrupt), "notebooks and scripts know this one"
    assert signal.getsignal(number) is before


def test_an_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with handle_signals(raise_interrupted):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_forked_process_ends_without_a_message():
    with handle_signals(raise_interrupted):
        child = os.fork()
        if child == 0:
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            finally:
                os._exit(1)  # an exception would be reported by whoever has forked
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM


def test_other_threads_cannot_handle_signals_and_go_on():
    done = []

    def work():
        with handle_signals(raise_interrupted):
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]


def end_twice(first, second):
    try:
        raise first
    finally:
        raise second


def test_the_first_of_several_interruptions_counts():
    with pytest.raises(KeyboardInterrupt) as caught:
        end_twice(Interrupted(signal.SIGTERM, "saved"), Interrupted(signal.SIGINT))
    assert first_interruption(caught.value).saved == "saved"
    assert first_interruption(KeyboardInterrupt()).exit_code == 130


def test_the_command_that_continues_can_be_typed_again():
    given = ["/usr/bin/latentalign", "train", "my recipe.toml", "--overwrite", "--out", "run"]
    again = command_again("--resume", without=["--overwrite"], arguments=given)
    assert again == "latentalign train 'my recipe.toml' --out run --resume"
    assert command_again("--resume", arguments=[*given[:3], "--resume"]).count("--resume") == 1


def test_the_command_is_named_as_it_was_started():
    assert program_name("/x/latentalign/__main__.py", {}) == ["python", "-m", "latentalign"]
    world = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    assert program_name("x", world) == ["torchrun", "--nproc-per-node", "2", "-m", "latentalign"]


def test_a_second_signal_does_not_hide_what_was_saved(monkeypatch):
    monkeypatch.setattr("sys.argv", ["latentalign", "train", "r", "--out", "o"])
    with pytest.raises(Interrupted) as caught, say_how_to_continue("--resume"):
        end_twice(Interrupted(signal.SIGINT, "saved after step 3"), Interrupted(signal.SIGTERM))
    assert first_interruption(caught.value).saved == (
        "saved after step 3; continue with\nlatentalign train r --out o --resume"
    )
    assert first_interruption(caught.value).exit_code == 130
