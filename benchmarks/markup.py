"""How often markup is projected exactly right: tags around words of demo sentences, judged by the gold links.

    python benchmarks/markup.py [--sentences 2000] [--links FILE | --run RUN] [--seed 0]

Every sentence of the demo language gets one tag around 1 to 4 neighbouring words with a gold link, drawn in two ways.
`constituents` are words that the gold links translate as a unit: their target words are neighbours as well, and no
link leads out on either side. `any words` may be torn from their phrases, as in "das <b>Bier schmeckt</b> dem ...".

The expected result follows from the gold links: of all stretches of target words that begin and end with a word
linked to a tagged word and contain no other linked word except punctuation, the one with the most links, then the
first one. It is found by trying all stretches, not by the code under test. `right` accepts the result of any choice
among the links that the gold standard calls possible; `strictly right` follows the sure links only. Prints one
JSON object.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

from latentalign.data import demo
from latentalign.data.pairs import Links, Pair
from latentalign.errors import InputError
from latentalign.markup.project import project
from latentalign.tasks.marked_text import LinkedPair, links_of_file, links_of_text, train_links
from latentalign.tasks.registry import load_run

Weighted = Sequence[Sequence[float]]
LONGEST = 4
MOST_POSSIBLE = 8
"""Possible links of which every choice is tried."""
SHOWN = 10
"""Wrong results to print."""
PUNCTUATION = set(".,;:!?")
"""The demo language writes punctuation as words."""


def draw_span(pair: Pair, rng: Random, *, constituent: bool) -> range | None:
    """1 to 4 neighbouring source words, at least one of them with a gold link; None if the sentence has none."""
    found = [
        range(start, start + length)
        for length in range(1, LONGEST + 1)
        for start in range(len(pair.source) - length + 1)
        if any(start <= i < start + length for i, _ in pair.sure)
    ]
    found = [span for span in found if not constituent or is_constituent(pair, span)]
    lengths = sorted({len(span) for span in found})
    if not lengths:
        return None
    length = rng.choice(lengths)
    return rng.choice([span for span in found if len(span) == length])


def is_constituent(pair: Pair, span: range) -> bool:
    """Whether words are linked to neighbouring target words, and no link leads out of either side."""
    links = pair.sure | pair.possible
    image = {j for i, j in links if i in span}
    if not image or pair.source[span[0]] in PUNCTUATION or pair.source[span[-1]] in PUNCTUATION:
        return False
    linked = {i for i, _ in links}
    closed = all(i in span for i, j in links if min(image) <= j <= max(image))
    return closed and span[0] in linked and span[-1] in linked


def expected_results(pair: Pair, span: range) -> list[range]:
    """The stretches that are right, the one of the sure links first: possible links may be used or not."""
    near = sorted(pair.possible)[:MOST_POSSIBLE]
    chosen = (frozenset(some) for size in range(len(near) + 1) for some in combinations(near, size))
    return [expected_stretch(pair, span, pair.sure | some) for some in chosen]


def expected_stretch(pair: Pair, span: range, links: Links) -> range:
    """The target words that the tag must enclose, by trying all stretches."""
    if len(span) == len(pair.source):
        return range(len(pair.target))
    into, total = [0] * len(pair.target), [0] * len(pair.target)
    for i, j in links:
        total[j] += 1
        into[j] += i in span
    own = [k > 0 and 2 * k >= n for k, n in zip(into, total, strict=True)]
    if not any(own):
        own = [k > 0 and k == max(into) for k in into]
    rows = zip(own, total, pair.target, strict=True)
    allowed = [mine or not n or word in PUNCTUATION for mine, n, word in rows]
    best, most = range(0), 0
    for start in (j for j, mine in enumerate(own) if mine):
        for end in range(start + 1, len(own) + 1):
            if not allowed[end - 1]:
                break
            mass = sum(k for k, mine in zip(into[start:end], own[start:end], strict=True) if mine)
            if own[end - 1] and mass > most:
                best, most = range(start, end), mass
    return best


def tagged(words: Sequence[str], span: range) -> str:
    """A sentence with a tag around some words."""
    inside = " ".join(words[span.start : span.stop])
    return " ".join([*words[: span.start], f"<b>{inside}</b>", *words[span.stop :]])


def share_right(
    pairs: Sequence[Pair], spans: Sequence[range | None], links: Sequence[Weighted]
) -> dict[str, Any]:
    """How many projections are exactly as expected, with some that are not."""
    strict, right, count, wrong = 0, 0, 0, []
    for pair, span, found in zip(pairs, spans, links, strict=True):
        if span is None:
            continue
        source, target = tagged(pair.source, span), " ".join(pair.target)
        expected = [tagged(pair.target, stretch) for stretch in expected_results(pair, span)]
        projection = project(source, target, found)
        count += 1
        strict += projection.text == expected[0]
        right += projection.text in expected
        if projection.text not in expected:
            wrong.append(
                f"{source} | {expected[0]} | {projection.text} | {projection.spans[0].confidence:.3f}"
            )
    rates = {"right": right / count, "strictly right": strict / count, "sentences": count}
    return {**rates, "wrong": wrong[:SHOWN]}


def find_links(asked: argparse.Namespace, text: Sequence[tuple[str, str]]) -> list[LinkedPair]:
    """The links to judge: of a file, a run or a new aligner."""
    if asked.links:
        return links_of_file(asked.links, len(text))
    if asked.run:
        task, trained = load_run(asked.run, ability="align")
        return links_of_text(task.align(trained, text))
    return train_links(text)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--links", type=Path, help="links of another aligner")
    parser.add_argument("--run", type=Path, help="a run that aligns")
    parser.add_argument(
        "--text", type=Path, help="only write the sentences into this folder, for another aligner"
    )
    asked = parser.parse_args()
    pairs, rng = demo.generate(asked.sentences, seed=asked.seed), Random(asked.seed)
    text = [(" ".join(pair.source), " ".join(pair.target)) for pair in pairs]
    if asked.text:
        for number, side in enumerate(("de", "en")):
            lines = "".join(f"{pair[number]}\n" for pair in text)
            (asked.text / f"demo.{side}").write_text(lines, encoding="utf-8")
        return
    drawn = {
        "constituents": [draw_span(pair, rng, constituent=True) for pair in pairs],
        "any words": [draw_span(pair, rng, constituent=False) for pair in pairs],
    }
    start = perf_counter()
    try:
        aligned = [list(one.links) for one in find_links(asked, text)]
    except InputError as error:
        parser.error(str(error))
    seconds = round(perf_counter() - start, 1)
    links = {"gold links": [sorted(pair.sure) for pair in pairs], "aligned": aligned}
    result = {
        source: {name: share_right(pairs, spans, some) for name, spans in drawn.items()}
        for source, some in links.items()
    }
    print(json.dumps({**result, "seconds to align": seconds}, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
