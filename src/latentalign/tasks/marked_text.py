"""Lines with markup: parsed, aligned and projected. Errors name the line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latentalign.errors import InputError
from latentalign.links.formats import read_links
from latentalign.markup.document import Document
from latentalign.markup.placeholders import PATTERNS
from latentalign.markup.project import Projection, parse_markup, project_document, require_kind

if TYPE_CHECKING:
    import numpy as np

    from latentalign.links.aligned import LinkedWords
    from latentalign.links.words import Word

WeightedLinks = Iterable[Sequence[float]]


@dataclass(frozen=True)
class LinkedPair:
    """The links of a sentence pair, and the words that they count; None if whitespace separates these."""

    links: WeightedLinks
    words: tuple[Sequence[Word], Sequence[Word]] | None = None


def parse_lines(
    lines: Iterable[str], name: Path | str, kind: str, *, placeholders: Sequence[str] = PATTERNS
) -> list[Document]:
    """Every line separated into text and markup; errors call the text by its name."""
    require_kind(kind)
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(parse_markup(line, kind, placeholders=placeholders))
        except InputError as error:
            raise InputError(f"{name}, line {number}: {error}") from None
    return found


def plain_line(document: Document) -> str:
    """The text of a document on one line, with every character in its place."""
    return "".join(" " if character.isspace() else character for character in document.text)


def weighted_links(probability: np.ndarray, links: Iterable[tuple[int, int]]) -> list[tuple[int, int, float]]:
    """Links with their probabilities, of which there is a row for each target word."""
    return [(i, j, min(1.0, float(probability[j, i]))) for i, j in links]


def links_of_text(pairs: Iterable[LinkedWords]) -> list[LinkedPair]:
    """The links of aligned text with their probabilities."""
    return [LinkedPair(weighted_links(pair.probability, pair.links), pair.words) for pair in pairs]


def links_of_file(path: Path, lines: int) -> list[LinkedPair]:
    """The links of a Pharaoh file, one line for each pair."""
    found = read_links(path)
    if len(found) != lines:
        raise InputError(
            f"{path}: {len(found)} lines of links for {lines} sentence pairs; give one line per pair"
        )
    return [LinkedPair(sorted(links)) for links in found]


def train_links(pairs: Sequence[tuple[str, str]]) -> list[LinkedPair]:
    """The links of an aligner that is trained on these pairs."""
    from latentalign.aligner import train_aligner
    from latentalign.aligner.text import AlignedStream, LinkOptions

    return links_of_text(AlignedStream(train_aligner(pairs), pairs, LinkOptions()).linked_pairs())


def project_lines(
    documents: Sequence[Document],
    targets: Sequence[str],
    links: Sequence[LinkedPair],
    *,
    split: bool = False,
    name: Path | str = "links",
) -> Iterator[Projection]:
    """The target of each line with the markup of its source; errors call the links by their name."""
    rows = enumerate(zip(documents, targets, links, strict=True), start=1)
    for number, (document, target, linked) in rows:
        try:
            yield project_document(document, target, linked.links, words=linked.words, split=split)
        except InputError as error:
            raise InputError(f"{name}, line {number}: {error}") from None


def projection_record(projection: Projection) -> dict[str, Any]:
    """A projection as JSON, as `tasks.nmt.schema.ProjectedLine` describes it."""
    return {"markup": projection.text, "spans": [span.to_json() for span in projection.spans]}


def json_lines(projections: Iterable[Projection]) -> Iterator[str]:
    """One JSON object for each line."""
    for line, projection in enumerate(projections):
        yield json.dumps({"line": line, **projection_record(projection)}, ensure_ascii=False)
