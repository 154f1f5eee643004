"""Accuracy of predicted answers: the paper's accuracy and the official one of the VQA challenge.

The official accuracy follows the last version of the challenge's evaluation script, including its quirks: answers
are not normalised if all ten people agree, a period is kept only before a digit, and only the first 32 other
periods are removed.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from latentalign.errors import InputError
from latentalign.tasks.vqa.questions import Annotation

PEOPLE = 10
"""Number of human answers that the official accuracy needs."""

_MARKS = ';/[]"{}()=+\\_-><@`,?!'
_COMMA_IN_NUMBER = re.compile(r"\d,\d")
_PERIOD = re.compile(
    r"\.(?!\d)"
)  # the look-behind of the script for a digit has a typing error and never matches
_PERIODS = 32  # the script passes a flag with this value as the number of replacements
_ARTICLES = ("a", "an", "the")
_NUMBER_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NUMBERS = {"none": "0"} | {word: str(number) for number, word in enumerate(_NUMBER_WORDS)}
_STEMS = {
    "n't": "ai are ca could did do does had has have is might must need ought sha should was were wo would",
    "n't've": "could had might should would",
    "'ve": "could might must not should they we what where who would you",
    "'d": "he how it someone something there they where who you",
    "'d've": "he it she somebody someone something there they we who y'all you",
    "'ll": "how it somebody someone something they what who why y'all you",
    "'re": "there they what why you",
    "'s": "he how somebody someone that there what when where who why",
    "": "ma'am o'clock 'ow's'at 'twas y'all",
}


def _misspellings(contraction: str) -> Iterator[str]:
    """The contraction without one of its apostrophes, for each of them."""
    for place, letter in enumerate(contraction):
        if letter == "'":
            yield contraction[:place] + contraction[place + 1 :]


CONTRACTIONS: dict[str, str] = {
    misspelt: stem + ending
    for ending, stems in _STEMS.items()
    for stem in stems.split()
    for misspelt in _misspellings(stem + ending)
} | {"somebody'd": "somebodyd"}  # the script has this entry the wrong way round
"""The official correction of contractions that lack an apostrophe."""


@lru_cache(maxsize=2**17)
def normalize(answer: str) -> str:
    """An answer as the official script compares it: no punctuation or articles, numbers as digits, lower case."""
    text = _remove_punctuation(_strip(answer)).lower()
    words = (_NUMBERS.get(word, word) for word in text.split())
    return " ".join(CONTRACTIONS.get(word, word) for word in words if word not in _ARTICLES)


def _strip(answer: str) -> str:
    """The answer on one line, without spaces at its ends."""
    return answer.replace("\n", " ").replace("\t", " ").strip()


def _remove_punctuation(text: str) -> str:
    """Remove a mark if it is next to a space anywhere, or if a number contains a comma; else write a space."""
    remove_all = _COMMA_IN_NUMBER.search(text) is not None
    removed = {mark: remove_all or f"{mark} " in text or f" {mark}" in text for mark in _MARKS}
    table = str.maketrans({mark: "" if is_removed else " " for mark, is_removed in removed.items()})
    return _PERIOD.sub("", text.translate(table), count=_PERIODS)


def paper_accuracy(answer: str, humans: Sequence[str]) -> float:
    """min(votes / 3, 1). A vote is a human answer that equals this text exactly."""
    return min(sum(human == answer for human in humans) / 3, 1.0)


def official_accuracy(answer: str, humans: Sequence[str]) -> float | None:
    """min(votes / 3, 1), averaged over leaving out each of ten people; None unless there are ten answers."""
    if len(humans) != PEOPLE:
        return None
    humans, answer = [_strip(human) for human in humans], _strip(answer)
    if any(human != humans[0] for human in humans):
        humans, answer = [normalize(human) for human in humans], normalize(answer)
    return closed_form(humans.count(answer))


def closed_form(votes: int) -> float:
    """The leave-one-out average for an answer that `votes` of ten people gave: 0, .3, .6, .9, and 1 from 4 on."""
    if not 0 <= votes <= PEOPLE:
        raise InputError(f"{votes} votes: expected a number from 0 to {PEOPLE}")
    return (votes * min(votes - 1, 3) + (PEOPLE - votes) * min(votes, 3)) / (3 * PEOPLE)


@dataclass(frozen=True)
class Score:
    """Mean accuracies of some questions, from 0 to 1.

    `exact` is the share of questions whose predicted answer is a most frequent human answer. If there is one human
    answer, it is the exact match. `official` is None unless each question has ten answers. `single` says that every
    question of the data has one answer; the paper's accuracy needs three people and does not exist then.
    """

    questions: int
    paper: float
    official: float | None
    exact: float
    single: bool

    def figures(self) -> dict[str, Any]:
        """The accuracies in per cent under the names that all commands use; None where one does not exist."""
        paper = None if self.single else 100 * self.paper
        exact = 100 * self.exact
        return {
            "questions": self.questions,
            "accuracy": exact if paper is None else paper,
            "accuracy_paper": paper,
            "accuracy_official": None if self.official is None else 100 * self.official,
            "exact_match": exact,
        }


@dataclass(frozen=True)
class Accuracies(Score):
    """Mean accuracies of all questions, and of each type of question and answer."""

    by_question_type: dict[str, Score]
    by_answer_type: dict[str, Score]
    too_few: tuple[tuple[int, int], ...]
    """Questions without ten answers, with their number of answers, if other questions have ten."""

    def breakdowns(self) -> dict[str, dict[str, dict[str, Any]]]:
        """The figures of each type of question and of each type of answer."""
        parts = {"by_question_type": self.by_question_type, "by_answer_type": self.by_answer_type}
        return {name: {kind: score.figures() for kind, score in part.items()} for name, part in parts.items()}

    def warning(self) -> str | None:
        """Why there is no official accuracy, if it is missing because of some of the questions."""
        if not self.too_few:
            return None
        number, answers = self.too_few[0]
        others = f" (and {len(self.too_few) - 1} more questions)" if len(self.too_few) > 1 else ""
        return (
            f"question {number} has {answers} human answers{others}; the official accuracy needs {PEOPLE} for every "
            "question, so it is not reported"
        )


def accuracies(predicted: Mapping[int, str], annotations: Sequence[Annotation]) -> Accuracies:
    """Scores of predicted answers, by question id. Each annotation needs one, and there must be no others."""
    if not annotations:
        raise InputError("there are no annotated questions to score")
    _require_same_questions(predicted, annotations)
    single = single_answers(annotations)
    everything: list[Score] = []
    by_question_type, by_answer_type = defaultdict(list), defaultdict(list)
    for annotation in annotations:
        score = _score(predicted[annotation.question_id], annotation.answers, single=single)
        everything.append(score)
        by_question_type[annotation.question_type].append(score)
        by_answer_type[annotation.answer_type].append(score)
    counts = [(a.question_id, len(a.answers)) for a in annotations if len(a.answers) != PEOPLE]
    return Accuracies(
        **vars(_mean(everything)),
        by_question_type={name: _mean(scores) for name, scores in sorted(by_question_type.items())},
        by_answer_type={name: _mean(scores) for name, scores in sorted(by_answer_type.items())},
        too_few=tuple(counts) if len(counts) < len(annotations) else (),
    )


def _require_same_questions(predicted: Mapping[int, str], annotations: Sequence[Annotation]) -> None:
    """Raise unless every annotated question has a predicted answer and every answer has an annotated question."""
    asked = {annotation.question_id for annotation in annotations}
    missing = next((a.question_id for a in annotations if a.question_id not in predicted), None)
    if missing is not None:
        raise InputError(f"question {missing} has no predicted answer; every question needs one")
    surplus = [number for number in predicted if number not in asked]
    if surplus:
        raise InputError(
            f"there is a predicted answer to question {surplus[0]}, which has no annotation ({len(surplus)} of "
            f"{len(predicted)} predicted answers have none); pass the answers and annotations of the same split"
        )


def single_answers(annotations: Sequence[Annotation]) -> bool:
    """Whether every question has one human answer."""
    return all(len(annotation.answers) == 1 for annotation in annotations)


def _score(answer: str, humans: Sequence[str], *, single: bool) -> Score:
    """The score of one answer."""
    votes = Counter(humans)
    return Score(
        questions=1,
        paper=paper_accuracy(answer, humans),
        official=official_accuracy(answer, humans),
        exact=float(votes[answer] == max(votes.values(), default=1)),
        single=single,
    )


def _mean(scores: Sequence[Score]) -> Score:
    """The mean of scores."""
    officials = [score.official for score in scores if score.official is not None]
    return Score(
        questions=len(scores),
        paper=sum(score.paper for score in scores) / len(scores),
        official=sum(officials) / len(scores) if len(officials) == len(scores) else None,
        exact=sum(score.exact for score in scores) / len(scores),
        single=scores[0].single,
    )
