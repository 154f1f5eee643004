"""Every figure of a trained question answering model: likelihoods, accuracies, entropies and grounding."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from latentalign.core.errors import MissingAbilityError
from latentalign.core.latent import Latent
from latentalign.core.predictives import Predictive, exact_posterior
from latentalign.errors import InputError
from latentalign.progress import warn
from latentalign.tasks.likelihoods import (
    KMAX,
    LOG_PROBABILITIES,
    NATS,
    Likelihoods,
    parse_predictive,
    sum_log_probabilities,
)
from latentalign.tasks.vqa.accuracy import accuracies
from latentalign.tasks.vqa.baselines import compare_baselines
from latentalign.tasks.vqa.data import AnsweredBatch, Batch, Corpus, Example, answered_batches
from latentalign.tasks.vqa.recipe import TrainedAnswerer, open_split
from latentalign.tasks.vqa.training_data import EVALUATION_ROWS

OVERLAP = 0.5
"""Intersection over union from which a region counts as a gold one."""
KEYS = {
    "own": "nll",
    "exact": "nll_exact",
    "soft": "nll_soft",
    f"kmax{KMAX}": f"nll_kmax{KMAX}",
    "elbo": "nll_elbo",
}
"""The keys of negative log-likelihoods in the output of `latentalign evaluate`."""


def evaluate(trained: TrainedAnswerer, split: str, *, predict: str | None = None) -> dict[str, Any]:
    """Every figure of a split; None where one does not exist for this model or data."""
    corpus = open_split(trained, split)
    how = predict or trained.objective.predict
    predictive = parse_predictive(how)
    result: dict[str, Any] = {"split": split, "objective": trained.config.objective.name, "predict": how}
    result |= {"questions": len(corpus), "answerable": len(corpus.answerable)}
    result |= likelihoods(trained, corpus, predictive)
    found = accuracies(answer_corpus(trained, corpus, predictive), [e.annotation for e in corpus.examples])
    result |= found.figures()
    result["comparison"] = compare_baselines(trained, corpus.examples, found)
    if found.warning():
        warn(f"{split}: {found.warning()}")
    return result | found.breakdowns()


def likelihoods(trained: TrainedAnswerer, corpus: Corpus, predictive: Predictive) -> dict[str, Any]:
    """Negative log-likelihoods of human answers, the bound's gap, entropies, and grounding."""
    hits: dict[str, list[bool]] = defaultdict(list)

    def collect_hits(part: AnsweredBatch, latent: Latent, _: Likelihoods) -> None:
        for name, found in find_hits(part, latent, corpus).items():
            hits[name] += found

    sums = sum_log_probabilities(observed_batches(trained, corpus), predictive, collect_hits)
    count = max(1, len(corpus.answerable))
    result: dict[str, Any] = {
        KEYS[name]: -sums[name] / count if name in sums else None for name in LOG_PROBABILITIES
    }
    for name in NATS:
        result[name] = sums[name] / count if name in sums else None
    for name in ("prior", "inferred", "posterior"):
        result[f"grounding_{name}"] = float(np.mean(hits[name])) if hits[name] else None
    return result


@torch.no_grad()
def observed_batches(trained: TrainedAnswerer, corpus: Corpus) -> Iterator[tuple[AnsweredBatch, Any]]:
    """All (question, answer) pairs of a corpus with their latent regions."""
    torch.manual_seed(trained.config.training.seed)
    for part in answered_batches(corpus, EVALUATION_ROWS):
        yield part, trained.model.latent(part.batch.to(trained.device))


@torch.no_grad()
def find_hits(part: AnsweredBatch, latent: Latent, corpus: Corpus) -> dict[str, list[bool]]:
    """Whether the likeliest region is a gold one, for the most frequent answer of each question with gold regions."""
    index, is_top = part.batch.index.tolist(), part.is_top
    assert is_top is not None
    rows = [r for r, i in enumerate(index) if is_top[r] and corpus.examples[i].annotation.regions]
    if not rows:
        return {}
    means = {"prior": latent.prior.shown, "posterior": exact_posterior(latent).shown}
    if latent.inferred is not None:
        means["inferred"] = latent.inferred.shown
    found: dict[str, list[bool]] = {}
    for name, mean in means.items():
        chosen = mean.argmax(-1).cpu()
        found[name] = [
            overlaps(part.batch.boxes[r, chosen[r]].tolist(), corpus.examples[index[r]].annotation.regions)
            for r in rows
        ]
    return found


def overlaps(box: Sequence[float], gold: Sequence[Sequence[float]]) -> bool:
    """Whether a box is one of the gold boxes."""
    return any(intersection_over_union(box, other) >= OVERLAP for other in gold)


def intersection_over_union(a: Sequence[float], b: Sequence[float]) -> float:
    """The shared area of two boxes x1, y1, x2, y2 as a part of what they cover together."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    shared = max(0.0, width) * max(0.0, height)
    whole = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared
    return shared / whole if whole > 0 else 0.0


@torch.no_grad()
def answer_corpus(trained: TrainedAnswerer, corpus: Corpus, predictive: Predictive) -> dict[int, str]:
    """The likeliest answer to every question, by its id."""
    found = {}
    for start in range(0, len(corpus), EVALUATION_ROWS):
        index = np.arange(start, min(start + EVALUATION_ROWS, len(corpus)))
        batch = corpus.batch(index, np.zeros(len(index), np.int64)).to(trained.device)
        likeliest = answer_log_probs(trained, batch, predictive).argmax(-1).tolist()
        for i, answer in zip(index, likeliest, strict=True):
            found[corpus.examples[i].question.question_id] = trained.vocabulary.answers[answer]
    return found


def answer_log_probs(trained: TrainedAnswerer, batch: Batch, predictive: Predictive) -> Tensor:
    """log p of every answer of the vocabulary for every question of a batch."""
    try:
        log_probs: Tensor = trained.model(batch).predict(predictive)
    except MissingAbilityError as error:
        raise InputError(str(error)) from None
    return log_probs


def answer_scores(predicted: dict[int, str], examples: Sequence[Example]) -> dict[str, Any]:
    """All accuracies in per cent, overall and by kind of question, under the names of `latentalign accuracy`."""
    found = accuracies(predicted, [e.annotation for e in examples])
    return found.figures() | found.breakdowns()
