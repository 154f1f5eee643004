"""Questions in, answers out: one for each, in order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from latentalign.tasks.vqa.data import Corpus, Example, SplitConfig
from latentalign.tasks.vqa.metrics import answers
from latentalign.tasks.vqa.questions import Annotation, Question, read_questions
from latentalign.tasks.vqa.task import Trained


def answer_questions(
    trained: Trained, questions: Path, features: Path, *, predict: str | None = None
) -> dict[int, str]:
    """The likeliest answer of every question of a file, by its id."""
    split = SplitConfig(questions=questions, annotations=questions, features=features)
    corpus = unanswered(trained, read_questions(questions), split)
    return answers(trained, corpus, predict or trained.objective.predict)


def unanswered(trained: Trained, questions: Sequence[Question], split: SplitConfig) -> Corpus:
    """Questions that no human answered, about pictures of a split's features file."""
    examples = [Example(q, Annotation(q.question_id, q.image_id, "", "", (), ())) for q in questions]
    return Corpus(examples, trained.vocabulary, split, max_regions=trained.config.data.max_regions)
