"""Rows as they are typed."""

import pytest

from latentalign.bench.rows import CERTIFIED, label, paper_rows, parse_row, parse_rows
from latentalign.core.objectives import OBJECTIVES
from latentalign.errors import InputError


def test_options_are_numbers_truths_or_text():
    row = parse_row("gumbel:n=2:straight_through=true:temperature=1e-1")
    assert row.options == {"n": 2, "straight_through": True, "temperature": 0.1}
    assert parse_row("hard-sample:baseline=none").options == {"baseline": "none"}
    assert parse_row(" rws").options == {}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_is_a_row_and_is_written_as_it_is_read(name):
    assert label(name, parse_row(name).options) == name


def test_a_label_is_what_was_typed():
    for text in (
        *CERTIFIED,
        "gumbel:straight_through=true:n=2",
        "marginal:tolerance=0.01:tail=sample",
        "marginal:prior=jump",
        "soft:prior=monotone:prior.null=true",
    ):
        row = parse_row(text)
        assert label(row.name, row.options) == text


def test_soft_is_always_measured_and_nothing_twice():
    names = [label(r.name, r.options) for r in parse_rows("rws,rws:n=3,soft,rws", trained=False)]
    assert names == ["soft", "rws", "rws:n=3"]


def test_certified_rows_are_for_trained_models():
    names = [[label(r.name, r.options) for r in parse_rows(None, trained=t)] for t in (False, True)]
    assert names == [[*paper_rows()], [*paper_rows(), *CERTIFIED]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("margnal", "'marginal'"),
        ("rws:m=3", "'m'"),
        ("rws:n", "key=value"),
        ("soft,,rws", "unknown objective"),
        ("marginal:tolerance=-0.5", "negative"),
        ("marginal:prior=jmp", "'jump'"),
        ("rws:prior=jump", "not defined for a prior that is a chain"),
    ],
)
def test_bad_rows_are_named(text, message):
    with pytest.raises(InputError, match=message):
        parse_rows(text, trained=False)
