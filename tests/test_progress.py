"""Progress goes to stderr: bars in a terminal, plain lines elsewhere, nothing if the user asks for quiet."""

import io
import sys

import pytest

from latentalign import progress
from latentalign.progress import Bars, Verbosity, detail, format_duration, inform, set_verbosity, track, warn


@pytest.fixture(autouse=True)
def _restore_verbosity():
    yield
    set_verbosity(Verbosity.NORMAL)


class Terminal(io.StringIO):
    """A stream that looks like a terminal."""

    def isatty(self):
        return True


def test_plain_lines_count_work_and_say_what_is_left(capsys, monkeypatch):
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    assert list(track(range(3), "reading", total=3, unit="lines")) == [0, 1, 2]
    out, errors = capsys.readouterr()
    lines = errors.splitlines()
    assert out == ""
    assert len(lines) == 3
    assert lines[0].startswith("reading: 1 of 3 lines, ")
    assert lines[2].endswith("lines/s, 0 s left")


def test_work_that_is_soon_done_prints_no_plain_line(capsys):
    list(track(range(3), "reading", total=3, unit="lines"))
    assert capsys.readouterr().err == ""


def test_quiet_prints_warnings_only(capsys, monkeypatch):
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    set_verbosity(Verbosity.QUIET)
    list(track(range(3), "reading", unit="lines"))
    inform("news")
    warn("danger")
    assert capsys.readouterr().err == "latentalign: danger\n"


def test_details_are_printed_if_asked_for(capsys):
    detail("one")
    set_verbosity(Verbosity.VERBOSE)
    detail("two")
    assert capsys.readouterr().err == "latentalign: two\n"


def test_a_bar_leaves_standard_output_alone(capsys, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Bars() as bars:
        bar = bars.add("translating", 2, unit="lines")
        bar.advance()
        print("a result")
        bars.print("a line that stays")
        bar.finish("done")
    assert capsys.readouterr().out == "a result\n"
    assert "a line that stays" in terminal.getvalue()
    assert "translating: done" in terminal.getvalue()
    assert "a result" not in terminal.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0 s"), (45, "45 s"), (720, "12 min"), (12_000, "3 h 20 min"), (200_000, "2 d 7 h")],
)
def test_durations_are_said_as_people_say_them(seconds, text):
    assert format_duration(seconds) == text
