"""Details of one trained model beyond single figures: scores per question, and the regions it looks at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from latentalign.core.numerics import masked_log_softmax
from latentalign.core.predictives import exact_posterior, parse_predict
from latentalign.tasks.vqa.accuracy import paper_accuracy, single_answers
from latentalign.tasks.vqa.data import Batch, Corpus, most_frequent
from latentalign.tasks.vqa.evaluate import answer_corpus, observed_batches
from latentalign.tasks.vqa.recipe import TrainedAnswerer, open_split
from latentalign.training.data import mean_entropy


@torch.no_grad()
def details(trained: TrainedAnswerer, split: str, *, questions: int) -> dict[str, Any]:
    """Scores of every question, and regions with their probabilities for some."""
    corpus = open_split(trained, split)
    predictive = parse_predict(trained.objective.predict)
    predicted = answer_corpus(trained, corpus, predictive)
    sums = {name: np.zeros(len(corpus.examples)) for name in ("nll", "entropy_prior")}
    for part, latent in observed_batches(trained, corpus):
        assert part.weight is not None
        values = {"nll": predictive.log_prob(latent), "entropy_prior": mean_entropy(latent.prior.shown)}
        assert part.weight is not None
        for name, value in values.items():
            np.add.at(sums[name], part.batch.index.numpy(), (value.cpu().double() * part.weight).numpy())
    pictures = [e.question.image_id for e in corpus.examples]
    judged_pictures = [pictures[i] for i in corpus.answerable]
    return {
        "objective": trained.config.objective.name,
        "split": split,
        "scores": {
            **{name: value[corpus.answerable].tolist() for name, value in sums.items()},
            "accuracy": [100 * x for x in scores(predicted, corpus)],
        },
        "groups": {**dict.fromkeys(sums, judged_pictures), "accuracy": pictures},
        "looks": describe_looks(trained, corpus, predicted, questions),
    }


def scores(predicted: dict[int, str], corpus: Corpus) -> list[float]:
    """The accuracy of every question, which is exact match where all have one answer."""
    found = [paper_accuracy(predicted[e.question.question_id], e.annotation.answers) for e in corpus.examples]
    return [float(x > 0) for x in found] if single_answers([e.annotation for e in corpus.examples]) else found


def example_regions(trained: TrainedAnswerer, split: str, questions: int) -> list[dict[str, Any]]:
    """Some questions of a split with the regions that the model looks at."""
    corpus = open_split(trained, split)
    predictive = parse_predict(trained.objective.predict)
    return describe_looks(trained, corpus, answer_corpus(trained, corpus, predictive), questions)


@torch.no_grad()
def describe_looks(
    trained: TrainedAnswerer, corpus: Corpus, predicted: dict[int, str], questions: int
) -> list[dict[str, Any]]:
    """Regions of some questions, spread over the split, under prior, q and exact posterior."""
    usable = corpus.answerable
    chosen = usable[np.linspace(0, len(usable) - 1, min(questions, len(usable))).astype(int)]
    targets = np.array([most_frequent(corpus.votes[i]) for i in chosen])
    batch = corpus.batch(chosen, targets)
    found = []
    for row, (i, seen) in enumerate(zip(chosen, describe_regions(trained, batch), strict=True)):
        example = corpus.examples[i]
        found.append(
            {
                "question_id": example.question.question_id,
                "image_id": example.question.image_id,
                "question": example.question.question,
                "answer": trained.vocabulary.answers[int(targets[row])],
                "predicted": predicted[example.question.question_id],
                "gold": [list(box) for box in example.annotation.regions],
                **seen,
            }
        )
    return found


@torch.no_grad()
def describe_regions(trained: TrainedAnswerer, batch: Batch) -> list[dict[str, Any]]:
    """For every question its regions, their probabilities given its answer, and what would be said of each."""
    latent = trained.model.latent(batch.to(trained.device))
    says = likeliest_answers(trained, batch)
    distributions = {"prior": latent.prior, "posterior": exact_posterior(latent)}
    if latent.inferred is not None:
        distributions["inferred"] = latent.inferred
    means = {name: distribution.shown for name, distribution in distributions.items()}
    for name, distribution in distributions.items():
        each = distribution.by_look.unbind(1)
        means |= {f"{name}, look {h}": mean for h, mean in enumerate(each, 1) if len(each) > 1}
    found = []
    for row, present in enumerate(batch.region_mask):
        found.append(
            {
                "boxes": batch.boxes[row][present].tolist(),
                "looks": {name: mean[row].cpu()[present].tolist() for name, mean in means.items()},
                "says": [says[row][t] for t in range(len(present)) if present[t]],
            }
        )
    return found


@torch.no_grad()
def likeliest_answers(
    trained: TrainedAnswerer, batch: Batch, *, top: int = 3
) -> list[list[list[tuple[str, float]]]]:
    """For every question and region the likeliest answers if the model looked there.

    With several looks, those of all alignments that look there, in proportion to their prior.
    """
    names = trained.vocabulary.answers
    choice = trained.model(batch.to(trained.device))
    everything, regions = choice.prior.enumerate(), batch.region_mask.shape[1]
    seen = everything.selected(choice.memory.shape[-2]) % regions
    found: list[list[list[tuple[str, float]]]] = [[] for _ in range(len(seen))]
    for region in range(regions):
        there = (seen == region).any(-1) & everything.present
        given = replace(everything, log_weight=masked_log_softmax(everything.log_weight, there))
        likeliest = choice.average(given).exp().topk(min(top, len(names)))
        for row, (answers, shares) in enumerate(
            zip(likeliest.indices.tolist(), likeliest.values.tolist(), strict=True)
        ):
            found[row].append([(names[a], round(p, 3)) for a, p in zip(answers, shares, strict=True)])
    return found
