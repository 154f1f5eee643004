"""Details of one trained model beyond single figures: scores per sentence, K-max curves and alignment matrices."""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from latentalign.core.predictives import parse_predict
from latentalign.links.aligned import word_record
from latentalign.links.formats import read_gold
from latentalign.links.sets import Gold
from latentalign.tasks.likelihoods import KMAX
from latentalign.tasks.nmt.align import (
    BatchAlignments,
    Pair,
    available_alignments,
    columns_to_words,
    cut_padding,
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
    by_k = np.zeros(max(len(corpus.source(i)) for i in range(len(corpus))))  # several looks need more
    torch.manual_seed(trained.config.training.seed)
    for batch in evaluation_batches(corpus):
        latent = trained.model.latent(batch.to(trained.device))
        values = {"ppl_soft": latent.soft(), "entropy_prior": mean_entropy(latent.prior.shown)}
        if trained.model.distribution.supports("enumerate"):
            curve = kmax_curve(latent)
            values |= {f"ppl_kmax{k}": curve[..., min(k, curve.shape[-1]) - 1] for k in (1, KMAX)}
            values["ppl_exact"] = curve[..., -1]
            summed = curve.cpu().double().sum((0, 1)).numpy()
            longest = max(len(by_k), len(summed))
            by_k, summed = (np.pad(x, (0, longest - len(x)), mode="edge") for x in (by_k, summed))
            by_k = by_k + summed
        own = {"exact": "ppl_exact", "soft": "ppl_soft"}.get(trained.objective.predict)
        values["ppl"] = values[own] if own else parse_predict(trained.objective.predict).log_prob(latent)
        for i, count in zip(batch.index.tolist(), batch.target_mask.sum(-1).tolist(), strict=True):
            tokens[i] = count
        for name, value in values.items():
            for i, total in zip(batch.index.tolist(), value.cpu().double().sum(-1).tolist(), strict=True):
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


@dataclass(frozen=True)
class PairDetails:
    """Everything that a model says about the alignment of one pair's subwords."""

    matrices: dict[str, np.ndarray]
    """Probabilities by name, a row for each target subword; the last column is NULL if the model has it."""
    path: Sequence[int | None] = ()
    """The most probable path of a chain: a source subword for each target subword, None for NULL."""
    path_log_prob: float | None = None
    """Its posterior log-probability, including the step that ends the sentence."""


def describe_pairs(
    trained: TrainedTranslator, pairs: Sequence[tuple[str, str]], form: Callable[[np.ndarray], Any]
) -> list[dict[str, Any]]:
    """Words, subwords and all alignments of sentence pairs with words on both sides; `form` encodes a matrix."""
    encoded = encode_pairs(trained, [s for s, _ in pairs], [t for _, t in pairs])
    has_pieces = not {"words", "characters"}.issuperset(trained.config.tokenizer.kinds)
    found = []
    for texts, pair, known in zip(pairs, encoded, subword_details(trained, encoded), strict=True):
        record = word_record(*trained.vocabulary.find_pair_words(*texts))
        words = {name: columns_to_words(pair, m) for name, m in known.matrices.items()}
        record["matrices"] = {name: form(alignment.probability) for name, alignment in words.items()}
        if trained.model.has_null:
            record["null"] = {name: round_matrix(alignment.null) for name, alignment in words.items()}
        if known.path_log_prob is not None:
            record["path"] = word_path(pair, known.path)
            record["path_log_prob"] = known.path_log_prob
        if has_pieces:
            record |= piece_record(trained, pair, known, form)
        found.append(record)
    return found


def piece_record(
    trained: TrainedTranslator, pair: Pair, known: PairDetails, form: Callable[[np.ndarray], Any]
) -> dict[str, Any]:
    """The subwords of a pair and their alignments, as `schema.Matrices` describes them."""
    width = len(pair.source.ids)
    record: dict[str, Any] = {
        "source_pieces": trained.vocabulary.source_pieces(pair.source.ids),
        "target_pieces": trained.vocabulary.target_pieces(pair.target.ids),
        "piece_matrices": {name: form(m[:, :width]) for name, m in known.matrices.items()},
    }
    if trained.model.has_null:
        record["piece_null"] = {name: round_matrix(m[:, -1]) for name, m in known.matrices.items()}
    if known.path_log_prob is not None:
        record["piece_path"] = [[i, j] for j, i in enumerate(known.path)]
    return record


def word_path(pair: Pair, path: Sequence[int | None]) -> list[list[int | None]]:
    """(source word, target word) along a path of subwords, without repetitions; None for NULL."""
    words = [*pair.source.words, -1]  # special tokens belong to no word, and neither does NULL
    places = (words[-1 if i is None else i] for i in path)
    links = [[None if i < 0 else i, j] for i, j in zip(places, pair.target.words, strict=True) if j >= 0]
    return [link for n, link in enumerate(links) if n == 0 or link != links[n - 1]]


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
def subword_details(trained: TrainedTranslator, pairs: Sequence[Pair]) -> list[PairDetails]:
    """For each pair, its distributions over source subwords, and the best path of a chain."""
    found: dict[int, PairDetails] = {}
    names, null = available_alignments(trained), trained.model.has_null
    for group in group_by_size([p.size for p in pairs], skip=set(), limit=EVALUATION_TOKENS):
        chosen = [pairs[i] for i in group]
        batch = pair_batch([p.source.ids for p in chosen], [p.target.ids for p in chosen])
        alignments = BatchAlignments(trained.model.latent(batch.to(trained.device)))
        whole = {name: alignments.matrix(name).cpu().double().numpy() for name in names}
        paths = [part.tolist() for part in alignments.best_path] if "path" in names else None
        for row, (i, pair) in enumerate(zip(group, chosen, strict=True)):
            matrices = {name: cut_padding(pair, m[row], null=null) for name, m in whole.items()}
            found[i] = PairDetails(matrices)
            if paths is not None:
                path = [z if z < len(pair.source.ids) else None for z in paths[0][row]]
                log_prob = min(0.0, paths[1][row])
                found[i] = PairDetails(matrices, path[: len(pair.target.ids)], log_prob)
    return [found[i] for i in range(len(pairs))]


def round_matrix(matrix: np.ndarray) -> list[Any]:
    """Probabilities as lists, rounded to six digits."""
    found: list[Any] = matrix.round(6).tolist()
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
