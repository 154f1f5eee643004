"""Questions in, answers out: for files of questions, and for one question about some regions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from latentalign.data.region_features.format import Array
from latentalign.errors import InputError
from latentalign.tasks.likelihoods import parse_predictive
from latentalign.tasks.vqa.data import Corpus, Example, SplitConfig, single_batch
from latentalign.tasks.vqa.details import describe_regions
from latentalign.tasks.vqa.evaluate import answer_corpus, answer_log_probs
from latentalign.tasks.vqa.questions import Annotation, Question, read_questions, require_words, words
from latentalign.tasks.vqa.recipe import TrainedAnswerer


def answer_questions(
    trained: TrainedAnswerer, questions: Path, features: Path, *, predict: str | None = None
) -> dict[int, str]:
    """The likeliest answer to every question of a file, by its id."""
    split = SplitConfig(questions=questions, annotations=questions, features=features)
    corpus = open_questions(trained, read_questions(questions), split)
    return answer_corpus(trained, corpus, parse_predictive(predict or trained.objective.predict))


def open_questions(trained: TrainedAnswerer, questions: Sequence[Question], split: SplitConfig) -> Corpus:
    """Questions that no human answered, about pictures of a split's features file."""
    examples = [Example(q, Annotation(q.question_id, q.image_id, "", "", (), ())) for q in questions]
    return Corpus(examples, trained.vocabulary, split, max_regions=trained.config.data.max_regions)


def check_question(trained: TrainedAnswerer, question: str, answer: str | None = None) -> None:
    """Raise if a question has no word, or if the model cannot give the answer that is named."""
    require_words(question)
    if answer is not None and trained.vocabulary.answer(answer) is None:
        raise InputError(f"answer: {answer!r} is not among the answers that the model can give")


@torch.no_grad()
def answer_regions(
    trained: TrainedAnswerer,
    question: str,
    regions: tuple[Array, Array],
    *,
    answer: str | None = None,
    predict: str | None = None,
    top: int = 5,
) -> dict[str, Any]:
    """The likeliest answers, and the probabilities of a picture's regions with the answers that each would give.

    q and the posterior are given the likeliest answer, unless another one is named.
    """
    vocabulary, most = trained.vocabulary, trained.config.data.max_regions
    predictive = parse_predictive(predict or trained.objective.predict)
    batch = single_batch(question, *regions, vocabulary, max_regions=most)
    log_probs = answer_log_probs(trained, batch.to(trained.device), predictive)
    likeliest = log_probs[0].cpu().double().exp().topk(min(top, log_probs.shape[-1]))
    answers = [
        {"answer": vocabulary.answers[i], "probability": p}
        for i, p in zip(likeliest.indices.tolist(), likeliest.values.tolist(), strict=True)
    ]
    best = str(answers[0]["answer"])
    given = best if answer is None else answer
    batch.target.fill_(vocabulary.answer(given) or 0)
    look = {"question": question, "predicted": best, "given": given, "gold": []}
    known = set(vocabulary.words)
    unknown = [word for word in dict.fromkeys(words(question)) if word not in known]
    return {
        "answers": answers,
        "unknown_words": unknown,
        "look": {**look, **describe_regions(trained, batch)[0]},
    }
