"""A sentence with markup: its plain text, and a tree of elements with their places in that text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from latentalign.errors import InputError

DEEPEST = 200
"""Elements that may enclose each other."""


@dataclass(eq=False)
class Node:
    """An element, or something without content: a void tag, a comment, a placeholder."""

    opening: str
    """The bytes of the start tag, or of the whole node if it has no content."""
    closing: str = ""
    name: str = ""
    start: int = 0
    """Where its content starts in the plain text."""
    end: int = 0
    breaks: bool = False
    """Whether words end at its tags, as at a line break or a paragraph."""
    spaced: bool = False
    """Whether it stood between spaces or ends of the line, and wants to do so again: placeholders only."""
    glued: tuple[bool, bool] = (True, True)
    """Whether other characters touched it on the left and on the right."""
    holds: bool = False
    """Whether it is an element that may have content."""
    children: list[Node] = field(default_factory=list)

    def walk(self) -> Iterator[Node]:
        """This node and everything in it, in the order of the source."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True)
class Document:
    """A sentence whose markup has been separated from its text."""

    text: str
    """The text without markup. Entities are replaced by their characters."""
    root: Node
    """Encloses everything; it has no tags."""
    kind: str
    spelling: Mapping[str, str] = field(default_factory=dict)
    """Characters that the source always writes as entities."""

    @property
    def nodes(self) -> list[Node]:
        """Everything except the root, in the order of the source."""
        return list(self.root.walk())[1:]


class TreeBuilder:
    """Collects text and nodes in the order of the source."""

    def __init__(self, kind: str) -> None:
        self.kind, self.pending = kind, False
        self.pieces: list[str] = []
        self.length, self.last = 0, ""
        self.root = Node("", holds=True)
        self.open_nodes = [self.root]
        self.entities: dict[str, str] = {}
        self.plain: set[str] = set()

    def add_text(self, text: str) -> None:
        """Text with entities replaced. After a break, it starts a new word."""
        if not text:
            return
        if self.pending and self.last and not self.last.isspace() and not text[0].isspace():
            text = " " + text
        self.pending = False
        self.pieces.append(text)
        self.length += len(text)
        self.last = text[-1]

    def add_atom(self, opening: str, name: str, *, breaks: bool = False) -> None:
        """A node without content."""
        node = Node(opening, name=name, start=self.length, end=self.length, breaks=breaks)
        self.open_nodes[-1].children.append(node)
        self.pending |= breaks

    def open(self, opening: str, name: str, *, breaks: bool = False) -> None:
        """An element starts."""
        if len(self.open_nodes) > DEEPEST:
            raise InputError(f"elements are nested more than {DEEPEST} deep; split the text or remove some")
        node = Node(opening, name=name, start=self.length, breaks=breaks, holds=True)
        self.open_nodes[-1].children.append(node)
        self.open_nodes.append(node)
        self.pending |= breaks

    def close(self, closing: str) -> None:
        """The innermost element ends."""
        node = self.open_nodes.pop()
        node.closing, node.end = closing, self.length
        self.pending |= node.breaks

    def note_spelling(self, character: str, entity: str) -> None:
        """Remember how the source writes a character."""
        self.entities.setdefault(character, entity)

    def finish(self) -> Document:
        """The whole document; every element must be closed."""
        self.root.end = self.length
        spelling = {c: entity for c, entity in self.entities.items() if c not in self.plain}
        return Document("".join(self.pieces), self.root, self.kind, spelling)
