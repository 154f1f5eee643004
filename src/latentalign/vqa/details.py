"""What a report shows of one trained model beyond single figures: question by question, and where it looks."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import torch

from latentalign.core.predict import exact_posterior, log_predictive, parse_predict
from latentalign.vqa.accuracy import paper_accuracy
from latentalign.vqa.data import Batch, Corpus
from latentalign.vqa.metrics import answers, judged_latents, single_answers
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
        "pictures": [corpus.examples[i].question.image_id for i in corpus.answerable],
        "accuracies": scores(predicted, corpus),
        "all_pictures": [e.question.image_id for e in corpus.examples],
        "looks": looks(trained, corpus, predicted, questions),
    }


def scores(predicted: dict[int, str], corpus: Corpus) -> list[float]:
    """The accuracy of every question, which is exact match where all have one answer."""
    found = [paper_accuracy(predicted[e.question.question_id], e.annotation.answers) for e in corpus.examples]
    return [float(x > 0) for x in found] if single_answers(corpus) else found


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
    says = said(trained, batch)
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
                "says": [says[row][t] for t in range(len(present)) if present[t]],
            }
        )
    return found


@torch.no_grad()
def said(trained: Trained, batch: Batch, *, top: int = 3) -> list[list[list[tuple[str, float]]]]:
    """For every question and region the likeliest answers if the model looked there: f(x, z) of each z."""
    model = trained.model
    here = batch.to(trained.device)
    query, memory = model.ask(here.question, here.question_mask), model.look(here.regions)
    found = []
    for row in range(len(memory)):
        queries = query[row].expand(memory.shape[1], -1)
        likeliest = (
            model.head(queries, memory[row]).softmax(-1).topk(min(top, len(trained.vocabulary.answers)))
        )
        found.append(
            [
                [(trained.vocabulary.answers[a], round(p, 3)) for a, p in zip(answers, shares, strict=True)]
                for answers, shares in zip(likeliest.indices.tolist(), likeliest.values.tolist(), strict=True)
            ]
        )
    return found
