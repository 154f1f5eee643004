"""How results are printed for people."""

import pytest

from latentalign.cli.common import format_figure


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (485.3, "485.3"),
        (3.0, "3"),
        (1.610249, "1.6102"),
        (0.0, "0"),
        (7, "7"),
        ("a", "a"),
        ([1.5, 20.0], "1.5 .. 20"),
    ],
)
def test_figures_have_at_most_four_decimals_and_no_empty_ones(value, text):
    assert format_figure(value) == text
