"""BLEU and chrF of translations, with sacrebleu."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from latentalign.tasks.nmt.recipe import NMTConfig

if TYPE_CHECKING:
    import sacrebleu


def bleu_metric(config: NMTConfig) -> sacrebleu.BLEU:
    """BLEU as the recipe defines it."""
    import sacrebleu

    return sacrebleu.BLEU(
        lowercase=config.tokenizer.lowercase, tokenize=config.data.bleu_tokenize, force=True
    )


def bleu_signature(config: NMTConfig) -> str:
    """sacrebleu's signature of the metric; sacrebleu knows it only after it has scored something."""
    metric = bleu_metric(config)
    metric.corpus_score(["-"], [["-"]])
    return str(metric.get_signature())


def text_scores(config: NMTConfig, outputs: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """BLEU and chrF of outputs against one reference each."""
    import sacrebleu

    bleu, chrf = bleu_metric(config), sacrebleu.CHRF(lowercase=config.tokenizer.lowercase)
    scores = (m.corpus_score(list(outputs), [list(references)]).score for m in (bleu, chrf))
    values = dict(zip(("bleu", "chrf"), scores, strict=True))
    return {
        **values,
        "bleu_signature": str(bleu.get_signature()),
        "chrf_signature": str(chrf.get_signature()),
    }


def bleu_statistics(config: NMTConfig, outputs: Sequence[str], references: Sequence[str]) -> list[list[int]]:
    """Lengths, n-gram matches and n-gram counts of every sentence; BLEU of any resampling follows from them."""
    metric = bleu_metric(config)
    scores = (metric.corpus_score([o], [[r]]) for o, r in zip(outputs, references, strict=True))
    return [[int(x) for x in (s.sys_len, s.ref_len, *s.counts, *s.totals)] for s in scores]
