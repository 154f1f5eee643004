"""Projects generated markup onto generated targets along generated links, and checks what comes out.

    PYTHONPATH=tests python -m fuzz.markup 10000      that many HTML fragments, and as many XML fragments

The output must be well-formed for parsers that this project did not write, every tag of the source must occur exactly
once, and the text between the tags must be the target, character by character.
"""

from __future__ import annotations

import sys
from collections import Counter
from html.parser import HTMLParser
from xml.parsers import expat

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from latentalign.links.words import find_words
from latentalign.markup.html_parser import VOID
from latentalign.markup.project import Projection, parse_markup, project

LETTERS = "ab Äß 中 ,.!(\u00a0"
TEXT = st.text(st.sampled_from(LETTERS), max_size=8)
ENTITIES = st.sampled_from(["&amp;", "&lt;", "&gt;", "&#228;", "&#x4e2d;"])
HTML_TEXT = TEXT | ENTITIES | st.sampled_from(["&nbsp;", "&", "< ", "&copy", ">", '"'])
NAMES = ["b", "i", "a", "p", "li", "div", "x-y", "SPAN", "td", "svg"]
VALUES = ["", " id=1", ' href="a>b"', " title='\"<b>'", ' x="&amp;é"', "  data-x = '1' ", " disabled"]
ATOMS = ["<br>", "<br/>", "<IMG src='>'>", "<hr />", "<!-- a --> ", "<!---->", "<wbr>", "<input value=a/b>"]
OPAQUE = ["<script>if (a<b) '</b>'</script>", "<style>p > b {}</style>", "<svg/>"]


def element(name: str, attributes: str, content: list[str]) -> str:
    return f"<{name}{attributes}>{''.join(content)}</{name}>"


HTML = st.recursive(
    HTML_TEXT | st.sampled_from([*ATOMS, *OPAQUE]),
    lambda inner: st.builds(
        element, st.sampled_from(NAMES), st.sampled_from(VALUES), st.lists(inner, max_size=4)
    ),
    max_leaves=12,
)
FRAGMENTS = st.lists(HTML, max_size=6).map("".join)
SLOPPY = [
    "a<",
    "<title><b></title>",
    "<textarea><!--",
    "<b>",
    "</b>",
    "</i>",
    "<li>",
    "<p>",
    "</>",
    "</ x>",
    "<!x>",
    "<?y>",
    "<a href='",
    "<!--",
    "<td>",
    "</p>",
]
SLOPPY_FRAGMENTS = st.lists(HTML | st.sampled_from(SLOPPY), max_size=8).map("".join)

XML_VALUES = ["", ' id="1"', " href='a>b'", ' x="&amp;é"', '  y = "\'" ']
XML_ATOMS = ["<x/>", '<x id="1" />', "<!-- <a> -->", "<![CDATA[ <b> & ]]>", "<?php '>' ?>", "<br/>"]
XML = st.recursive(
    TEXT | ENTITIES | st.sampled_from(XML_ATOMS),
    lambda inner: st.builds(
        element,
        st.sampled_from(["g", "b", "ns:i", "é"]),
        st.sampled_from(XML_VALUES),
        st.lists(inner, max_size=4),
    ),
    max_leaves=12,
)
XML_FRAGMENTS = st.lists(XML, max_size=6).map("".join)
PLACEHOLDERS = st.lists(
    TEXT | st.sampled_from(["{name}", "%s", "{{0}}", "${x}", "%1$d", " ", "{0}, "]), max_size=8
).map("".join)
TARGETS = st.text(st.sampled_from(LETTERS + "<>&;\r\"'{%"), max_size=24) | st.just("&lt;b&gt; ]]> &amp")


@st.composite
def links(draw, source: str, target: str, kind: str):
    """Links between the words of a pair, with or without probabilities."""
    n, m = len(find_words(parse_markup(source, kind).text)), len(find_words(target))
    if not n or not m:
        return []
    pairs = st.tuples(st.integers(0, n - 1), st.integers(0, m - 1))
    triples = st.tuples(st.integers(0, n - 1), st.integers(0, m - 1), st.floats(0, 1))
    return draw(st.lists(pairs, max_size=10) | st.lists(triples, max_size=10))


@st.composite
def cases(draw, sources: st.SearchStrategy[str], kind: str):
    """A source with markup, a target, and links between them."""
    source, target = draw(sources), draw(TARGETS)
    return source, target, draw(links(source, target, kind))


class Reader(HTMLParser):
    """Python's own parser of HTML: text, tags, and whether every end tag ends the element that is open."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.text, self.stack, self.tags, self.balanced = "", [], Counter(), True
        self.feed(source)
        self.close()
        self.balanced &= not self.stack

    def handle_starttag(self, tag, attributes):
        self.tags[self.get_starttag_text()] += 1
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags[self.get_starttag_text()] += 1

    def handle_endtag(self, tag):
        self.balanced &= bool(self.stack) and self.stack.pop() == tag

    def handle_data(self, data):
        if not {"script", "style"} & set(self.stack):
            self.text += data

    def handle_comment(self, data):
        self.tags[f"<!--{data}"] += 1


def check(kind: str, source: str, target: str, found: Projection) -> None:
    """What holds for every projection."""
    before, after = parse_markup(source, kind), parse_markup(found.text, kind)
    tags = [Counter((node.opening, node.name) for node in document.nodes) for document in (before, after)]
    assert tags[0] == tags[1], found.text
    assert after.text == target, found.text
    assert len(found.spans) == len(before.nodes)
    spans = dict(zip(before.nodes, (span.target for span in found.spans), strict=True))
    for outer in before.nodes:
        for inner in outer.children:
            assert spans[outer][0] <= spans[inner][0] <= spans[inner][1] <= spans[outer][1], found.text
    assert all(0 <= span.confidence <= 1 for span in found.spans)
    assert all(0 <= span.target[0] <= span.target[1] <= len(target) for span in found.spans)


def check_html(case: tuple[str, str, list]) -> None:
    """Well-formed elements in, well-formed elements out."""
    source, target, pairs = case
    found = project(source, target, pairs)
    check("html", source, target, found)
    output = Reader(found.text)
    assert output.balanced, found.text
    assert output.text == target, found.text
    if Reader(source).balanced:
        assert output.tags == Reader(source).tags, found.text


def check_sloppy_html(case: tuple[str, str, list]) -> None:
    """Anything in, well-formed elements out."""
    source, target, pairs = case
    found = project(source, target, pairs)
    check("html", source, target, found)
    nodes = parse_markup(found.text).nodes
    assert all(node.closing for node in nodes if node.holds)
    assert project(found.text, target, []).text.count("</") == found.text.count(
        "</"
    )  # nothing is left to mend


def check_xml(case: tuple[str, str, list]) -> None:
    """Well-formed in, well-formed out, with the same tags."""
    source, target, pairs = case
    found = project(source, target, pairs, "xml")
    check("xml", source, target, found)
    texts: list[str] = []
    inside: list[int] = []
    parser = expat.ParserCreate()
    parser.StartCdataSectionHandler = lambda: inside.append(1)
    parser.EndCdataSectionHandler = lambda: inside.clear()
    parser.CharacterDataHandler = lambda data: inside or texts.append(data)
    parser.Parse(f"<root>{found.text.removeprefix('<?xml')}</root>", True)
    assert "".join(texts) == target


def check_placeholders(case: tuple[str, str, list]) -> None:
    """Every placeholder once, and nothing added besides spaces."""
    source, target, pairs = case
    found = project(source, target, pairs, "placeholders")
    inserted = Counter(span.markup for span in found.spans)
    present = Counter()
    for markup, count in inserted.items():
        present[markup] = min(count, target.count(markup))
    length = sum(len(m) * (count - present[m]) for m, count in inserted.items())
    assert len("".join(found.text.split())) == len("".join(target.split())) + length
    assert all(found.text.count(markup) >= count for markup, count in inserted.items())


CHECKS = {
    "html": (cases(FRAGMENTS, "html"), check_html),
    "sloppy html": (cases(SLOPPY_FRAGMENTS, "html"), check_sloppy_html),
    "xml": (cases(XML_FRAGMENTS, "xml"), check_xml),
    "placeholders": (cases(PLACEHOLDERS, "placeholders"), check_placeholders),
}


def run(name: str, examples: int, **options: object) -> int:
    """Check that many generated cases of a kind; returns how many were tried."""
    strategy, check_one = CHECKS[name]
    tried = 0

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), **options)
    @given(strategy)
    def one(case):
        nonlocal tried
        tried += 1
        check_one(case)

    one()
    return tried


def main() -> None:
    examples = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    for name in CHECKS:
        print(f"{name}: {run(name, examples, database=None, derandomize=True)} cases, no failure", flush=True)


if __name__ == "__main__":
    main()
