"""Answers that need no picture: what a model has to beat."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from latentalign.errors import LatentAlignError
from latentalign.progress import warn
from latentalign.tasks.vqa.accuracy import Accuracies, accuracies
from latentalign.tasks.vqa.data import Example, read_split
from latentalign.tasks.vqa.questions import words
from latentalign.tasks.vqa.recipe import TrainedAnswerer

FEWEST = 3
"""Training questions that must share their first words before their answers are trusted."""

Prefix = tuple[str, ...]


def compare_baselines(
    trained: TrainedAnswerer, examples: Sequence[Example], found: Accuracies
) -> dict[str, dict[str, Any]] | None:
    """The model's accuracies beside those of both baselines; None if the training questions cannot be read."""
    data = trained.config.data
    try:
        train = read_split(data.train, seed=data.split_seed)
    except (LatentAlignError, OSError) as error:
        warn(f"no baselines, because they need the training questions: {error}")
        return None
    humans = [e.annotation for e in examples]
    return {
        "model": found.figures(),
        "question_only": accuracies(question_only(train, examples), humans).figures(),
        "majority": accuracies(majority(train, examples), humans).figures(),
    }


def majority(train: Sequence[Example], test: Sequence[Example]) -> dict[int, str]:
    """The most frequent training answer, whatever the question, by question id."""
    best = most_voted(Counter(answer for e in train for answer in e.annotation.answers))
    return {e.question.question_id: best for e in test}


def majority_of_type(train: Sequence[Example], test: Sequence[Example]) -> dict[int, str]:
    """The most frequent training answer of each question's type, by question id; of all answers for a new type."""
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for example in train:
        votes[example.annotation.question_type].update(example.annotation.answers)
    fallback = sum(votes.values(), Counter())
    best = {kind: most_voted(counts) for kind, counts in votes.items()}
    overall = most_voted(fallback)
    return {e.question.question_id: best.get(e.annotation.question_type, overall) for e in test}


def question_only(train: Sequence[Example], test: Sequence[Example]) -> dict[int, str]:
    """The most frequent answer to the training questions that begin with the same words, by question id.

    The longest beginning that at least three training questions share decides; for some questions that is the whole
    question. Ties are decided by the alphabet, so the result never depends on chance.
    """
    asked = {e.question.question_id: prefixes(e.question.question) for e in test}
    wanted = {prefix for found in asked.values() for prefix in found}
    votes: dict[Prefix, Counter[str]] = defaultdict(Counter)
    support: Counter[Prefix] = Counter()
    for example in train:
        for prefix in prefixes(example.question.question):
            if prefix in wanted:
                votes[prefix].update(example.annotation.answers)
                support[prefix] += 1
    best = {prefix: most_voted(votes[prefix]) for prefix in wanted if support[prefix] >= FEWEST or not prefix}
    return {
        number: next(best[prefix] for prefix in found if prefix in best) for number, found in asked.items()
    }


def prefixes(question: str) -> list[Prefix]:
    """The whole question as words, then without its last word, and so on; the last one is empty."""
    found = tuple(words(question))
    return [found[:length] for length in range(len(found), -1, -1)]


def most_voted(votes: Counter[str]) -> str:
    """The answer with the most votes; the first of equals in the alphabet."""
    return min(votes, key=lambda answer: (-votes[answer], answer))
