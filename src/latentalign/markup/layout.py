"""The tree of tags in the target: ranges that cross are extended until all of them are nested or apart."""

from __future__ import annotations

import re
from bisect import bisect_right

from latentalign.markup.document import Node
from latentalign.markup.places import Place, Placer
from latentalign.markup.positions import Positioner
from latentalign.markup.words import TextWords

_HAS_ID = re.compile(r"""\s(?:xml:)?id\s*=""", re.IGNORECASE)


def place_nodes(placer: Placer, *, split: bool) -> tuple[Place, list[Place]]:
    """The place of the root, and the places of all other nodes in the order of the source."""
    target = placer.target
    root = Place(placer.root, 0, len(target.text), 1.0, range(len(target)))
    places, found, positioner = {placer.root: root}, list[Place](), Positioner(placer)
    for node in placer.nodes:
        parent = places[placer.parents[node]]
        stretches = choose_words(placer, positioner, node, parent)
        if not stretches:
            position, confidence = positioner.position(node, parent)
            position = min(max(position, parent.start), parent.end)
            position = target.round_up(position) if node.breaks else position
            places[node] = Place(node, position, position, 0.0 if placer.words[node] else confidence)
            if not placer.words[node] and (piece := punctuation_piece(placer, node)):
                places[node].start, places[node].end = piece
            found.append(places[node])
            continue
        many = split and not node.children and not _HAS_ID.search(node.opening)
        copies = [make_place(placer, node, words) for words in stretches[: None if many else 1]]
        places[node] = copies[0]
        found += copies
    extend_over_children(placer, places, target)
    return root, found


def choose_words(placer: Placer, positioner: Positioner, node: Node, parent: Place) -> list[range]:
    """The stretches of target words for an element, the best first; none if it gets a position only."""
    own = placer.words[node]
    if not own or not node.holds:
        return []
    if own == placer.words[parent.node] and parent.words:
        return [parent.words]
    stretches = placer.rank(node, placer.stretches(node))
    inside = [one for one in stretches if one.start in parent.words]
    if stretches or parent.confidence == 0:
        return inside or stretches
    gap = positioner.gap(node, parent)
    return [gap] if gap else []


def make_place(placer: Placer, node: Node, words: range) -> Place:
    """The place of an element that covers some target words."""
    start, end = placer.find_piece(node, words) or placer.trim(node, words)
    return Place(node, start, end, placer.confidence(node, words), words)


def punctuation_piece(placer: Placer, node: Node) -> tuple[int, int] | None:
    """Where the target has the punctuation that an element encloses at the edge of a word."""
    content = placer.source.text[node.start : node.end].strip()
    if not content or node.breaks:
        return None
    i = bisect_right(placer.source.starts, placer.source.text.index(content, node.start)) - 1
    partner = placer.links.partner(i, last=True)
    if partner is None:
        return None
    j, at_end = partner[0], node.start >= placer.source.cores[i][1]
    place, (left, right) = placer.target.words[j], placer.target.cores[j]
    edge = placer.target.text[right : place.end] if at_end else placer.target.text[place.start : left]
    if content not in edge:
        return None
    start = (right if at_end else place.start) + edge.find(content)
    return start, start + len(content)


def extend_over_children(placer: Placer, places: dict[Node, Place], target: TextWords) -> None:
    """Extend every element until it encloses those inside it. Elements that break words end at words."""
    for node in [*reversed(placer.nodes), placer.root]:
        place = places[node]
        for child in node.children:
            place.start, place.end = min(place.start, places[child].start), max(place.end, places[child].end)
        if node.breaks and place.start < place.end:
            place.start, place.end = target.round_down(place.start), target.round_up(place.end)


def nest(root: Place, places: list[Place], placer: Placer) -> None:
    """Make a tree of all places. Where two cross, the one that starts first is extended."""
    order = {id(place): number for number, place in enumerate(places)}
    wide = [place for place in places if place.start < place.end]
    stack = [root]
    for place in sorted(wide, key=lambda p: (p.start, -p.end, order[id(p)])):
        while len(stack) > 1 and stack[-1].end <= place.start:
            stack.pop()
        end = place.end
        for outer in reversed(stack):
            if outer.end >= end:
                break
            outer.end = end = placer.target.round_up(end) if outer.node.breaks else end
        stack[-1].children.append(place)
        stack.append(place)
    by_node = {place.node: place for place in reversed(places)} | {root.node: root}
    for place in places:
        if place.start == place.end:
            home = find_home(by_node[placer.parents[place.node]], place)
            home.children.append(place)
    for place in (root, *places):
        place.children.sort(key=lambda p: (p.start, p.end, order[id(p)]))


def find_home(parent: Place, place: Place) -> Place:
    """The innermost element around a position, which may have moved into elements beside it."""
    while parent.start < parent.end:
        inner = (c for c in parent.children if c.start < place.start < c.end)
        found = next(inner, None)
        if found is None:
            break
        parent = found
    return parent
