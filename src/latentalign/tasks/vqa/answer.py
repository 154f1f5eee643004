"""Questions in, answers out: one for each, in order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from latentalign.tasks.likelihoods import parse_predictive
from latentalign.tasks.vqa.data import Corpus, Example, SplitConfig
from latentalign.tasks.vqa.evaluate import answer_corpus
from latentalign.tasks.vqa.questions import Annotation, Question, read_questions
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
