"""Placeholders in plain text, such as {name}, {{0}}, ${x} and %s."""

from __future__ import annotations

import re
from collections.abc import Sequence

from latentalign.errors import InputError
from latentalign.markup.document import Document, Node

PATTERNS = (
    r"\{\{[^{}]*\}\}",
    r"\$?\{[^{}]*\}",
    r"%(?:[0-9]+\$|\([^()\s]*\))?[-+#0]*(?:[0-9]+|\*)?(?:\.[0-9]+)?(?:hh?|ll?|[Lzjtq])?[diouxXeEfFgGaAcsrp@]",
)
"""Regular expressions of the placeholders that are known by default."""


def compile_patterns(patterns: Sequence[str]) -> re.Pattern[str]:
    """One regular expression for all patterns."""
    for pattern in patterns:
        try:
            if re.compile(pattern).match(""):
                raise InputError(
                    f"the placeholder pattern {pattern!r} matches empty text; make it match something"
                )
        except re.error as error:
            raise InputError(
                f"the placeholder pattern {pattern!r} is no regular expression: {error}"
            ) from None
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns))


def parse_placeholders(source: str, patterns: Sequence[str] = PATTERNS) -> Document:
    """The text of a line without its placeholders. One that stood between spaces takes one of them with it."""
    root, pieces, length, position = Node("", holds=True), list[str](), 0, 0
    for found in compile_patterns(patterns).finditer(source):
        text = source[position : found.start()]
        pieces.append(text)
        length += len(text)
        position = found.end()
        before = source[max(0, found.start() - 1) : found.start()]
        after = source[position : position + 1]
        glued = (bool(before) and not before.isspace(), bool(after) and not after.isspace())
        root.children.append(
            Node(found[0], name="#placeholder", start=length, end=length, spaced=True, glued=glued)
        )
        if after.isspace() and not glued[0]:
            position += 1
    root.end = length + len(source) - position
    return Document("".join([*pieces, source[position:]]), root, "placeholders")
