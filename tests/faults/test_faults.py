"""A few injections of every kind that `make faults` makes hundreds of."""

from pathlib import Path

import pytest

from faults.lab import Lab, Tally, fraction, spread
from faults.promises import PROMISES, write_figures

ROOT = Path(__file__).resolve().parents[2]
SCALES = {
    "resume": 0.05, "kill": 0.01, "instants": 0.05, "sigterm": 0.025, "disk": 0.05, "damage": 0.04,
    "commands": 0.3, "foreign": 0.06, "pickle": 0.3, "occupied": 1.0, "diverged": 0.07, "config": 0.1,
    "metrics": 0.1, "cache": 0.1, "serve": 0.01, "schema": 0.02,
}  # fmt: skip
"""Two processes are killed and resumed in training/test_distributed.py; load takes a minute at least."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Lab:
    return Lab(tmp_path_factory.mktemp("faults"))


@pytest.mark.slow
@pytest.mark.parametrize("name", list(SCALES))
def test_a_promise_is_kept(name, lab):
    tally = PROMISES[name](lab, SCALES[name])
    if tally.skipped:
        pytest.skip(tally.skipped)
    assert tally.tried
    assert not tally.broken, "\n".join([tally.line(), *tally.broken[:5]])


def test_every_promise_is_tried_here_or_takes_several_processes_or_minutes():
    assert PROMISES.keys() - SCALES.keys() == {"processes", "load"}


def test_every_promise_is_documented():
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    for name in PROMISES:
        assert page.count(f"| `{name}` |") == 2, "a row that says what is promised and one for the figures"


def test_a_broken_promise_is_counted():
    tally = Tally("a fault", "survived")
    assert not tally.holds, "what was never tried is not kept"
    tally.check([])
    assert tally.holds
    tally.check(["one thing", "another"])
    assert tally.line() == "a fault: 1/2 survived"
    assert not tally.holds


def test_figures_go_into_their_rows(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("| `kill` | kills | how |\n\n| `kill` | run `make faults` |\n| `disk` | old |\n")
    write_figures(page, {"kill": Tally("", "", tried=3, broken=["x"])})
    assert page.read_text() == "| `kill` | kills | how |\n\n| `kill` | 2 of 3 |\n| `disk` | old |\n"
    write_figures(page, {"disk": Tally("", "", tried=1, note="in 5 s")})
    assert page.read_text().endswith("| `disk` | 1 of 1; in 5 s |\n")
    with pytest.raises(SystemExit, match="no row for metrics"):
        write_figures(page, {"metrics": Tally("", "")})


def test_a_fraction_is_spread_and_never_nothing():
    assert fraction(0.001, 200) == 1
    assert fraction(2, 200) == 200
    assert spread(range(10), 3) == [3, 6, 9]
    assert spread(range(4), 4) == [0, 1, 2, 3]
