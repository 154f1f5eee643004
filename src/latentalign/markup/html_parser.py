"""HTML fragments, read as leniently as browsers read them.

Tags, comments and declarations are kept as they are. End tags that were left out are added, and end tags without an
element are dropped. An end tag also ends the elements that were opened inside its element. The content of scripts,
styles and other elements that browsers do not read as HTML belongs to the element's tag. A `<` that starts no
complete tag is text.
"""

from __future__ import annotations

import html
import re

from latentalign.markup.document import Document, TreeBuilder
from latentalign.markup.entities import add_text


def set_of(names: str) -> frozenset[str]:
    """Names that spaces separate."""
    return frozenset(names.split())


VOID = set_of(
    "area base basefont bgsound br col embed frame hr img input keygen link meta param source track wbr"
)
OPAQUE = set_of("iframe noembed noframes plaintext script style textarea title xmp")
"""Elements whose content is no markup. It is kept, not translated."""
BLOCKS = set_of(
    "address article aside blockquote body caption center dd details dialog dir div dl dt fieldset figcaption figure "
    "footer form h1 h2 h3 h4 h5 h6 head header hgroup html legend li main menu nav ol optgroup option p pre search "
    "section summary table tbody td tfoot th thead tr ul"
)
BREAKS = BLOCKS | {"br", "hr"}
CELLS, ROWS, PARTS = {"td", "th"}, {"tr", "td", "th"}, {"tbody", "thead", "tfoot", "tr", "td", "th"}
ENDED_BY = {
    "li": {"li"}, "dt": {"dt", "dd"}, "dd": {"dt", "dd"}, "option": {"option", "optgroup"}, "optgroup": {"optgroup"},
    "td": PARTS, "th": PARTS, "tr": PARTS - CELLS, "thead": PARTS - ROWS, "tbody": PARTS - ROWS,
    "p": BLOCKS - {"caption", "legend", "option", "optgroup", "body", "head", "html"},
}  # fmt: skip
"""The tags that end an element whose own end tag may be left out."""

_TAG = re.compile(r"<(/?)([A-Za-z][^ \t\n\r\f/>]*)")
_NAME = re.compile(r"[ \t\n\r\f/]*(>|[^ \t\n\r\f/>][^ \t\n\r\f/>=]*)")  # the first character may be "="
_VALUE = re.compile(r"[ \t\n\r\f]*=[ \t\n\r\f]*")
_UNQUOTED = re.compile(r"[^ \t\n\r\f>]*")
_COMMENT_END = re.compile(r"--!?>")


def parse_html(source: str) -> Document:
    """The text and the elements of an HTML fragment. Every string is accepted."""
    builder, position, text_start = TreeBuilder("html"), 0, 0
    while (position := source.find("<", position)) >= 0:
        end = _markup_end(source, position)
        if end is None:
            position += 1
            continue
        add_text(builder, source[text_start:position], html.unescape)
        position = text_start = _add_markup(builder, source, position, end)
    add_text(builder, source[text_start:], html.unescape)
    while len(builder.open_nodes) > 1:
        builder.close(f"</{builder.open_nodes[-1].name}>")
    return builder.finish()


def _markup_end(source: str, start: int) -> int | None:
    """Where the markup that starts with this `<` ends; None if it is text."""
    if source.startswith("<!--", start):
        if short := re.compile("<!---?>").match(source, start):
            return short.end()
        found = _COMMENT_END.search(source, start + 4)
        return found.end() if found else len(source)
    if _TAG.match(source, start):
        return _tag_end(source, start)
    if re.compile(r"<[!?]|</[^>]").match(source, start):  # browsers read all of these as comments
        return source.find(">", start) + 1 or None
    return None


def _tag_end(source: str, start: int) -> int | None:
    """Where a tag ends: at the first `>` outside the quoted values of its attributes."""
    opening = _TAG.match(source, start)
    assert opening
    position = opening.end()
    while name := _NAME.match(source, position):
        position = name.end()
        if name[1] == ">":
            return position
        if equals := _VALUE.match(source, position):
            position = equals.end()
            quote = source[position : position + 1]
            if quote in ('"', "'"):
                position = source.find(quote, position + 1) + 1
                if not position:
                    return None
            elif value := _UNQUOTED.match(source, position):
                position = value.end()
    return None


def _add_markup(builder: TreeBuilder, source: str, start: int, end: int) -> int:
    """Add a tag or comment; return where the text after it starts."""
    raw, tag = source[start:end], _TAG.match(source, start)
    if tag is None:
        is_open = raw.startswith("<!--") and not re.compile(r"(?s)<!---?>|<!--.*--!?>").fullmatch(raw)
        builder.add_atom(raw + "-->" * is_open, "#comment")
        return end
    name = tag[2].lower()
    if tag[1]:
        _close_element(builder, raw, name)
        return end
    if name in OPAQUE and not raw.endswith("/>"):
        stop = re.compile(rf"(?i)</{re.escape(name)}(?=[ \t\n\r\f/>])").search(source, end)
        last = _tag_end(source, stop.start()) if stop else None
        closing = "" if last else f"</{name}>"
        _end_omitted(builder, name)
        builder.add_atom(source[start:last] + closing, name)
        return last or len(source)
    _end_omitted(builder, name)
    breaks = name in BREAKS
    if name in VOID or raw.endswith("/>"):
        builder.add_atom(raw, name, breaks=breaks)
    else:
        builder.open(raw, name, breaks=breaks)
    return end


def _end_omitted(builder: TreeBuilder, name: str) -> None:
    """End elements whose end tag was left out before this tag."""
    while name in ENDED_BY.get(builder.open_nodes[-1].name, ()):
        builder.close(f"</{builder.open_nodes[-1].name}>")


def _close_element(builder: TreeBuilder, raw: str, name: str) -> None:
    """End the innermost element of this name, and everything that was opened inside it."""
    if all(node.name != name for node in builder.open_nodes[1:]):
        return
    while builder.open_nodes[-1].name != name:
        builder.close(f"</{builder.open_nodes[-1].name}>")
    builder.close(raw)
