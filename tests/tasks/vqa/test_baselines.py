"""Answers without a picture: the most frequent one, and the most frequent one to the first words."""

from latentalign.tasks.vqa.baselines import majority, majority_of_type, question_only
from latentalign.tasks.vqa.data import Example
from latentalign.tasks.vqa.questions import Annotation, Question


def example(number, question, *answers, kind="what"):
    return Example(Question(number, 1, question), Annotation(number, 1, kind, "other", answers, ()))


TRAIN = [
    *(example(n, "what color is the cat?", "black") for n in range(3)),
    *(example(n, "what color is the dog?", "brown") for n in range(4)),
    *(example(n, "what is it?", "sofa", "bed") for n in range(9)),
    example(30, "is it big?", "yes", kind="is it"),
]


def answers(guess, *questions, kind="what"):
    asked = [example(100 + n, question, "?", kind=kind) for n, question in enumerate(questions)]
    return list(guess(TRAIN, asked).values())


def test_the_longest_beginning_that_three_training_questions_share_decides():
    asked = ("What color is the cat?", "what color is the cow?", "what sort?", "where?")
    assert answers(question_only, *asked) == ["black", "brown", "bed", "bed"]


def test_a_beginning_that_is_too_rare_is_ignored():
    assert answers(question_only, "is it big?") == ["bed"]


def test_majorities_are_of_all_questions_or_of_the_type():
    assert answers(majority, "is it big?", "where?") == ["bed", "bed"]
    assert answers(majority_of_type, "is it big?", kind="is it") == ["yes"]
    assert answers(majority_of_type, "is it big?", kind="never seen") == ["bed"]
