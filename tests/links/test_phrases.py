"""Phrase pairs, compared with a list of all rectangles."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from latentalign.links.phrases import PhrasePair, phrase_pairs

SIZE = 5
LINKS = st.frozensets(st.tuples(st.integers(0, SIZE - 1), st.integers(0, SIZE - 1)), max_size=8)


def brute_force(links, probability, longest):
    """All rectangles whose edges have links, which contain a link and which no link leaves."""
    found = set()
    spans = [(a, b) for a in range(SIZE) for b in range(a + 1, SIZE + 1) if b - a <= longest]
    for s0, s1 in spans:
        for t0, t1 in spans:
            inside = {(s, t) for s, t in links if s0 <= s < s1 and t0 <= t < t1}
            touching = {(s, t) for s, t in links if s0 <= s < s1 or t0 <= t < t1}
            edges = {s for s, _ in inside} >= {s0, s1 - 1} and {t for _, t in inside} >= {t0, t1 - 1}
            if inside and inside == touching and edges:
                found.add(PhrasePair(s0, s1, t0, t1, min(float(probability[t, s]) for s, t in inside)))
    return found


@given(LINKS, st.integers(1, SIZE), st.integers(0, 99))
def test_they_are_all_consistent_rectangles(links, longest, seed):
    probability = np.random.default_rng(seed).random((SIZE, SIZE))
    found = phrase_pairs(links, probability, longest=longest)
    assert len(set(found)) == len(found)
    assert set(found) == brute_force(links, probability, longest)


def test_many_links_are_no_problem():
    size = 5000
    links = frozenset((i, i) for i in range(size))
    assert len(phrase_pairs(links, np.broadcast_to(0.5, (size, size)), longest=2)) == 2 * size - 1
