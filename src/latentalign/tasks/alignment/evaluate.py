"""The figures and the examples of an aligner on a text, with gold links or without."""

from __future__ import annotations

from typing import Any

from latentalign.aligner.model import Aligner
from latentalign.aligner.text import AlignedPair, AlignedStream, LinkOptions, rounded
from latentalign.links.aligned import word_record
from latentalign.links.formats import read_gold
from latentalign.links.scores import score
from latentalign.tasks.splits import TextSplit


def evaluate(aligner: Aligner, text: TextSplit) -> dict[str, Any]:
    """What the aligner expects of its links, and how they agree with the gold links where there are any."""
    stream = AlignedStream(aligner, text.read(), LinkOptions())
    links = [pair.links for pair in stream]
    totals = stream.totals
    source, target = totals.unlinked
    result: dict[str, Any] = {
        "sentences": totals.pairs,
        "objective": "marginal",
        "expected_f1": totals.expected_f1,
        "threshold": aligner.threshold,
        "unlinked_source": source,
        "unlinked_target": target,
        "aer": None,
        "precision": None,
        "recall": None,
        "f1": None,
    }
    if text.gold is not None:
        gold = read_gold(text.gold, one_based=text.gold_one_based, sentences=len(links))
        found = score(gold, links)
        result |= {"aer": found.aer, "precision": found.precision, "recall": found.recall, "f1": found.f1}
        result |= {"aer_interval": list(found.intervals["aer"]) if found.intervals else None}
    return result


def example_records(aligner: Aligner, text: TextSplit, count: int) -> list[dict[str, Any]]:
    """The first pairs of a text that have words on both sides, for the viewer of a page."""
    gold = None
    if text.gold is not None:
        gold = read_gold(text.gold, one_based=text.gold_one_based)
    found: list[dict[str, Any]] = []
    for number, pair in enumerate(AlignedStream(aligner, text.read(), LinkOptions())):
        if len(found) == count:
            break
        if pair.source and pair.target:
            record = {"sentence": number + 1, **describe_for_viewer(pair)}
            if gold is not None and number < len(gold):
                record["sure"] = [list(link) for link in sorted(gold[number].sure)]
                record["possible"] = [
                    list(link) for link in sorted(gold[number].possible - gold[number].sure)
                ]
            found.append(record)
    return found


def describe_for_viewer(pair: AlignedPair) -> dict[str, Any]:
    """The words of a pair and the probabilities of both directions and of their mean."""
    known = pair.posterior
    matrices = {"posterior": pair.probability, "forward": known.forward, "backward": known.backward}
    return {
        **word_record(pair.source, pair.target),
        "matrices": {name: rounded(matrix) for name, matrix in matrices.items()},
        "null": {"forward": rounded(known.target_null)},
        "links": [list(link) for link in sorted(pair.links)],
    }
