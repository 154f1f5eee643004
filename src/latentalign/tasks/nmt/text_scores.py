"""BLEU and chrF of translations, with sacrebleu."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from latentalign.tasks.nmt.recipe import NMTConfig

if TYPE_CHECKING:
    import sacrebleu


DEFAULT_TOKENIZE = "13a"
"""The tokenizer of sacrebleu that published scores use by default."""


def bleu_metric(config: NMTConfig, tokenize: str | None = None) -> sacrebleu.BLEU:
    """BLEU as the recipe defines it, or with another tokenizer of sacrebleu."""
    import sacrebleu

    return sacrebleu.BLEU(
        lowercase=config.tokenizer.lowercase, tokenize=tokenize or config.data.bleu_tokenize, force=True
    )


def bleu_signature(config: NMTConfig) -> str:
    """sacrebleu's signature of the metric; sacrebleu knows it only after it has scored something."""
    metric = bleu_metric(config)
    metric.corpus_score(["-"], [["-"]])
    return str(metric.get_signature())


def text_scores(config: NMTConfig, outputs: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """BLEU and chrF of outputs against one reference each.

    If the recipe has another tokenizer than sacrebleu's own, there is a second BLEU with that one.
    """
    import sacrebleu

    bleu, chrf = bleu_metric(config), sacrebleu.CHRF(lowercase=config.tokenizer.lowercase)
    scores = (m.corpus_score(list(outputs), [list(references)]).score for m in (bleu, chrf))
    values = dict(zip(("bleu", "chrf"), scores, strict=True))
    second = {}
    if config.data.bleu_tokenize != DEFAULT_TOKENIZE:
        other = bleu_metric(config, DEFAULT_TOKENIZE)
        score = other.corpus_score(list(outputs), [list(references)]).score
        second = {"bleu_13a": score}
    return {
        **values,
        **second,
        "bleu_signature": str(bleu.get_signature()),
        "chrf_signature": str(chrf.get_signature()),
    }


def bleu_statistics(config: NMTConfig, outputs: Sequence[str], references: Sequence[str]) -> list[list[int]]:
    """Lengths, n-gram matches and n-gram counts of every sentence; BLEU of any resampling follows from them."""
    metric = bleu_metric(config)
    scores = (metric.corpus_score([o], [[r]]) for o, r in zip(outputs, references, strict=True))
    return [[int(x) for x in (s.sys_len, s.ref_len, *s.counts, *s.totals)] for s in scores]
