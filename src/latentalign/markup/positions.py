"""Where nodes without linked words go: next to the target word that is linked to a neighbour of theirs.

What stands before the first word of its element, or after the last one, stays there. A node that touches a word stays
with that word, otherwise with the more probable neighbour. A neighbour without a link is passed over.
"""

from __future__ import annotations

from dataclasses import dataclass

from latentalign.markup.document import Node
from latentalign.markup.places import Place, Placer


@dataclass(frozen=True)
class _Neighbour:
    """A source word beside a node, and its partner in the target."""

    source: int
    target: int
    probability: float
    touches: bool
    direct: bool
    """Whether no other word stands between it and the node."""


class Positioner:
    """Finds positions between the words of the target."""

    def __init__(self, placer: Placer) -> None:
        self.placer = placer
        self.source, self.target, self.links = placer.source, placer.target, placer.links

    def position(self, node: Node, parent: Place) -> tuple[int, float]:
        """The position of a node without words inside its parent, and the probability of the link that decides."""
        own = self.placer.words[parent.node]
        inside = self.source.around(node.start)
        if inside is not None and not node.breaks and (found := self.inside_word(node, inside)):
            return found
        left, right = self.neighbours(node, own, inside)
        if left is None and right is None:
            return (
                (parent.start, 1.0) if self.starts(node, own) else (parent.end, float(self.ends(node, own)))
            )
        if self.starts(node, own):
            return parent.start, 1.0
        if self.ends(node, own):
            return parent.end, 1.0
        if right is None or (left is not None and self.prefers_left(left, right)):
            assert left is not None
            return self.after(left, node), left.probability
        return self.target.words[right.target].start, right.probability

    def starts(self, node: Node, own: range) -> bool:
        """Whether a node stands before all words of its parent."""
        return not own or node.start <= self.source.words[own[0]].start

    def ends(self, node: Node, own: range) -> bool:
        """Whether a node stands after all words of its parent."""
        return not own or node.start >= self.source.words[own[-1]].end

    def inside_word(self, node: Node, i: int) -> tuple[int, float] | None:
        """The position within the partner of a source word that a node is inside; None without a partner."""
        partner = self.links.partner(i, last=True)
        if partner is None:
            return None
        j, p = partner
        place, core = self.target.words[j], self.target.cores[j]
        word, (start, end) = self.source.words[i], self.source.cores[i]
        if self.target.string(j) == self.source.string(i):
            return place.start + node.start - word.start, p
        if node.start <= start:
            return core[0], p
        return (core[1] if node.start <= end < word.end else place.end), p

    def neighbours(
        self, node: Node, own: range, inside: int | None
    ) -> tuple[_Neighbour | None, _Neighbour | None]:
        """The nearest linked words on both sides, within the parent."""
        words = self.source.words
        first_right = next((i for i in own if words[i].start >= node.start), own.stop)
        left = range(first_right - 1, own.start - 1, -1)
        return self.nearest(node, left, inside), self.nearest(node, range(first_right, own.stop), inside)

    def nearest(self, node: Node, side: range, inside: int | None) -> _Neighbour | None:
        for distance, i in enumerate(side):
            if partner := self.links.partner(i, last=side.step < 0):
                edge = self.source.words[i].end if side.step < 0 else self.source.words[i].start
                return _Neighbour(
                    i, *partner, touches=edge == node.start or i == inside, direct=distance == 0
                )
        return None

    def prefers_left(self, left: _Neighbour, right: _Neighbour) -> bool:
        """Whether a node stays with its left neighbour."""
        if left.direct != right.direct:
            return left.direct
        if left.touches != right.touches:
            lonely = self.source.is_punctuation(right.source) and not self.target.is_punctuation(right.target)
            return left.touches or lonely
        return left.probability >= right.probability

    def after(self, left: _Neighbour, node: Node) -> int:
        """The position after a word; before its punctuation if the node stood before punctuation."""
        following = self.source.text[node.start : node.start + 1]
        is_last = left.touches or not following or following.isspace() or node.breaks
        if is_last or following.isalnum():
            return self.target.words[left.target].end
        return self.target.cores[left.target][1]

    def gap(self, node: Node, parent: Place) -> range:
        """The unlinked target words between the partners of the words around an element without links."""
        own, all_words = self.placer.words[node], self.placer.words[parent.node]
        start, stop = parent.words.start, parent.words.stop
        if own.start > all_words.start:
            left = self.links.partner(own.start - 1, last=True)
            start = left[0] + 1 if left else stop
        if own.stop < all_words.stop:
            right = self.links.partner(own.stop, last=False)
            stop = right[0] if right else start
        words = range(start, stop)
        return range(0) if any(j in self.links.total for j in words) else words
