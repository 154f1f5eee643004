"""How often markup is projected exactly right: tags around words of demo sentences, judged by the gold links.

    python benchmarks/markup.py [--sentences 2000] [--links FILE | --run RUN] [--seed 0]

Every sentence of the demo language gets one tag around 1 to 4 neighbouring words that have a gold link. The expected
result follows from the gold links: of all stretches of target words that begin and end with a word linked to a tagged
word and contain no other linked word except punctuation, the one with the most linked words, then the first one.
It is found by trying all stretches, not by the code under test. Without --links and --run, an aligner is trained on
the sentences, without gold links. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from time import perf_counter

from latentalign.data import demo
from latentalign.data.pairs import Pair
from latentalign.markup.project import project
from latentalign.tasks.marked_text import links_of_file, links_of_text, train_links
from latentalign.tasks.registry import load_run

LONGEST = 4
PUNCTUATION = set(".,;:!?")
"""The demo language writes punctuation as words."""


def draw_span(pair: Pair, rng: Random) -> range:
    """1 to 4 neighbouring source words, at least one of them with a gold link."""
    while True:
        length = rng.randint(1, min(LONGEST, len(pair.source)))
        start = rng.randrange(len(pair.source) - length + 1)
        if any(i in range(start, start + length) for i, _ in pair.sure):
            return range(start, start + length)


def expected_stretch(pair: Pair, span: range) -> range:
    """The target words that the tag must enclose, by trying all stretches."""
    if len(span) == len(pair.source):
        return range(len(pair.target))
    into = [sum(j == t and i in span for i, j in pair.sure) for t in range(len(pair.target))]
    total = [sum(j == t for _, j in pair.sure) for t in range(len(pair.target))]
    own = [k > 0 and 2 * k >= n for k, n in zip(into, total, strict=True)]
    if not any(own):
        own = [k > 0 and k == max(into) for k in into]
    allowed = [
        mine or not n or word in PUNCTUATION for mine, n, word in zip(own, total, pair.target, strict=True)
    ]
    best, most = range(0), 0
    for start in range(len(own)):
        for end in range(start + 1, len(own) + 1):
            fits = own[start] and own[end - 1] and all(allowed[start:end])
            mass = sum(k for k, mine in zip(into[start:end], own[start:end], strict=True) if mine)
            if fits and mass > most:
                best, most = range(start, end), mass
    return best


def tagged(words: Sequence[str], span: range) -> str:
    """A sentence with a tag around some words."""
    inside = " ".join(words[span.start : span.stop])
    return " ".join([*words[: span.start], f"<b>{inside}</b>", *words[span.stop :]])


def share_right(
    pairs: Sequence[Pair], spans: Sequence[range], links: Iterable[Iterable[Sequence[float]]]
) -> dict:
    """How many projections are exactly as expected, with some that are not."""
    wrong = []
    for pair, span, found in zip(pairs, spans, links, strict=True):
        source, target = tagged(pair.source, span), " ".join(pair.target)
        expected = tagged(pair.target, expected_stretch(pair, span))
        projection = project(source, target, found)
        if projection.text != expected:
            wrong.append((source, expected, projection.text, round(projection.spans[0].confidence, 3)))
    return {"right": 1 - len(wrong) / len(pairs), "wrong": len(wrong), "examples": wrong[:5]}


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
    spans = [draw_span(pair, rng) for pair in pairs]
    text = [(" ".join(pair.source), " ".join(pair.target)) for pair in pairs]
    if asked.text:
        for number, side in enumerate(("de", "en")):
            (asked.text / f"demo.{side}").write_text(
                "".join(f"{pair[number]}\n" for pair in text), encoding="utf-8"
            )
        return
    result = {
        "sentences": len(pairs),
        "gold": share_right(pairs, spans, (sorted(pair.sure) for pair in pairs)),
    }
    start = perf_counter()
    if asked.links:
        found = links_of_file(asked.links, len(pairs))
    elif asked.run:
        task, trained = load_run(asked.run, ability="align")
        found = links_of_text(task.align(trained, text))
    else:
        found = train_links(text)
    result["seconds"] = round(perf_counter() - start, 1)
    result["aligned"] = share_right(pairs, spans, (one.links for one in found))
    print(json.dumps(result, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
