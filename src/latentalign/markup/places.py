"""Where each element goes: the ranges of the target text that its words are linked to.

A target word belongs to an element if at least half of the probability of its links leads into the element. The
element covers one stretch of such words. Words in between are covered too if they are not linked, or if they are
punctuation that no other element claims. If other words interrupt, only the best stretch is covered: the one that
keeps the most nested elements, then the most probable one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from latentalign.markup.document import Document, Node
from latentalign.markup.words import LinkTable, TextWords, is_mark


@dataclass(eq=False)
class Place:
    """Where a node stands in the target text, in characters."""

    node: Node
    start: int
    end: int
    confidence: float
    words: range = range(0)
    """The target words that it covers."""
    linked: bool = True
    """Whether links decided on its place."""
    children: list[Place] = field(default_factory=list)


class Placer:
    """Finds the place of every node of a document in the target text."""

    def __init__(self, document: Document, source: TextWords, target: TextWords, links: LinkTable) -> None:
        self.source, self.target, self.links = source, target, links
        self.root, self.nodes = document.root, document.nodes
        self.parents = {child: node for node in document.root.walk() for child in node.children}
        self.words = {node: source.covered(node.start, node.end) for node in (self.root, *self.nodes)}
        self.claims: dict[Node, dict[int, float]] = {}
        self.owners: dict[int, list[Node]] = {}
        for node in self.nodes:
            self.claim(node)

    def claim(self, node: Node) -> None:
        """Note which target words belong to an element, with the probability of their links into it."""
        mass, found = self.links.mass(self.words[node]), {}
        for j, p in mass.items():
            rest = self.links.total[j] - p
            tied = abs(p - rest) < 1e-9
            if (p > rest and not tied) or (tied and not self.is_taken(j, node)):
                found[j] = p
        if not found and mass:  # better shared words than none
            best = max(mass.values())
            found = {j: p for j, p in mass.items() if p == best}
        self.claims[node] = found
        for j in found:
            self.owners.setdefault(j, []).append(node)

    def is_taken(self, j: int, node: Node) -> bool:
        """Whether an element that does not enclose this one claims a target word."""
        return any(not encloses(other, node) for other in self.owners.get(j, ()))

    def fills(self, j: int, node: Node) -> bool:
        """Whether a word between words of an element may be covered by it."""
        if j not in self.links.total:
            return True
        others = (o for o in self.owners.get(j, ()) if not encloses(o, node) and not encloses(node, o))
        return self.target.is_punctuation(j) and not any(others)

    def stretches(self, node: Node) -> list[range]:
        """The stretches of target words that belong to an element, without interruption."""
        found: list[range] = []
        for j in sorted(self.claims[node]):
            if found and all(self.fills(k, node) for k in range(found[-1].stop, j)):
                found[-1] = range(found[-1].start, j + 1)
            else:
                found.append(range(j, j + 1))
        return found

    def rank(self, node: Node, stretches: Sequence[range]) -> list[range]:
        """Stretches, the best one first."""
        claims = [self.claims[inner] for child in node.children for inner in child.walk()]

        def value(stretch: range) -> tuple[int, float, int]:
            kept = sum(any(j in stretch for j in claim) for claim in claims)
            return kept, sum(p for j, p in self.claims[node].items() if j in stretch), -stretch.start

        return sorted(stretches, key=value, reverse=True)

    def confidence(self, node: Node, words: range) -> float:
        """Mean probability of the links that touch an element or its target words.

        A link that leads out of it counts as 0, and so does a word of the element without a link.
        """
        inside, count = 0.0, 0
        for i in self.words[node]:
            links = self.links.of_source.get(i, {})
            inside += sum(p for j, p in links.items() if j in words)
            count += len(links) or not self.source.is_punctuation(i)
        own = self.words[node]
        for j in words:
            count += sum(i not in own for i in self.links.of_target.get(j, ()))
        return min(1.0, inside / count) if count else 0.0

    def trim(self, node: Node, words: range) -> tuple[int, int]:
        """The characters of target words. Punctuation at the ends is covered if the element has some there too."""
        start, end = self.target.words[words[0]].start, self.target.words[words[-1]].end
        content = self.source.text[node.start : node.end].strip()
        if not node.breaks and content:
            start = start if is_mark(content[0]) else self.target.cores[words[0]][0]
            end = end if is_mark(content[-1]) else self.target.cores[words[-1]][1]
        return start, end

    def find_piece(self, node: Node, words: range) -> tuple[int, int] | None:
        """A part of one source word in the same part of its target word, if it is found there."""
        own = self.words[node]
        if len(own) != 1 or node.breaks:
            return None
        word, core = self.source.words[own[0]], self.source.cores[own[0]]
        start, end = max(word.start, node.start), min(word.end, node.end)
        if start <= core[0] and core[1] <= end:
            return None  # the whole word
        piece = self.source.text[start:end]
        for j in words:
            place, string = self.target.words[j].start, self.target.string(j)
            left, right = self.target.cores[j]
            if string == self.source.string(own[0]):
                return place + start - word.start, place + end - word.start
            if start <= core[0] and string.startswith(piece, left - place):
                return left, left + len(piece)
            if end >= core[1] and string.endswith(piece, 0, right - place):
                return right - len(piece), right
            if len(piece) >= 3 and string.count(piece) == 1:
                return place + string.find(piece), place + string.find(piece) + len(piece)
        return None


def encloses(outer: Node, inner: Node) -> bool:
    """Whether an element is inside another one, or is that element."""
    return outer.start <= inner.start and inner.end <= outer.end
