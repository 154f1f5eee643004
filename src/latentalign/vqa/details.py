"""What a report shows of one trained model beyond single figures: question by question, and where it looks."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import torch

from latentalign.core.predict import exact_posterior, log_predictive, parse_predict
from latentalign.vqa.accuracy import paper_accuracy
from latentalign.vqa.data import Corpus
from latentalign.vqa.metrics import answers, judged_latents
from latentalign.vqa.task import Trained


def details(trained: Trained, split: str, *, questions: int) -> dict[str, Any]:
    """Scores of every question, and regions with their probabilities for some."""
    corpus = trained.corpus(split)
    how = trained.objective.predict
    predicted = answers(trained, corpus, how)
    log_prob: dict[int, float] = defaultdict(float)
    own = parse_predict(how)
    for latent, judged, batch in judged_latents(trained, corpus):
        values = log_predictive(latent, own).double().cpu() * judged.weight
        for i, value in zip(batch.index.tolist(), values.tolist(), strict=True):
            log_prob[i] += value
    return {
        "objective": trained.config.objective.name,
        "split": split,
        "log_prob": [log_prob[int(i)] for i in corpus.answerable],
        "accuracies": [
            paper_accuracy(predicted[e.question.question_id], e.annotation.answers) for e in corpus.examples
        ],
        "looks": looks(trained, corpus, predicted, questions),
    }


@torch.no_grad()
def looks(
    trained: Trained, corpus: Corpus, predicted: dict[int, str], questions: int
) -> list[dict[str, Any]]:
    """Regions of some questions, spread over the split, under prior, q and exact posterior."""
    usable = corpus.answerable
    chosen = usable[np.linspace(0, len(usable) - 1, min(questions, len(usable))).astype(int)]
    targets = np.array([min(v, key=lambda a, v=v: (-v[a], a)) for v in (corpus.votes[i] for i in chosen)])
    batch = corpus.batch(chosen, targets)
    latent = trained.model.latent(batch.to(trained.device))
    looked = {"prior": latent.prior.mean, "posterior": exact_posterior(latent).mean}
    if latent.inferred is not None:
        looked["inferred"] = latent.inferred.mean
    found = []
    for row, i in enumerate(chosen):
        example = corpus.examples[i]
        present = batch.region_mask[row]
        found.append(
            {
                "question_id": example.question.question_id,
                "image_id": example.question.image_id,
                "question": example.question.question,
                "answer": trained.vocabulary.answers[int(targets[row])],
                "predicted": predicted[example.question.question_id],
                "boxes": batch.boxes[row][present].tolist(),
                "gold": [list(box) for box in example.annotation.regions],
                "looks": {name: mean[row].cpu()[present].tolist() for name, mean in looked.items()},
            }
        )
    return found
