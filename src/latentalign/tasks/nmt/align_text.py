"""Word links of given sentence pairs, in one direction or combined from two."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from latentalign.errors import InputError
from latentalign.links.aligned import AlignedText, LinkRule, combine
from latentalign.links.sets import SYMMETRIZE, Links
from latentalign.links.words import WordAlignment
from latentalign.tasks.nmt.align import USING, align_in_order, encode_pairs
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
) -> AlignedText:
    """Align the words of sentence pairs; with a model of the reverse direction, combine both.

    The text is read after the options were checked. Without a threshold, that of the best expected F1 is used.
    """
    require_known("--using", using, USING)
    if symmetrize is not None:
        require_known("--symmetrize", symmetrize, tuple(SYMMETRIZE))
        if reverse is None:
            raise InputError(
                "--symmetrize combines two directions; add --reverse with a run of the other one"
            )
    rule, pairs = LinkRule(threshold, at_least), list(text)
    alignments = align_pairs_of_text(trained, pairs, using)
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


def align_pairs_of_text(trained: TrainedTranslator, pairs: TextPairs, using: str) -> list[WordAlignment]:
    """The word alignment of each pair."""
    encoded = encode_pairs(trained, [s for s, _ in pairs], [t for _, t in pairs])
    return align_in_order(trained, encoded, using)


def require_known(option: str, value: str, known: tuple[str, ...]) -> None:
    """Refuse a name that does not exist."""
    if value not in known:
        raise InputError(f"{option} must be one of {', '.join(known)}, got {value!r}")
