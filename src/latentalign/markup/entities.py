"""Characters and entities: how text stands between tags."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from latentalign.markup.document import TreeBuilder

ENTITY = re.compile(r"&(?:#[0-9]+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]*);")
ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"}
"""A carriage return would be read as a line end."""


def add_text(builder: TreeBuilder, raw: str, decode: Callable[[str], str]) -> None:
    """Add text as the source writes it, and remember which characters it writes as entities."""
    builder.add_text(decode(raw))
    for found in ENTITY.finditer(raw):
        character = decode(found[0])
        if len(character) == 1:
            builder.note_spelling(character, found[0])
    builder.plain.update(ENTITY.sub("", raw))


def escape(text: str, spelling: Mapping[str, str]) -> str:
    """Text as it may stand between tags."""
    table = {**ESCAPES, **spelling}
    return "".join(table.get(character, character) for character in text)
