"""Details of one trained model beyond single figures: scores per sentence, K-max curves and alignment matrices."""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from latentalign.core.predictives import parse_predict
from latentalign.links.aligned import word_record
from latentalign.links.formats import read_gold
from latentalign.links.sets import Gold
from latentalign.links.words import word_links
from latentalign.tasks.likelihoods import KMAX
from latentalign.tasks.nmt.align import (
    Pair,
    alignment_matrix,
    available_alignments,
    encode_pairs,
)
from latentalign.tasks.nmt.decode import group_by_size, pair_batch
from latentalign.tasks.nmt.evaluate import kmax_curve, open_split, translate_split
from latentalign.tasks.nmt.recipe import TrainedTranslator, find_split
from latentalign.tasks.nmt.text_scores import bleu_statistics, text_scores
from latentalign.tasks.nmt.training_data import EVALUATION_TOKENS, evaluation_batches
from latentalign.tasks.nmt.translate import TranslationSettings
from latentalign.training.data import mean_entropy, perplexity

LONGEST = 22
"""Most words of a sentence that fits on a page."""


def details(
    trained: TrainedTranslator, split_name: str, outputs: Sequence[str], *, sentences: int
) -> dict[str, Any]:
    """Everything that a report needs to know about a run; `outputs` are its translations of the split."""
    split = find_split(trained, split_name)
    references = [target for _, target in split.read()]
    found: dict[str, Any] = {"objective": trained.config.objective.name, "split": split_name}
    found |= sentence_scores(trained, split_name)
    found["bleu_statistics"] = bleu_statistics(trained.config, outputs, references)
    found["outputs"] = list(outputs)
    if trained.model.distribution.supports("enumerate"):
        by_kmax = translate_split(trained, split_name, TranslationSettings(predict=f"kmax:{KMAX}"))
        scores = text_scores(trained.config, by_kmax, references)
        found[f"bleu_kmax{KMAX}"] = scores["bleu"]
    found["alignments"] = example_alignments(trained, split_name, sentences)
    return found


@torch.no_grad()
def sentence_scores(trained: TrainedTranslator, split_name: str) -> dict[str, Any]:
    """Per sentence: tokens, log-probability under every predictive, entropy of the prior; and K-max for all K."""
    corpus = open_split(trained, split_name)
    tokens = [0.0] * len(corpus)
    scores: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(corpus))
    by_k = np.zeros(max(len(corpus.source(i)) for i in range(len(corpus))))
    torch.manual_seed(trained.config.training.seed)
    for batch in evaluation_batches(corpus):
        latent = trained.model.latent(batch.to(trained.device))
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


def example_alignments(trained: TrainedTranslator, split_name: str, sentences: int) -> list[dict[str, Any]]:
    """Alignments of some sentences of a split: words, subwords, gold links, and matrices as bytes."""
    split = find_split(trained, split_name)
    pairs = list(split.read())
    gold = read_gold(split.gold, one_based=split.gold_one_based, sentences=len(pairs)) if split.gold else None
    chosen = choose_examples(pairs, sentences)
    described = describe_pairs(trained, [pairs[i] for i in chosen], pack_matrix)
    links = [gold_links(gold[i]) if gold is not None else {} for i in chosen]
    return [
        {"sentence": i + 1, **record, **found}
        for i, record, found in zip(chosen, described, links, strict=True)
    ]


def describe_pairs(
    trained: TrainedTranslator, pairs: Sequence[tuple[str, str]], form: Callable[[np.ndarray], Any]
) -> list[dict[str, Any]]:
    """Words, subwords and all alignments of sentence pairs with words on both sides; `form` encodes a matrix."""
    encoded = encode_pairs(trained, [s for s, _ in pairs], [t for _, t in pairs])
    matrices = subword_matrices(trained, encoded, available_alignments(trained))
    found = []
    for texts, pair, by_name in zip(pairs, encoded, matrices, strict=True):
        source, target = trained.vocabulary.find_pair_words(*texts)
        record = word_record(source, target)
        record["matrices"] = {
            name: form(word_links(m, pair.source.words, pair.target.words).probability)
            for name, m in by_name.items()
        }
        if not {"words", "characters"}.issuperset(trained.config.tokenizer.kinds):
            record["source_pieces"] = trained.vocabulary.source_pieces(pair.source.ids)
            record["target_pieces"] = trained.vocabulary.target_pieces(pair.target.ids)
            record["piece_matrices"] = {name: form(m) for name, m in by_name.items()}
        found.append(record)
    return found


def choose_examples(pairs: Sequence[tuple[str, str]], count: int) -> list[int]:
    """Positions of evenly spread sentences that are neither trivial nor too long to read."""
    fit = [
        i
        for i, (s, t) in enumerate(pairs)
        if 4 <= len(s.split()) <= LONGEST and 4 <= len(t.split()) <= LONGEST
    ] or [i for i, (s, t) in enumerate(pairs) if s.split() and t.split()]
    step = max(1.0, len(fit) / max(1, count))
    return [fit[int(k * step)] for k in range(min(count, len(fit)))]


@torch.no_grad()
def subword_matrices(
    trained: TrainedTranslator, pairs: Sequence[Pair], using: Sequence[str]
) -> list[dict[str, np.ndarray]]:
    """For each pair, its distributions over source subwords: one row per target subword."""
    found: list[dict[str, np.ndarray]] = [{} for _ in pairs]
    for group in group_by_size([p.size for p in pairs], skip=set(), limit=EVALUATION_TOKENS):
        chosen = [pairs[i] for i in group]
        batch = pair_batch([p.source.ids for p in chosen], [p.target.ids for p in chosen])
        latent = trained.model.latent(batch.to(trained.device))
        for name in using:
            whole = alignment_matrix(latent, name).double().cpu().numpy()
            for row, i in enumerate(group):
                found[i][name] = whole[row, : len(pairs[i].target.ids), : len(pairs[i].source.ids)]
    return found


def pack_matrix(matrix: np.ndarray) -> str:
    """Probabilities as bytes, row by row, in base64."""
    return base64.b64encode(np.rint(matrix.clip(0, 1) * 255).astype(np.uint8).tobytes()).decode()


def gold_links(gold: Gold) -> dict[str, list[list[int]]]:
    """Gold links as JSON: sure ones, and those that are only possible."""
    return {
        "sure": [list(link) for link in sorted(gold.sure)],
        "possible": [list(link) for link in sorted(gold.possible - gold.sure)],
    }
