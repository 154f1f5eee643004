"""Details of one trained model beyond single figures: scores per sentence, K-max curves and alignment matrices."""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from latentalign.core.latent import Latent
from latentalign.links.aligned import word_record
from latentalign.links.formats import read_gold
from latentalign.links.sets import Gold
from latentalign.tasks.likelihoods import KMAX, Likelihoods
from latentalign.tasks.nmt.align import (
    BatchAlignments,
    Pair,
    available_alignments,
    columns_to_words,
    cut_padding,
    encode_pairs,
)
from latentalign.tasks.nmt.data import Batch, Corpus
from latentalign.tasks.nmt.decode import group_by_size, pair_batch
from latentalign.tasks.nmt.evaluate import translate_split
from latentalign.tasks.nmt.recipe import TrainedTranslator, find_split
from latentalign.tasks.nmt.text_scores import bleu_statistics, text_scores
from latentalign.tasks.nmt.training_data import EVALUATION_TOKENS
from latentalign.tasks.nmt.translate import TranslationSettings
from latentalign.training.data import WeightedBatch, perplexity

LONGEST = 22
"""Most words of a sentence that fits on a page."""


def details(
    trained: TrainedTranslator,
    split_name: str,
    outputs: Sequence[str],
    scores: SentenceScores,
    *,
    sentences: int,
    by_kmax: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Everything that a report needs to know about a run: its translations of the split, and what `scores` has seen.

    `by_kmax` are its translations with K-max, if they exist already.
    """
    split = find_split(trained, split_name)
    references = [target for _, target in split.read()]
    found: dict[str, Any] = {"objective": trained.config.objective.name, "split": split_name}
    found |= scores.result()
    found["bleu_statistics"] = bleu_statistics(trained.config, outputs, references)
    found["outputs"] = list(outputs)
    if trained.model.distribution.supports("enumerate"):
        if by_kmax is None:
            by_kmax = translate_split(trained, split_name, TranslationSettings(predict=f"kmax:{KMAX}"))
        found[f"bleu_kmax{KMAX}"] = text_scores(trained.config, by_kmax, references)["bleu"]
    found["alignments"] = example_alignments(trained, split_name, sentences)
    return found


class SentenceScores:
    """Per sentence: tokens, log-probability under every predictive, entropy of the prior; and K-max for all K.

    It is called with every batch of an evaluation.
    """

    def __init__(self, corpus: Corpus) -> None:
        self.tokens = [0.0] * len(corpus)
        self.scores: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(corpus))
        longest = max(len(corpus.source(i)) for i in range(len(corpus)))
        self.by_k = np.zeros(longest)  # it grows if there are several looks
        self.enumerated = False

    def __call__(self, part: WeightedBatch[Batch], latent: Latent, found: Likelihoods) -> None:
        batch, figures = part.batch, found.figures
        values = {
            "ppl_soft": figures["soft"],
            "entropy_prior": figures["entropy_prior"],
            "ppl": figures["own"],
        }
        if found.each is not None:
            self.enumerated = True
            curve = kmax_curve(found)
            values |= {f"ppl_kmax{k}": curve[..., min(k, curve.shape[-1]) - 1] for k in (1, KMAX)}
            values["ppl_exact"] = figures["exact"]
            self.add_curve(curve)
        rows = batch.index.tolist()
        for i, count in zip(rows, batch.target_mask.sum(-1).tolist(), strict=True):
            self.tokens[i] = count
        for name, value in values.items():
            for i, total in zip(rows, value.cpu().double().sum(-1).tolist(), strict=True):
                self.scores[name][i] = total

    def add_curve(self, curve: Tensor) -> None:
        """Add the log-probabilities of a batch for each K; a source with fewer members keeps its last value."""
        summed = curve.cpu().double().sum((0, 1)).numpy()
        longest = max(len(self.by_k), len(summed))
        by_k, summed = (np.pad(x, (0, longest - len(x)), mode="edge") for x in (self.by_k, summed))
        self.by_k = by_k + summed

    def result(self) -> dict[str, Any]:
        """Everything that was seen, for JSON."""
        found: dict[str, Any] = {"tokens": self.tokens, "scores": dict(self.scores)}
        if self.enumerated:
            found["kmax_curve"] = [perplexity(float(x), int(sum(self.tokens))) for x in self.by_k]
            found["ppl_kmax1"] = found["kmax_curve"][0]
        return found


def kmax_curve(found: Likelihoods) -> Tensor:
    """log p under the k most probable members, k = 1..T: (*batch, k); 0 without a query."""
    assert found.each is not None
    assert found.predicted is not None
    log_prob, order = found.predicted.enumerate().log_prob.sort(dim=-1, descending=True)
    joint = log_prob + found.each.gather(-1, order)
    return (joint.logcumsumexp(-1) - log_prob.logcumsumexp(-1)).nan_to_num(0.0)


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
