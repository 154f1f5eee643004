"""Generated markup, targets and links: the output is well-formed, complete, and its text is the target."""

import pytest

from fuzz import markup
from latentalign.markup import layout


@pytest.mark.parametrize("kind", markup.CHECKS)
def test_no_tag_is_lost_or_duplicated_and_the_text_is_the_target(kind, thorough):
    assert markup.run(kind, 150 if thorough else 30) > 10


def test_the_checks_notice_ranges_that_cross(monkeypatch):
    source, target, links = "<a><b>X</b> <u>Y</u></a> <i>Z</i>", "x z y", [(0, 0), (1, 2), (2, 1)]
    markup.check_html((source, target, links))
    monkeypatch.setattr(layout, "extend_over_children", lambda *_: None)
    with pytest.raises(AssertionError):
        markup.check_html((source, target, links))
