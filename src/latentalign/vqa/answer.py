"""Questions in, answers out: one for each, in order."""

from __future__ import annotations

from pathlib import Path

from latentalign.vqa.data import Corpus, Example, SplitConfig
from latentalign.vqa.metrics import answers
from latentalign.vqa.questions import Annotation, read_questions
from latentalign.vqa.task import Trained


def answer_questions(
    trained: Trained, questions: Path, features: Path, *, predict: str | None = None
) -> dict[int, str]:
    """The likeliest answer of every question of a file, by its id."""
    asked = read_questions(questions)
    examples = [Example(q, Annotation(q.question_id, q.image_id, "", "", (), ())) for q in asked]
    split = SplitConfig(questions=questions, annotations=questions, features=features)
    corpus = Corpus(examples, trained.vocabulary, split, max_regions=trained.config.data.max_regions)
    return answers(trained, corpus, predict or trained.objective.predict)
