"""Every figure of a trained translation model: perplexities, bounds, entropies, BLEU and alignment error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from latentalign.core.latent import Latent
from latentalign.core.predictives import Predictive
from latentalign.links.formats import read_gold
from latentalign.links.scores import score
from latentalign.links.sets import Links
from latentalign.progress import Bars
from latentalign.tasks.likelihoods import (
    KMAX,
    LOG_PROBABILITIES,
    NATS,
    Likelihoods,
    sum_log_probabilities,
)
from latentalign.tasks.nmt.align import align_pairs, available_alignments, encode_pairs
from latentalign.tasks.nmt.data import Corpus, build_cache
from latentalign.tasks.nmt.error_rates import ERROR_RATES, error_rates
from latentalign.tasks.nmt.external import ExternalLinks, known_links
from latentalign.tasks.nmt.recipe import TrainedTranslator, find_split
from latentalign.tasks.nmt.text_scores import text_scores
from latentalign.tasks.nmt.training_data import evaluation_batches
from latentalign.tasks.nmt.translate import TranslationJob, TranslationSettings, choose_predictive
from latentalign.training.data import WeightedBatch, perplexity

KEYS = {
    "own": "ppl",
    "exact": "ppl_exact",
    "soft": "ppl_soft",
    f"kmax{KMAX}": f"ppl_kmax{KMAX}",
    "elbo": "ppl_elbo",
}
"""The keys of perplexities in the output of `latentalign evaluate`."""
Observer = Callable[[WeightedBatch[Any], Latent, Likelihoods], None]
"""Sees every batch of an evaluation."""


def evaluate(
    trained: TrainedTranslator,
    split_name: str,
    *,
    predict: str | None = None,
    outputs: Sequence[str] | None = None,
    also: Observer | None = None,
) -> dict[str, Any]:
    """Every figure of a split; None where one does not exist for this model or data.

    `outputs` are the translations of the split (`translate_split`); without them there is no BLEU and no chrF.
    `also` sees every batch with its likelihoods.
    """
    split = find_split(trained, split_name)
    how = predict or trained.objective.predict
    predictive = choose_predictive(trained, how)
    result: dict[str, Any] = {"split": split_name, "objective": trained.config.objective.name, "predict": how}
    result |= likelihoods(trained, split_name, predictive, also)
    result |= dict.fromkeys(("bleu", "bleu_13a", "bleu_signature", "chrf", "chrf_signature", *ERROR_RATES))
    if outputs is not None:
        references = [target for _, target in split.read()]
        result |= text_scores(trained.config, outputs, references)
        if trained.config.tokenizer.kind == "characters":
            result |= error_rates(outputs, references)
    return result | alignment_errors(trained, split_name)


def open_split(trained: TrainedTranslator, split_name: str) -> Corpus:
    """The encoded pairs of a split of the run's data."""
    split = find_split(trained, split_name)
    return build_cache(trained.vocabulary, split, trained.run.cache / split_name, max_length=None)


def likelihoods(
    trained: TrainedTranslator, split_name: str, predictive: Predictive, also: Observer | None = None
) -> dict[str, Any]:
    """Perplexities under every predictive, the bound and its gap, and entropies, in one pass over the data."""
    corpus = open_split(trained, split_name)
    torch.manual_seed(trained.config.training.seed)
    batches = observed_batches(trained, corpus, split_name)
    sums = sum_log_probabilities(batches, predictive, also, total=len(corpus))
    tokens = int(corpus.lengths("target").sum()) + len(corpus)
    result: dict[str, Any] = {"tokens": tokens, "sentences": len(corpus)}
    for name in LOG_PROBABILITIES:
        result[KEYS[name]] = perplexity(sums[name], tokens) if name in sums else None
    for name in ("elbo", *NATS):
        result[name] = sums[name] / tokens if name in sums else None
    return result


def observed_batches(
    trained: TrainedTranslator, corpus: Corpus, split_name: str
) -> Iterator[tuple[WeightedBatch[Any], Latent]]:
    """All pairs of a split with their latent choices."""
    split = find_split(trained, split_name)
    path = known_links(trained.config, trained.run.cache, split_name, split)
    external = None
    if path is not None:
        external = ExternalLinks(corpus, trained.vocabulary, split, path=path, config=trained.config)
    for batch in evaluation_batches(corpus):
        here = (batch if external is None else external.attach(batch)).to(trained.device)
        yield WeightedBatch(here), trained.model.latent(here)


def translate_split(trained: TrainedTranslator, split_name: str, settings: TranslationSettings) -> list[str]:
    """The translation of every source line of a split."""
    split = find_split(trained, split_name)
    sources = [source for source, _ in split.read()]
    job = TranslationJob(trained, sources, settings)
    with Bars() as bars:
        bar = bars.add("translating", len(sources), unit="lines")
        return [best.text for best, *_ in job.translate(bar.advance)]


def alignment_errors(trained: TrainedTranslator, split_name: str) -> dict[str, float | None]:
    """AER of prior, q, exact posterior and best path against gold links; None without gold links."""
    split = find_split(trained, split_name)
    result: dict[str, float | None] = dict.fromkeys(
        ("aer_prior", "aer_inferred", "aer_posterior", "aer_path")
    )
    if split.gold is None:
        return result
    pairs = encode_pairs(trained, *map(list, zip(*split.read(), strict=True)))
    gold = read_gold(split.gold, one_based=split.gold_one_based, sentences=len(pairs))
    using = available_alignments(trained)
    links: dict[str, list[Links]] = {name: [frozenset()] * len(pairs) for name in using}
    for i, found in align_pairs(trained, pairs, using):
        for name, alignment in found.items():
            links[name][i] = alignment.best()
    for name in using:
        result[f"aer_{name}"] = score(gold, links[name], bootstrap=0).aer
    return result
