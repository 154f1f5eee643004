"""Word links of given sentence pairs, in one direction or combined from two."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from latentalign.errors import InputError
from latentalign.links.aligned import AlignedText, LinkRule, combine
from latentalign.links.sets import SYMMETRIZE, Links
from latentalign.links.words import WordAlignment
from latentalign.tasks.nmt.align import USING, align_in_order, encode_pairs
from latentalign.tasks.nmt.evidence import DEFAULT_WEIGHT, know_pairs, match_lines
from latentalign.tasks.nmt.lexicon import read_lexicon
from latentalign.tasks.nmt.recipe import TrainedTranslator

DEFAULT_METHOD = "grow-diag-final-and"
TextPairs = Sequence[tuple[str, str]]


def align_text(
    trained: TrainedTranslator,
    text: Iterable[tuple[str, str]],
    *,
    using: str = "posterior",
    threshold: float | None = 0.0,
    at_least: float | None = None,
    reverse: TrainedTranslator | None = None,
    symmetrize: str | None = None,
    lexicon: Path | None = None,
    lexicon_weight: float | None = None,
) -> AlignedText:
    """Align the words of sentence pairs; with a model of the reverse direction, combine both.

    The text is read after the options were checked. Without a threshold, that of the best expected F1 is used. The
    translations of a lexicon count as evidence about the posterior.
    """
    require_known("--using", using, USING)
    if symmetrize is not None:
        require_known("--symmetrize", symmetrize, tuple(SYMMETRIZE))
        if reverse is None:
            raise InputError(
                "--symmetrize combines two directions; add --reverse with a run of the other one"
            )
    if lexicon is not None:
        check_lexicon(using, reverse is not None, lexicon_weight)
        if trained.config.prior.several:
            raise InputError("--lexicon does not say which look found a word; this run has several looks")
    rule, pairs = LinkRule(threshold, at_least), list(text)
    evidence: dict[str, Any] = {}
    if lexicon is not None:
        matches = match_lines(read_lexicon(lexicon, trained.vocabulary), trained.vocabulary, pairs)
        evidence = {"known": know_pairs(trained.vocabulary, pairs, [matches])}
        evidence["weight"] = DEFAULT_WEIGHT if lexicon_weight is None else lexicon_weight
    alignments = align_pairs_of_text(trained, pairs, using, **evidence)
    links = choose_links(rule, alignments)
    if reverse is not None:
        backward = align_pairs_of_text(reverse, [(t, s) for s, t in pairs], using)
        method = symmetrize or DEFAULT_METHOD
        links = combine(links, choose_links(rule, backward), method)
    words = [trained.vocabulary.find_pair_words(*pair) for pair in pairs]
    return AlignedText(words, alignments, links)


def choose_links(rule: LinkRule, alignments: Sequence[WordAlignment]) -> list[Links]:
    """The links of each pair."""
    fitted = rule.fit(alignments)
    return [fitted.choose(alignment) for alignment in alignments]


def check_lexicon(using: str, reverse: bool, weight: float | None) -> None:
    """Refuse a lexicon where it would have no effect or no direction."""
    if using not in ("posterior", "path"):
        raise InputError(f"--lexicon is evidence for the posterior; it has no effect with --using {using}")
    if reverse:
        raise InputError("--lexicon has one direction; align without --reverse")
    if weight is not None and not 0 <= weight < math.inf:
        raise InputError(f"--lexicon-weight is {weight}: it must be a number of at least 0")


def align_pairs_of_text(
    trained: TrainedTranslator, pairs: TextPairs, using: str, **evidence: Any
) -> list[WordAlignment]:
    """The word alignment of each pair. The evidence is that of `align_pairs`."""
    encoded = encode_pairs(trained, [s for s, _ in pairs], [t for _, t in pairs])
    return align_in_order(trained, encoded, using, **evidence)


def require_known(option: str, value: str, known: tuple[str, ...]) -> None:
    """Refuse a name that does not exist."""
    if value not in known:
        raise InputError(f"{option} must be one of {', '.join(known)}, got {value!r}")
