"""XML fragments, read strictly: what is not well-formed is an InputError with its line and column."""

from __future__ import annotations

import re
from xml.parsers import expat

from latentalign.errors import InputError
from latentalign.markup.document import Document, TreeBuilder
from latentalign.markup.entities import ENTITY, add_text

_PIECE = re.compile(
    r"""(?P<atom><!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>)|(?P<end></[^>]*>)"""
    r"""|(?P<start><(?P<name>[^\s/>]+)(?:[^"'>]|"[^"]*"|'[^']*')*>)|(?P<text>[^<]+)""",
    re.DOTALL,
)
_DECLARATION = re.compile(r"<\?xml(?=\s)")
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
WRAPPER = "<_>"
_NAMED = {"&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&apos;": "'"}


def parse_xml(source: str) -> Document:
    """The text and the elements of an XML fragment. Comments, instructions and CDATA sections are no text."""
    require_well_formed(source)
    builder = TreeBuilder("xml")
    for piece in _PIECE.finditer(source):
        if piece["text"]:
            add_text(builder, piece[0], decode)
        elif piece["atom"]:
            builder.add_atom(piece[0], "#cdata" if piece[0].startswith("<![") else "#comment")
        elif piece["end"]:
            builder.close(piece[0])
        elif piece[0].endswith("/>"):
            builder.add_atom(piece[0], piece["name"])
        else:
            builder.open(piece[0], piece["name"])
    return builder.finish()


def require_well_formed(source: str) -> None:
    """Raise unless a fragment is well-formed within an element. Only the five predefined entities are known."""
    require_characters(source, "the source")
    if _DECLARATION.match(source):  # a declaration may only stand at the start of a document
        source = "<?x-l" + source[len("<?xml") :]
    parser, unclosed = expat.ParserCreate(), list[tuple[str, int, int]]()
    parser.StartElementHandler = lambda name, _: unclosed.append(
        (name, parser.CurrentLineNumber, parser.CurrentColumnNumber)
    )
    parser.EndElementHandler = lambda _: unclosed.pop()
    try:
        parser.Parse(f"{WRAPPER}{source}</_>", True)
    except expat.ExpatError as error:
        reason, line, column = expat.errors.messages[error.code], error.lineno, error.offset
        if reason == expat.errors.XML_ERROR_TAG_MISMATCH and len(unclosed) > 1:
            name, line, column = unclosed[-1]
            reason = f"<{name}> is not closed before another element ends"
        column += 1 - len(WRAPPER) * (line == 1)
        raise InputError(
            f"line {line}, column {column} of the markup: not well-formed XML: {reason}; correct it, "
            "or read it as HTML, where errors are forgiven"
        ) from None


def require_characters(text: str, name: str) -> None:
    """Raise if a text has characters that XML cannot represent."""
    if found := _FORBIDDEN.search(text):
        raise InputError(
            f"{name} contains U+{ord(found[0]):04X} (character {found.start() + 1}), which XML cannot represent; "
            "remove it"
        )


def decode(text: str) -> str:
    """Text in which references are replaced by their characters."""
    return ENTITY.sub(lambda found: _decode_reference(found[0]), text)


def _decode_reference(reference: str) -> str:
    if reference in _NAMED:
        return _NAMED[reference]
    return chr(int(reference[3:-1], 16) if reference[2] == "x" else int(reference[2:-1]))
