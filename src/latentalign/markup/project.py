"""Project the markup of a sentence onto its translation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from latentalign.errors import InputError
from latentalign.links.words import Word, find_words
from latentalign.markup.document import Document, Node
from latentalign.markup.entities import escape
from latentalign.markup.html_parser import parse_html
from latentalign.markup.layout import nest, place_nodes
from latentalign.markup.placeholders import PATTERNS, parse_placeholders
from latentalign.markup.places import Place, Placer
from latentalign.markup.words import LinkTable, TextWords
from latentalign.markup.xml_parser import parse_xml, require_characters

KINDS = ("html", "xml", "placeholders")


@dataclass(frozen=True)
class ProjectedSpan:
    """An element, void tag, comment or placeholder, and where it went."""

    markup: str
    """Its start tag, or all of it if it has no content, as in the source."""
    source: tuple[int, int]
    """Start and end of its content in the source text without markup, in characters."""
    target: tuple[int, int]
    """Start and end of its content in the target text, in characters."""
    confidence: float
    """Mean probability of the links that decided; 0 if none did."""

    def to_json(self) -> dict[str, Any]:
        """The span as values that JSON can represent."""
        found = {"markup": self.markup, "source": list(self.source), "target": list(self.target)}
        return {**found, "confidence": round(self.confidence, 6)}


@dataclass(frozen=True)
class Projection:
    """A translation with the markup of its source."""

    text: str
    spans: tuple[ProjectedSpan, ...]
    """Everything that was moved, in the order of the source."""


def parse_markup(source: str, kind: str = "html", *, placeholders: Sequence[str] = PATTERNS) -> Document:
    """A sentence separated into text and markup. `placeholders` are regular expressions."""
    require_kind(kind)
    if kind == "html":
        return parse_html(source)
    if kind == "xml":
        return parse_xml(source)
    return parse_placeholders(source, placeholders)


def require_kind(kind: str) -> None:
    """Refuse a kind of markup that does not exist."""
    if kind not in KINDS:
        raise InputError(f"the kind of markup must be one of {', '.join(KINDS)}, got {kind!r}")


def project(
    source: str,
    target: str,
    links: Iterable[Sequence[float]],
    kind: str = "html",
    *,
    split: bool = False,
    placeholders: Sequence[str] = PATTERNS,
) -> Projection:
    """The target with the markup of the source, moved along word links.

    `source` has markup and `target` has none. Links are (source word, target word) or (source word, target word,
    probability). Words are counted from 0; whitespace separates them in the text without markup.

    Each element of the source occurs exactly once in the result, around one stretch of the target. With `split`, an
    element without nested markup and without an id is repeated for every stretch that its words are linked to.
    """
    document = parse_markup(source, kind, placeholders=placeholders)
    return project_document(document, target, links, split=split)


def project_document(
    document: Document,
    target: str,
    links: Iterable[Sequence[float]],
    *,
    words: tuple[Sequence[Word], Sequence[Word]] | None = None,
    split: bool = False,
) -> Projection:
    """The same for a parsed source. `words` are those that the links count, if whitespace does not separate them."""
    if document.kind == "xml":
        require_characters(target, "the target")
    source_words, target_words = words or (find_words(document.text), find_words(target))
    table = LinkTable(links, len(source_words), len(target_words))
    placer = Placer(document, TextWords(document.text, source_words), TextWords(target, target_words), table)
    root, places = place_nodes(placer, split=split)
    kept = keep_existing(places, target) if document.kind == "placeholders" else places
    nest(root, kept, placer)
    spans = (
        ProjectedSpan(
            place.node.opening, (place.node.start, place.node.end), (place.start, place.end), place.confidence
        )
        for place in places
    )
    return Projection(render(root, target, document), tuple(spans))


def keep_existing(places: list[Place], target: str) -> list[Place]:
    """The placeholders that have to be inserted: a translation may have some of them already."""
    missing, positions = [], dict[str, int]()
    for place in places:
        text = place.node.opening
        start = target.find(text, positions.get(text, 0))
        if start < 0:
            missing.append(place)
        else:
            positions[text] = place.end = start + len(text)
            place.start, place.confidence = start, 1.0
    return missing


def render(root: Place, target: str, document: Document) -> str:
    """The target text with its tags."""
    pieces, position, wants_space = list[str](), 0, False

    def add(piece: str) -> None:
        nonlocal wants_space
        if piece:
            gap = " " if wants_space and not piece[0].isspace() else ""
            pieces.append(gap + piece)
            wants_space = False

    for node, place, opens in walk_tags(root):
        text = target[position:place]
        add(text if document.kind == "placeholders" else escape(text, document.spelling))
        position = place
        if opens and node.spaced and not node.glued[0] and pieces and not pieces[-1][-1].isspace():
            wants_space = True
        add(node.opening if opens else node.closing)
        wants_space |= opens and node.spaced and not node.glued[1]
    return "".join(pieces)


def walk_tags(root: Place) -> Iterator[tuple[Node, int, bool]]:
    """(node, position, whether it starts there) of all tags in the order of the target; the root's end comes last."""
    stack = [(root, iter(root.children))]
    while stack:
        place, children = stack[-1]
        child = next(children, None)
        if child is None:
            yield place.node, place.end, False
            stack.pop()
        else:
            yield child.node, child.start, True
            stack.append((child, iter(child.children)))
