"""What a report shows of one trained model beyond single figures: sentence by sentence, K by K, matrix by matrix."""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from latentalign.core.predictives import parse_predict
from latentalign.tasks.nmt.align import Pair, alignment_of, encode_pairs, grouped
from latentalign.tasks.nmt.data import build_cache
from latentalign.tasks.nmt.decode import pair_batch
from latentalign.tasks.nmt.link_formats import read_gold
from latentalign.tasks.nmt.links import Gold, word_links
from latentalign.tasks.nmt.metrics import KMAX, kmax_curve, mean_entropy, split_of, text_scores, translated
from latentalign.tasks.nmt.task import Trained, bleu_metric, evaluation_batches
from latentalign.tasks.nmt.translate import Settings
from latentalign.textfiles import read_parallel
from latentalign.training.loop import perplexity

LONGEST = 22
"""Words of a sentence that fits a page."""


def details(trained: Trained, split_name: str, outputs: Sequence[str], *, sentences: int) -> dict[str, Any]:
    """Everything a report needs of a run; `outputs` are its translations of the split."""
    split = split_of(trained, split_name)
    references = [target for _, target in read_parallel(split.source, split.target)]
    found: dict[str, Any] = {"objective": trained.config.objective.name, "split": split_name}
    found |= sentence_scores(trained, split_name)
    found["bleu_statistics"] = bleu_statistics(trained, outputs, references)
    found["outputs"] = list(outputs)
    if trained.model.distribution.supports("enumerate"):
        by_kmax = translated(trained, split, Settings(predict=f"kmax:{KMAX}"))
        scores = text_scores(trained.config, by_kmax, references)
        found[f"bleu_kmax{KMAX}"] = scores["bleu"]
    found["alignments"] = pictured(trained, split_name, sentences)
    return found


@torch.no_grad()
def sentence_scores(trained: Trained, split_name: str) -> dict[str, Any]:
    """Tokens of every sentence, its log-probability under every predictive, the prior's entropy; K-max for all K."""
    split = split_of(trained, split_name)
    corpus = build_cache(trained.tokenizer, split, trained.run.cache / split_name, max_length=None)
    device = trained.model.head.output.weight.device
    tokens = [0.0] * len(corpus)
    scores: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(corpus))
    by_k = np.zeros(max(len(corpus.source(i)) for i in range(len(corpus))))
    torch.manual_seed(trained.config.training.seed)
    for batch in evaluation_batches(corpus):
        latent = trained.model.latent(batch.to(device))
        values = {"ppl_soft": latent.soft(), "entropy_prior": mean_entropy(latent.prior.mean)}
        if trained.model.distribution.supports("enumerate"):
            curve = kmax_curve(latent)
            values |= {f"ppl_kmax{k}": curve[..., min(k, curve.shape[-1]) - 1] for k in (1, KMAX)}
            values["ppl_exact"] = curve[..., -1]
            summed = curve.double().sum((0, 1)).cpu().numpy()
            by_k += np.pad(summed, (0, len(by_k) - len(summed)), mode="edge")
        own = {"exact": "ppl_exact", "soft": "ppl_soft"}.get(trained.objective.predict)
        values["ppl"] = values[own] if own else parse_predict(trained.objective.predict).log_prob(latent)
        for i, count in zip(batch.index.tolist(), batch.target_mask.sum(-1).tolist(), strict=True):
            tokens[i] = count
        for name, value in values.items():
            for i, total in zip(batch.index.tolist(), value.double().sum(-1).tolist(), strict=True):
                scores[name][i] = total
    found: dict[str, Any] = {"tokens": tokens, "scores": dict(scores)}
    if trained.model.distribution.supports("enumerate"):
        found["kmax_curve"] = [perplexity(float(x), int(sum(tokens))) for x in by_k]
        found["ppl_kmax1"] = found["kmax_curve"][0]
    return found


def bleu_statistics(trained: Trained, outputs: Sequence[str], references: Sequence[str]) -> list[list[int]]:
    """Lengths, n-gram matches and n-gram counts of every sentence. Their sums give BLEU of any resampling."""
    metric = bleu_metric(trained.config)
    scores = (metric.corpus_score([o], [[r]]) for o, r in zip(outputs, references, strict=True))
    return [[score.sys_len, score.ref_len, *score.counts, *score.totals] for score in scores]


def pictured(trained: Trained, split_name: str, sentences: int) -> list[dict[str, Any]]:
    """Alignments of some sentences of a split: words, subwords, gold links, and matrices as bytes."""
    split = split_of(trained, split_name)
    pairs = list(read_parallel(split.source, split.target))
    gold = read_gold(split.gold, one_based=split.gold_one_based, sentences=len(pairs)) if split.gold else None
    chosen = spread(pairs, sentences)
    shown = shown_pairs(trained, [pairs[i] for i in chosen], packed)
    links = [gold_links(gold[i]) if gold is not None else {} for i in chosen]
    return [
        {"sentence": i + 1, **record, **found} for i, record, found in zip(chosen, shown, links, strict=True)
    ]


def shown_pairs(
    trained: Trained, pairs: Sequence[tuple[str, str]], form: Callable[[np.ndarray], Any]
) -> list[dict[str, Any]]:
    """Words, subwords and every alignment of sentence pairs that have words on both sides; matrices in some form."""
    encoded = encode_pairs(trained, [s for s, _ in pairs], [t for _, t in pairs])
    using = ["prior"]
    if trained.model.inference is not None:
        using.append("inferred")
    if trained.model.distribution.supports("enumerate"):
        using.append("posterior")
    matrices = subword_matrices(trained, encoded, using)
    found = []
    for texts, pair, by_name in zip(pairs, encoded, matrices, strict=True):
        record: dict[str, Any] = {}
        record["source"], record["target"] = (trained.tokenizer.words(side) for side in texts)
        record["matrices"] = {
            name: form(word_links(m, pair.source.words, pair.target.words).probability)
            for name, m in by_name.items()
        }
        if trained.config.tokenizer.kind != "words":
            record["source_pieces"] = trained.tokenizer.source_pieces(pair.source.ids)
            record["target_pieces"] = trained.tokenizer.target_pieces(pair.target.ids)
            record["piece_matrices"] = {name: form(m) for name, m in by_name.items()}
        found.append(record)
    return found


def spread(pairs: Sequence[tuple[str, str]], count: int) -> list[int]:
    """Evenly spread sentences that are neither trivial nor too long to be looked at."""
    fit = [
        i
        for i, (s, t) in enumerate(pairs)
        if 4 <= len(s.split()) <= LONGEST and 4 <= len(t.split()) <= LONGEST
    ] or [i for i, (s, t) in enumerate(pairs) if s.split() and t.split()]
    step = max(1.0, len(fit) / max(1, count))
    return [fit[int(k * step)] for k in range(min(count, len(fit)))]


@torch.no_grad()
def subword_matrices(
    trained: Trained, pairs: Sequence[Pair], using: Sequence[str]
) -> list[dict[str, np.ndarray]]:
    """For every pair its distributions over source subwords, a row for each target subword."""
    found: list[dict[str, np.ndarray]] = [{} for _ in pairs]
    device = trained.model.head.output.weight.device
    for group in grouped([p.size for p in pairs], skip=set()):
        chosen = [pairs[i] for i in group]
        batch = pair_batch([p.source.ids for p in chosen], [p.target.ids for p in chosen])
        latent = trained.model.latent(batch.to(device))
        for name in using:
            whole = alignment_of(latent, name).double().cpu().numpy()
            for row, i in enumerate(group):
                found[i][name] = whole[row, : len(pairs[i].target.ids), : len(pairs[i].source.ids)]
    return found


def packed(matrix: np.ndarray) -> str:
    """Probabilities as bytes, row by row, in base64."""
    return base64.b64encode(np.rint(matrix.clip(0, 1) * 255).astype(np.uint8).tobytes()).decode()


def gold_links(gold: Gold) -> dict[str, list[list[int]]]:
    return {
        "sure": [list(link) for link in sorted(gold.sure)],
        "possible": [list(link) for link in sorted(gold.possible - gold.sure)],
    }
