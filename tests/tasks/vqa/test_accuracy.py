"""Both accuracies against cases worked out by hand, one for each branch of the official script."""

import pytest

from latentalign.errors import InputError
from latentalign.tasks.vqa.accuracy import (
    CONTRACTIONS,
    accuracies,
    closed_form,
    normalize,
    official_accuracy,
    paper_accuracy,
)
from latentalign.tasks.vqa.questions import Annotation


def people(**votes):
    """Ten answers: so many of each, the rest all different."""
    given = [answer for answer, count in votes.items() for _ in range(count)]
    return given + [f"other{place}" for place in range(10 - len(given))]


def left_out(answer, humans):
    """The leave-one-out average as it is defined."""
    total = 0.0
    for place in range(len(humans)):
        others = humans[:place] + humans[place + 1 :]
        total += min(1, sum(other == answer for other in others) / 3)
    return total / len(humans)


@pytest.mark.parametrize("votes", range(11))
def test_closed_form_is_the_leave_one_out_average(votes):
    expected = [0, 0.3, 0.6, 0.9, 1, 1, 1, 1, 1, 1, 1][votes]
    assert closed_form(votes) == pytest.approx(expected, abs=1e-15)
    assert left_out("cat", people(cat=votes)) == pytest.approx(expected)
    assert official_accuracy("cat", people(cat=votes)) == closed_form(votes)
    assert paper_accuracy("cat", people(cat=votes)) == pytest.approx(min(votes, 3) / 3)


@pytest.mark.parametrize("votes", [-1, 11])
def test_votes_beyond_ten_people_are_refused(votes):
    with pytest.raises(InputError, match=f"{votes} votes"):
        closed_form(votes)


def test_a_tie_scores_both_answers_alike():
    humans = ["cat", "dog"] * 5
    assert official_accuracy("cat", humans) == official_accuracy("dog", humans) == 1
    humans = ["cat"] * 2 + ["dog"] * 2 + ["cow"] * 2 + ["pig"] * 2 + ["ant"] * 2
    assert official_accuracy("cat", humans) == official_accuracy("ant", humans) == pytest.approx(0.6)


def test_where_all_ten_agree_nothing_but_blanks_is_normalised():
    assert official_accuracy("yes", ["yes"] * 10) == 1
    assert official_accuracy("yes!", ["yes"] * 10) == 0
    assert official_accuracy("Yes", ["yes"] * 10) == 0
    assert official_accuracy("2", ["two"] * 10) == 0
    assert official_accuracy("The End", ["The End"] * 10) == 1
    assert official_accuracy(" the\tend\n", ["the end"] * 9 + ["the\nend "]) == 1
    assert official_accuracy("the  end", ["the end"] * 10) == 0
    assert official_accuracy("The End", ["The\nEnd"] * 10) == 1
    assert official_accuracy("the end", ["The\nEnd"] * 10) == 0


def test_where_one_differs_answer_and_humans_are_normalised():
    assert official_accuracy("yes!", ["yes"] * 9 + ["no"]) == 1
    assert official_accuracy("2", ["Two"] * 2 + ["no"] * 8) == pytest.approx(0.6)
    assert official_accuracy("the cat", ["a cat", "Cat", "dog"] + ["no"] * 7) == pytest.approx(0.6)
    assert official_accuracy("yes", ["yes"] * 9 + ["yes."]) == 1  # different only before normalisation
    assert official_accuracy("the", ["a", "an"] + ["no"] * 8) == pytest.approx(0.6)  # all empty


def test_the_official_accuracy_exists_for_ten_answers_only():
    assert official_accuracy("yes", ["yes"] * 9) is None
    assert official_accuracy("yes", ["yes"] * 11) is None
    assert official_accuracy("yes", []) is None


def test_the_paper_compares_strings_as_they_are():
    assert paper_accuracy("yes", ["yes", "Yes", "yes ", "yes."]) == pytest.approx(1 / 3)
    assert paper_accuracy("yes", []) == 0


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("  Red\tand\nBlue ", "red and blue"),
        ("black-white", "black white"),  # a mark without a space beside it becomes one
        ("black -white", "black white"),  # with one, it goes
        ("black- white", "black white"),
        ("t-shirt - red", "tshirt red"),  # and so does each of its kind
        ("t-shirt, red/blue", "t shirt red blue"),  # but no other kind
        ("x-ray- red", "xray red"),  # a space on either side is enough
        ("x-ray -red", "xray red"),
        ("Xbox", "xbox"),
        ("yes!", "yes"),
        ("-5", "5"),
        ("50,000", "50000"),  # a comma in a number makes all marks go
        ("50,000-60,000", "5000060000"),
        ("red,blue", "red blue"),
        ("1, 2", "1 2"),
        ("x,1", "x 1"),
        ('a;b/c[d]e"f{g}h(i)j=k+l\\m_n-o>p<q@r`s?t', "b c d e f g h i j k l m n o p q r s t"),
        ("10:30", "10:30"),  # not among the marks, nor are these
        ("50% & #1 $5 *x~", "50% & #1 $5 *x~"),
        ("3.5", "3.5"),
        (".5", ".5"),
        ("5.", "5"),  # a period goes unless a digit follows
        ("u.s.", "us"),
        ("no. 5", "no 5"),
        ("route.66", "route.66"),
        ("1.2.", "1.2"),
        ("." * 33, "."),  # the first 32 of them
        ("The cat, a dog and an ant", "cat dog and ant"),
        ("theatre", "theatre"),
        ("None", "0"),
        ("zero one two three four five six seven eight nine ten", "0 1 2 3 4 5 6 7 8 9 10"),
        ("eleven", "eleven"),
        ("twenty-one", "twenty 1"),
        ("one's", "one's"),
        ("Dont", "don't"),
        ("don't", "don't"),
        ("couldntve", "couldntve"),  # two apostrophes missing
        ("couldn'tve couldnt've couldn't've", "couldn't've couldn't've couldn't've"),
        ("yalld've", "yalld've"),
        ("y'alld've 5 oclock maam", "y'all'd've 5 o'clock ma'am"),
        ("twas ow's'at", "'twas 'ow's'at"),
        ("somebody'd", "somebodyd"),
        ("somebodyd", "somebodyd"),
        ("Im lets shes wed its", "im lets shes wed its"),  # not in the script's table
        ("", ""),
        ("the", ""),
    ],
)
def test_normalisation(answer, expected):
    assert normalize(answer) == expected


def test_contractions_lack_one_apostrophe():
    assert len(CONTRACTIONS) == 114
    assert set("".join([*CONTRACTIONS, *CONTRACTIONS.values()])) <= set("abcdefghijklmnopqrstuvwxyz'")
    for misspelt, contraction in CONTRACTIONS.items():
        if misspelt != "somebody'd":
            assert misspelt.replace("'", "") == contraction.replace("'", "")
            assert misspelt.count("'") == contraction.count("'") - 1
    assert {"wont", "weve", "whos", "therere", "someonell", "mightn'tve"} <= CONTRACTIONS.keys()


def annotation(number, question_type, answer_type, answers):
    return Annotation(number, 1, question_type, answer_type, tuple(answers), ())


ANNOTATIONS = [
    annotation(1, "is the", "yes/no", people(yes=7, no=3)),
    annotation(2, "is the", "yes/no", ["no"] * 10),
    annotation(3, "how many", "number", ["two", "Two", "2"] + ["3"] * 7),
]


def test_means_over_all_questions_and_over_each_type():
    score = accuracies({1: "no", 2: "No", 3: "two"}, ANNOTATIONS)
    assert (score.questions, score.exact) == (3, 0)
    assert score.paper == pytest.approx((1 + 0 + 1 / 3) / 3)
    assert score.official == pytest.approx((0.9 + 0 + 0.9) / 3)
    assert list(score.by_question_type) == ["how many", "is the"]
    assert list(score.by_answer_type) == ["number", "yes/no"]
    yes_no, number = score.by_answer_type["yes/no"], score.by_answer_type["number"]
    assert (yes_no.questions, yes_no.paper, yes_no.official) == (2, 0.5, 0.45)
    assert (number.questions, number.paper, number.official) == (1, pytest.approx(1 / 3), 0.9)
    assert score.by_question_type == {"how many": number, "is the": yes_no}


def test_one_answer_short_of_ten_leaves_its_groups_without_an_official_accuracy():
    few = annotation(4, "how many", "number", ["3"])
    score = accuracies({1: "yes", 2: "no", 3: "3", 4: "3"}, [*ANNOTATIONS, few])
    assert score.official is None
    assert score.by_answer_type["number"].official is None
    assert score.by_answer_type["yes/no"].official == 1
    assert score.paper == pytest.approx((1 + 1 + 1 + 1 / 3) / 4)


def test_exact_is_a_match_with_a_most_frequent_answer():
    tie = annotation(1, "what", "other", people(cat=4, dog=4))
    single = annotation(2, "what", "other", ["table, chair"])
    assert accuracies({1: "dog", 2: "table, chair"}, [tie, single]).exact == 1
    assert accuracies({1: "other0", 2: "table, chair"}, [tie, single]).exact == 0.5
    assert accuracies({1: "cow", 2: "table"}, [tie, single]).exact == 0


def test_a_question_without_a_prediction_is_named():
    with pytest.raises(InputError, match="question 2 has no predicted answer"):
        accuracies({1: "yes", 3: "3"}, ANNOTATIONS)
    with pytest.raises(InputError, match="no annotated question"):
        accuracies({1: "yes"}, [])


def test_a_prediction_without_a_question_is_named():
    with pytest.raises(InputError, match=r"question 99, which has no annotation \(1 of 4"):
        accuracies({1: "no", 2: "No", 3: "two", 99: "?"}, ANNOTATIONS)


def test_the_question_that_removes_the_official_accuracy_is_named():
    nine = annotation(4, "how many", "number", ["3"] * 9)
    found = accuracies({1: "yes", 2: "no", 3: "3", 4: "3"}, [*ANNOTATIONS, nine])
    assert found.official is None
    assert found.warning().startswith("question 4 has 9 human answers; the official accuracy needs 10")
    assert accuracies({1: "yes", 2: "no", 3: "3"}, ANNOTATIONS).warning() is None
    all_single = [annotation(1, "what", "other", ["cat"]), annotation(2, "what", "other", ["dog"])]
    assert accuracies({1: "cat", 2: "cat"}, all_single).warning() is None  # no question has ten


def test_all_figures_are_in_per_cent_under_the_same_names():
    found = accuracies({1: "no", 2: "No", 3: "two"}, ANNOTATIONS)
    parts = found.breakdowns()
    assert found.figures().keys() == parts["by_answer_type"]["yes/no"].keys()
    assert parts["by_question_type"]["is the"] == pytest.approx(
        {"questions": 2, "accuracy": 50, "accuracy_paper": 50, "accuracy_official": 45, "exact_match": 0}
    )
    assert found.figures()["accuracy_official"] == pytest.approx(60)


def test_with_single_answers_only_the_exact_match_exists():
    single = [annotation(1, "what", "other", ["cat"]), annotation(2, "what", "other", ["dog"])]
    found = accuracies({1: "cat", 2: "cat"}, single).figures()
    assert (found["accuracy"], found["exact_match"]) == (50, 50)
    assert found["accuracy_paper"] is None
    assert found["accuracy_official"] is None


def test_the_first_question_without_ten_answers_and_the_number_of_others_are_named():
    answers = {1: "yes", 2: "no", 3: "3", 4: "3", 5: "3", 6: "3"}
    few = [annotation(number, "how many", "number", ["3"] * 9) for number in (4, 5, 6)]
    one, many = (accuracies(dict(list(answers.items())[: 3 + n]), [*ANNOTATIONS, *few[:n]]) for n in (1, 3))
    assert one.warning().startswith("question 4 has 9 human answers; the official accuracy needs 10")
    assert "question 4 has 9 human answers (and 2 more questions);" in many.warning()
    two = accuracies(dict(list(answers.items())[:5]), [*ANNOTATIONS, *few[:2]])
    assert "(and 1 more questions)" in two.warning()


def test_a_question_that_nobody_answered_is_never_right():
    assert accuracies({1: "cat"}, [annotation(1, "what", "other", [])]).exact == 0
