"""Rows of (query, alignment) pairs in pieces of whole queries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Borders:
    """Where to cut rows that are sorted by query, such that no query is split."""

    rows: list[int]
    queries: list[int]
    """The number of queries before each border."""

    @property
    def largest(self) -> int:
        """Rows of the largest piece."""
        return max((b - a for a, b in pairwise(self.rows)), default=0)

    def pieces(self) -> Iterator[tuple[slice, slice]]:
        """Rows and queries of each piece."""
        for rows, queries in zip(pairwise(self.rows), pairwise(self.queries), strict=True):
            yield slice(*rows), slice(*queries)

    def from_zero(self) -> Borders:
        """The same pieces, counted from the first border."""
        return Borders([x - self.rows[0] for x in self.rows], [x - self.queries[0] for x in self.queries])

    def groups(self, rows: int) -> list[Borders]:
        """Consecutive pieces in groups of at most `rows` rows, or of a single piece."""
        found: list[Borders] = []
        for part, queries in self.pieces():
            if found and part.stop - found[-1].rows[0] <= rows:
                found[-1].rows.append(part.stop)
                found[-1].queries.append(queries.stop)
            else:
                found.append(Borders([part.start, part.stop], [queries.start, queries.stop]))
        return found or [self]
