"""What a trained translation model is worth: perplexities, bounds, entropies, BLEU and alignment error."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import sacrebleu
import torch
from torch import Tensor

from latentalign.core.latent import Latent
from latentalign.core.predictives import parse_predict
from latentalign.errors import InputError
from latentalign.tasks.nmt.align import encode_pairs, word_alignments
from latentalign.tasks.nmt.data import Corpus, SplitConfig, build_cache
from latentalign.tasks.nmt.link_formats import read_gold
from latentalign.tasks.nmt.links import Links, score
from latentalign.tasks.nmt.task import (
    ExternalLinks,
    NMTConfig,
    Trained,
    bleu_metric,
    evaluation_batches,
    mean_entropy,
)
from latentalign.tasks.nmt.translate import Settings, predictive, translate_lines
from latentalign.textfiles import read_parallel
from latentalign.training.loop import perplexity

KMAX = 5


def split_of(trained: Trained, name: str) -> SplitConfig:
    """A split of the run's data by name."""
    splits = {"train": trained.config.data.train, "valid": trained.config.data.valid}
    if trained.config.data.test is not None:
        splits["test"] = trained.config.data.test
    if name not in splits:
        raise InputError(f"{trained.run.folder}: no split {name!r}; it has {', '.join(splits)}")
    return splits[name]


def evaluate(
    trained: Trained,
    split_name: str,
    *,
    predict: str | None = None,
    outputs: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Every measurement of a split; null where one does not exist for this model or data.

    `outputs` are the split's translations (`translated`); without them there is no BLEU and no chrF.
    """
    split = split_of(trained, split_name)
    how = predict or trained.objective.predict
    predictive(trained, how)
    corpus = build_cache(trained.tokenizer, split, trained.run.cache / split_name, max_length=None)
    result: dict[str, Any] = {"split": split_name, "objective": trained.config.objective.name, "predict": how}
    result |= likelihoods(trained, corpus, split, split_name=split_name, how=how)
    result |= {"bleu": None, "bleu_signature": None, "chrf": None, "chrf_signature": None}
    if outputs is not None:
        references = [target for _, target in read_parallel(split.source, split.target)]
        result |= text_scores(trained.config, outputs, references)
    return result | alignment_errors(trained, split)


def likelihoods(
    trained: Trained, corpus: Corpus, split: SplitConfig, *, split_name: str, how: str
) -> dict[str, Any]:
    """Perplexities under every predictive, the bound and its gap, and entropies, in one pass over the data."""
    external = None
    if trained.objective.needs_inferred and trained.config.inference.kind == "external" and split.links:
        smoothing = trained.config.inference.smoothing
        external = ExternalLinks(corpus, trained.tokenizer, split, key=split_name, smoothing=smoothing)
    sums: dict[str, float] = defaultdict(float)
    tokens = 0
    torch.manual_seed(trained.config.training.seed)
    device = trained.model.head.output.weight.device
    with torch.no_grad():
        for batch in evaluation_batches(corpus):
            scores = None if external is None else external.scores(batch).to(device)
            latent = trained.model.latent(batch.to(device), scores)
            for name, value in measured(latent, how).items():
                sums[name] += float(value.double().sum())
            tokens += batch.tokens
    result: dict[str, Any] = {"tokens": tokens, "sentences": len(corpus)}
    for name in ("ppl", "ppl_exact", "ppl_soft", f"ppl_kmax{KMAX}", "ppl_elbo"):
        result[name] = perplexity(sums[name], tokens) if name in sums else None
    for name in ("entropy_prior", "entropy_inferred", "elbo", "elbo_gap", "jensen_gap"):
        result[name] = sums[name] / tokens if name in sums else None
    return result


def measured(latent: Latent, how: str) -> dict[str, Tensor]:
    """Log-probabilities, bounds and entropies of one batch; everything discrete from one enumeration."""
    found = {
        "ppl": parse_predict(how).log_prob(latent),
        "ppl_soft": latent.soft(),
        "entropy_prior": mean_entropy(latent.prior.mean),
    }
    if latent.inferred is not None:
        found["entropy_inferred"] = mean_entropy(latent.inferred.mean)
    if not latent.prior.supports("enumerate"):
        return found
    everything = latent.prior.enumerate()
    each = latent.log_likelihood(everything)
    found["ppl_exact"] = everything.log_expect_exp(each)
    top = latent.prior.top(min(KMAX, each.shape[-1]))
    found[f"ppl_kmax{KMAX}"] = top.log_expect_exp(each.gather(-1, top.index))
    found["jensen_gap"] = found["ppl_exact"] - everything.expect(each)
    if latent.inferred is not None:
        elbo = latent.inferred.enumerate().expect(each) - latent.inferred.kl(latent.prior)
        found |= {"elbo": elbo, "ppl_elbo": elbo, "elbo_gap": found["ppl_exact"] - elbo}
    return found


def kmax_curve(latent: Latent) -> Tensor:
    """log p under the k most probable members, k = 1..T, from one enumeration: (*batch, k); 0 without a query."""
    everything = latent.prior.enumerate()
    each = latent.log_likelihood(everything)
    log_prob, order = everything.log_prob.sort(dim=-1, descending=True)
    joint = log_prob + each.gather(-1, order)
    return (joint.logcumsumexp(-1) - log_prob.logcumsumexp(-1)).nan_to_num(0.0)


def translated(trained: Trained, split: SplitConfig, settings: Settings) -> list[str]:
    """The translation of every source line of a split."""
    sources = [source for source, _ in read_parallel(split.source, split.target)]
    return [best.text for best, *_ in translate_lines(trained, sources, settings)]


def text_scores(config: NMTConfig, outputs: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """BLEU and chrF of outputs against one reference each."""
    bleu, chrf = bleu_metric(config), sacrebleu.CHRF(lowercase=config.tokenizer.lowercase)
    scores = (m.corpus_score(list(outputs), [list(references)]).score for m in (bleu, chrf))
    values = dict(zip(("bleu", "chrf"), scores, strict=True))
    return {
        **values,
        "bleu_signature": str(bleu.get_signature()),
        "chrf_signature": str(chrf.get_signature()),
    }


def alignment_errors(trained: Trained, split: SplitConfig) -> dict[str, float | None]:
    """AER of prior, q and exact posterior against gold links; null where there are none."""
    result: dict[str, float | None] = dict.fromkeys(("aer_prior", "aer_inferred", "aer_posterior"))
    if split.gold is None:
        return result
    pairs = encode_pairs(trained, *map(list, zip(*read_parallel(split.source, split.target), strict=True)))
    gold = read_gold(split.gold, one_based=split.gold_one_based, sentences=len(pairs))
    using = ["prior"]
    if trained.model.inference is not None:
        using.append("inferred")
    if trained.model.distribution.supports("enumerate"):
        using.append("posterior")
    links: dict[str, list[Links]] = {name: [frozenset()] * len(pairs) for name in using}
    for i, found in word_alignments(trained, pairs, using):
        for name, alignment in found.items():
            links[name][i] = alignment.best()
    for name in using:
        result[f"aer_{name}"] = score(gold, links[name], bootstrap=0).aer
    return result
