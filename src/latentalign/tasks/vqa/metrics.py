"""What a trained question answering model is worth: likelihoods, accuracies, entropies and grounding."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from latentalign.core.errors import MissingAbilityError
from latentalign.core.kernels.emission import EmissionLatent
from latentalign.core.predictives import Predictive, exact_posterior, parse_predict
from latentalign.errors import InputError
from latentalign.tasks.vqa.accuracy import accuracies
from latentalign.tasks.vqa.data import Corpus, Example, judged_batches
from latentalign.tasks.vqa.questions import Annotation
from latentalign.tasks.vqa.task import EVALUATION_ROWS, Trained

KMAX = 5
OVERLAP = 0.5
"""Intersection over union from which a region counts as a gold one."""


def evaluate(trained: Trained, split: str, *, predict: str | None = None) -> dict[str, Any]:
    """Every measurement of a split; null where one does not exist for this model or data."""
    corpus = trained.corpus(split)
    how = predict or trained.objective.predict
    checked_predict(how)
    result: dict[str, Any] = {"split": split, "objective": trained.config.objective.name, "predict": how}
    result |= {"questions": len(corpus), "answerable": len(corpus.answerable)}
    result |= likelihoods(trained, corpus, how)
    return result | answer_scores(answers(trained, corpus, how), corpus.examples)


def checked_predict(how: str) -> Predictive:
    """A way to predict, if it is one."""
    try:
        return parse_predict(how)
    except ValueError as error:
        raise InputError(str(error)) from None


def likelihoods(trained: Trained, corpus: Corpus, how: str) -> dict[str, Any]:
    """Negative log-likelihoods of human answers, the bound's gap, entropies, and where the model looks."""
    sums: dict[str, float] = defaultdict(float)
    hits: dict[str, list[bool]] = defaultdict(list)
    for latent, judged, batch in judged_latents(trained, corpus):
        for name, values in measured(latent, how).items():
            sums[name] += float((values.double().cpu() * judged.weight).sum())
        for name, found in grounded(latent, judged.best, batch.boxes, corpus, batch.index).items():
            hits[name] += found
    count = max(1, len(corpus.answerable))
    result: dict[str, Any] = {
        name: -sums[name] / count if name in sums else None
        for name in ("nll", "nll_exact", "nll_soft", f"nll_kmax{KMAX}", "nll_elbo")
    }
    for name in ("entropy_prior", "entropy_inferred", "elbo_gap", "jensen_gap"):
        result[name] = sums[name] / count if name in sums else None
    for name in ("prior", "inferred", "posterior"):
        result[f"grounding_{name}"] = float(np.mean(hits[name])) if hits[name] else None
    return result


@torch.no_grad()
def judged_latents(trained: Trained, corpus: Corpus) -> Iterator[tuple[Any, Any, Any]]:
    """The latent regions of every (question, answer) pair of a corpus, with the pairs."""
    torch.manual_seed(trained.config.training.seed)
    for judged in judged_batches(corpus, EVALUATION_ROWS):
        yield trained.model.latent(judged.batch.to(trained.device)), judged, judged.batch


@torch.no_grad()
def measured(latent: EmissionLatent, how: str) -> dict[str, Tensor]:
    """Log-probabilities, bounds and entropies of one batch from one enumeration."""
    everything = latent.prior.enumerate()
    each = latent.log_likelihood(everything)
    top = latent.prior.top(min(KMAX, each.shape[-1]))
    exact = everything.log_expect_exp(each)
    found = {
        "nll": parse_predict(how).log_prob(latent),
        "nll_exact": exact,
        "nll_soft": latent.soft(),
        f"nll_kmax{KMAX}": top.log_expect_exp(each.gather(-1, top.index)),
        "jensen_gap": exact - everything.expect(each),
        "entropy_prior": latent.prior.entropy,
    }
    if latent.inferred is not None:
        elbo = latent.inferred.enumerate().expect(each) - latent.inferred.kl(latent.prior)
        found |= {
            "nll_elbo": elbo,
            "elbo_gap": exact - elbo,
            "entropy_inferred": latent.inferred.entropy,
        }
    return found


@torch.no_grad()
def grounded(
    latent: EmissionLatent, best: Tensor, boxes: Tensor, corpus: Corpus, index: Tensor
) -> dict[str, list[bool]]:
    """Whether the likeliest region is a gold one, for questions that have such, given their most frequent answer."""
    rows = [r for r, i in enumerate(index.tolist()) if best[r] and corpus.examples[i].annotation.regions]
    if not rows:
        return {}
    looked = {"prior": latent.prior.mean, "posterior": exact_posterior(latent).mean}
    if latent.inferred is not None:
        looked["inferred"] = latent.inferred.mean
    found: dict[str, list[bool]] = {}
    for name, mean in looked.items():
        chosen = mean.argmax(-1).cpu()
        found[name] = [
            overlaps(boxes[r, chosen[r]].tolist(), corpus.examples[int(index[r])].annotation.regions)
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
def answers(trained: Trained, corpus: Corpus, how: str) -> dict[int, str]:
    """The likeliest answer of every question, by its id."""
    predict = checked_predict(how)
    found = {}
    for start in range(0, len(corpus), EVALUATION_ROWS):
        index = np.arange(start, min(start + EVALUATION_ROWS, len(corpus)))
        batch = corpus.batch(index, np.zeros(len(index), np.int64)).to(trained.device)
        likeliest = answer_log_probs(trained, batch, predict).argmax(-1).tolist()
        for i, answer in zip(index, likeliest, strict=True):
            found[corpus.examples[i].question.question_id] = trained.vocabulary.answers[answer]
    return found


def answer_log_probs(trained: Trained, batch: Any, predict: Predictive) -> Tensor:
    """log p of every answer of the vocabulary for every question of a batch."""
    try:
        log_probs: Tensor = trained.model(batch).predict(predict)
    except MissingAbilityError as error:
        raise InputError(str(error)) from None
    return log_probs


def answer_scores(predicted: dict[int, str], examples: Sequence[Example]) -> dict[str, Any]:
    """The paper's accuracy and the official one, in per cent, overall and by kind of question.

    Where a question has a single answer, accuracy is exact match and the official one does not exist.
    """
    found = accuracies(predicted, [e.annotation for e in examples])
    single = single_answers(examples)

    def percent(score: Any) -> dict[str, Any]:
        values = asdict(score)
        main = values["exact"] if single else values["paper"]
        official = values["official"]
        return {
            "accuracy": 100 * main,
            "accuracy_official": None if single or official is None else 100 * official,
        }

    kinds = {name: percent(s) | {"questions": s.questions} for name, s in found.by_question_type.items()}
    types = {name: percent(s) | {"questions": s.questions} for name, s in found.by_answer_type.items()}
    return {**percent(found), "by_question_type": kinds, "by_answer_type": types}


def single_answers(examples: Sequence[Example]) -> bool:
    """Whether every question has one human answer."""
    return all(len(e.annotation.answers) == 1 for e in examples)


def majority(train: Sequence[Annotation], test: Sequence[Annotation]) -> dict[int, str]:
    """The most frequent training answer of each question's type, by question id: what needs no model at all."""
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for annotation in train:
        for answer in annotation.answers:
            counts[annotation.question_type][answer] += 1
            counts[""][answer] += 1

    def likeliest(kind: str) -> str:
        votes = counts.get(kind) or counts[""]
        return min(votes, key=lambda a: (-votes[a], a))

    return {a.question_id: likeliest(a.question_type) for a in test}
