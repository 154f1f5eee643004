"""Generated scenes: questions, answers, pictures and files."""

import hashlib
import json
import re
from collections import Counter

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from PIL import Image, ImageDraw

from latentalign.data import scenes
from latentalign.data.scenes_world.crowd import OTHER_ANSWERS
from latentalign.errors import InputError
from support.scenes import SMALL, WORDS

KINDS = {"attribute", "spatial", "comparison", "existence", "counting"}


def asked(pictures):
    return [(p, q, said) for _, p in pictures for q, said in zip(p.questions, p.answers, strict=True)]


def contents(folder):
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


# -- a slow second opinion on every question ----------------------------------------------------------------


def matching(things, phrase):
    """Things that a phrase such as "small red striped circle" or "dotted objects" fits, word by word."""
    found = list(things)
    for word in phrase.split():
        word = word.removesuffix("s") if word.removesuffix("s") in {"object", *WORDS["shape"]} else word
        if word != "object":
            (name,) = [name for name, words in WORDS.items() if word in words]
            found = [thing for thing in found if getattr(thing, name) == word]
    return found


def the(things, phrase):
    (thing,) = matching(things, phrase)
    return thing


def farthest(things, side):
    """The one thing that is farthest to a side, by far enough to see it."""
    axis, sign = {"left": ("x", -1), "right": ("x", 1), "top": ("y", -1), "bottom": ("y", 1)}[side]
    index = {("x", -1): 0, ("y", -1): 1, ("x", 1): 2, ("y", 1): 3}[axis, sign]
    by_centre = sorted(things, key=lambda t: sign * getattr(t, axis))
    by_side = sorted(things, key=lambda t: sign * t.box()[index])
    assert by_centre[-1] is by_side[-1]
    assert abs(getattr(by_centre[-1], axis) - getattr(by_centre[-2], axis)) >= 7
    return by_centre[-1]


def beside(things, phrase, word, anchor):
    """The one thing of a kind that is clearly on a side of the anchor."""
    distances = {
        "left of": lambda t: anchor.x - t.x,
        "right of": lambda t: t.x - anchor.x,
        "above": lambda t: anchor.y - t.y,
        "below": lambda t: t.y - anchor.y,
    }
    others = [t for t in matching(things, phrase) if t is not anchor]
    (there,) = [t for t in others if distances[word](t) > 3]
    assert distances[word](there) >= 14
    return there


def solve(things, text):
    """Kind, answer and things of a question, from its words alone."""
    if found := re.fullmatch(r"how many (.+) are there\?", text):
        counted = matching(things, found[1])
        return "counting", str(len(counted)), counted
    if found := re.fullmatch(r"is there (an?) (.+)\?", text):
        assert (found[1] == "an") == (found[2][0] in "aeiou")
        there = matching(things, found[2])
        return "existence", "yes" if there else "no", there
    if found := re.fullmatch(r"is the (.+) (larger|smaller) than the (.+)\?", text):
        one, two = the(things, found[1]), the(things, found[3])
        assert max(one.radius, two.radius) > 1.4 * min(one.radius, two.radius)
        larger = one.radius > two.radius
        return "comparison", "yes" if larger == (found[2] == "larger") else "no", [one, two]
    return solve_attribute(things, text)


def solve_attribute(things, text):
    forms = r"what (\w+) is the (.+)|what is the (\w+) of the (.+)|what (pattern) does the (.+) have"
    parts = [part for part in re.fullmatch(rf"(?:{forms}|how (big) is the (.+))\?", text).groups() if part]
    name, phrase = parts[0].replace("big", "size"), parts[1]
    if found := re.fullmatch(r"(left|right|top|bottom)most (.+)", phrase):
        kind, thing = "spatial", farthest(matching(things, found[2]), found[1])
    elif found := re.fullmatch(r"(.+) (left of|right of|above|below) the (.+)", phrase):
        kind, thing = "spatial", beside(things, found[1], found[2], the(things, found[3]))
    else:
        kind, thing = "attribute", the(things, phrase)
    assert not set(phrase.split()[:-1]) & set(WORDS[name]) or kind == "spatial"
    return kind, getattr(thing, name), [thing]


@pytest.mark.slow
def test_answers_agree_with_a_second_opinion(pictures):
    for picture, question, _ in asked(pictures):
        kind, answer, about = solve(picture.things, question.text)
        assert (question.kind, question.answer) == (kind, answer), question.text
        assert Counter(question.about) == Counter(about), question.text


def test_the_second_opinion_notices_an_exchanged_thing(pictures):
    noticed = 0
    for picture, question, _ in asked(pictures):
        others = [t for t in picture.things if t not in question.about]
        if question.about and question.kind in {"attribute", "spatial"}:
            try:
                noticed += solve(others, question.text)[1] != question.answer
            except (ValueError, IndexError, AssertionError):
                noticed += 1
    assert noticed > 400


def test_questions_of_a_picture_differ(pictures):
    for _, picture in pictures:
        assert len({question.text for question in picture.questions}) == 5


def test_an_absent_thing_has_a_neighbour_that_differs_in_one_attribute(pictures):
    for picture, question, _ in asked(pictures):
        if question.kind == "existence" and question.answer == "no":
            words = question.text.removeprefix("is there an ").removeprefix("is there a ")[:-1].split()
            near = [" ".join(words[:k] + words[k + 1 :]) for k in range(len(words) - 1)]
            near.append(" ".join([*words[:-1], "object"]))
            assert any(matching(picture.things, phrase) for phrase in near), question.text


# -- balance ------------------------------------------------------------------------------------------------


def test_no_constant_answer_is_good_at_any_kind_of_question(pictures):
    questions = [question for _, question, _ in asked(pictures)]
    for kind in KINDS:
        answers = Counter(q.answer for q in questions if q.kind == kind)
        limit = {"attribute": 0.15, "spatial": 0.15, "counting": 0.35}.get(kind, 0.63)
        assert 0.04 * len(questions) < answers.total() < 0.5 * len(questions)
        assert max(answers.values()) < limit * answers.total(), kind
    counts = Counter(q.answer for q in questions if q.kind == "counting")
    assert set(counts) == set("01234")


def test_ten_people_answer_and_at_least_six_are_right(pictures):
    dissent = Counter()
    for _, question, said in asked(pictures):
        votes = Counter(said)
        assert votes.total() == 10
        assert votes[question.answer] >= 6
        dissent[10 - votes[question.answer]] += 1
        for other in set(votes) - {question.answer}:
            if question.kind == "counting":
                assert abs(int(other) - int(question.answer)) == 1
                assert int(other) >= 0
            else:
                assert other in OTHER_ANSWERS[question.answer]
    assert set(dissent) == {0, 1, 2, 3, 4}
    assert 0.35 < dissent[0] / dissent.total() < 0.65


# -- pictures -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_things_overlap_but_stay_recognisable(pictures):
    shares = []
    for _, picture in pictures:
        owner = Image.new("L", (640, 480))
        areas = []
        for number, thing in enumerate(picture.things, start=1):
            alone = Image.new("L", (640, 480))
            corners = [(4 * x, 4 * y) for x, y in thing.outline()]
            ImageDraw.Draw(alone).polygon(corners, fill=1)
            ImageDraw.Draw(owner).polygon(corners, fill=number)
            areas.append(np.count_nonzero(alone))
        seen = np.bincount(np.array(owner).ravel(), minlength=len(areas) + 1)[1:]
        shares += (seen / areas).tolist()
        assert 3 <= len(picture.things) <= 10
    assert min(shares) > 0.56  # areas are compared at another resolution here
    assert 0.1 < np.mean(np.array(shares) < 0.98) < 0.6


def test_a_plain_thing_in_front_has_its_color_in_its_centre(pictures):
    fronts = [(picture.pixels, picture.things[-1]) for _, picture in pictures]
    plain = [(pixels, thing) for pixels, thing in fronts if thing.pattern == "plain"]
    assert len(plain) > 40
    for pixels, thing in plain:
        assert pixels.shape == (120, 160, 3)
        assert pixels[int(thing.y), int(thing.x)].tolist() == list(thing.tint)


def test_pictures_of_all_splits_differ(pictures):
    assert len({picture.pixels.tobytes() for _, picture in pictures}) == len(pictures) == 240
    assert len({picture.image_id for _, picture in pictures}) == 240


def test_the_test_set_does_not_depend_on_the_size_of_the_others():
    def test_set(train):
        drawn = scenes.generate(scenes.Sizes(train=train, valid=train, test=3), seed=2)
        return [(p.image_id, p.questions, p.answers, p.boxes.tobytes()) for s, p in drawn if s == "test"]

    assert test_set(1) == test_set(4)


# -- files --------------------------------------------------------------------------------------------------


def test_a_seed_gives_the_same_bytes(written, tmp_path):
    scenes.write(tmp_path / "again", SMALL, seed=4)
    scenes.write(tmp_path / "other", SMALL, seed=5)
    assert contents(tmp_path / "again") == contents(written)
    assert not set(contents(tmp_path / "other").values()) & set(contents(written).values())


def test_files_are_in_the_official_layout(written):
    ids = set()
    for split, size in (("train", 6), ("valid", 2), ("test", 3)):
        questions = json.loads((written / f"questions.{split}.json").read_text())["questions"]
        annotations = json.loads((written / f"annotations.{split}.json").read_text())["annotations"]
        assert len(questions) == len(annotations) == 4 * size
        for question, annotation in zip(questions, annotations, strict=True):
            for key in ("question_id", "image_id"):
                assert question[key] == annotation[key]
            assert (written / "images" / f"{split}_{question['image_id']:06d}.png").is_file()
            assert annotation["question_type"] in KINDS
            kinds = {"existence": "yes/no", "comparison": "yes/no", "counting": "number"}
            assert annotation["answer_type"] == kinds.get(annotation["question_type"], "other")
            assert [a["answer_id"] for a in annotation["answers"]] == list(range(1, 11))
            votes = Counter(a["answer"] for a in annotation["answers"])
            assert votes.most_common(1)[0][0] == annotation["multiple_choice_answer"]
            assert bool(annotation["regions"]) == (
                annotation["multiple_choice_answer"] not in {"no", "0"}
            ) or (annotation["question_type"] == "comparison" and len(annotation["regions"]) == 2)
            ids.add(question["question_id"])
    assert len(ids) == 4 * 11


def test_written_questions_and_gold_regions_are_those_of_the_scenes(written):
    for split, picture in scenes.generate(SMALL, seed=4):
        annotations = json.loads((written / f"annotations.{split}.json").read_text())["annotations"]
        mine = [a for a in annotations if a["image_id"] == picture.image_id]
        for question, annotation in zip(picture.questions, mine, strict=True):
            gold = [thing.box() for thing in solve(picture.things, question.text)[2]]
            assert sorted(annotation["regions"]) == [pytest.approx(box, abs=1e-5) for box in sorted(gold)]
            assert annotation["multiple_choice_answer"] == question.answer


def test_features_files_are_complete(written):
    path = written / "features.train.safetensors"
    with safetensors.safe_open(path, "numpy") as file:
        size = "266"
        expected = {"format": "latentalign-features", "version": "1", "layout": "scenes", "size": size}
        assert file.metadata() == expected
    arrays = safetensors.numpy.load_file(path)
    regions = len(arrays["features"])
    assert arrays["features"].shape == (regions, 266)
    assert arrays["boxes"].shape == (regions, 4)
    assert arrays["offsets"].shape == (7,)
    assert (arrays["offsets"][0], arrays["offsets"][-1]) == (0, regions)
    assert (arrays["features"].dtype, arrays["boxes"].dtype) == (np.float32, np.float32)
    assert (arrays["offsets"].dtype, arrays["image_ids"].dtype) == (np.int64, np.int64)


def test_nothing_is_replaced_unasked(tmp_path):
    (tmp_path / "mine.txt").write_text("kept")
    one = scenes.Sizes(train=1, valid=1, test=1, questions=1)
    with pytest.raises(InputError, match="is not empty"):
        scenes.write(tmp_path, one)
    with pytest.raises(InputError, match="is a file"):
        scenes.write(tmp_path / "mine.txt", one)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    scenes.write(tmp_path, SMALL, overwrite=True)
    scenes.write(tmp_path, one, overwrite=True)
    assert (tmp_path / "mine.txt").read_text() == "kept"
    assert len(list((tmp_path / "images").iterdir())) == 3
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("wrong", [{"train": 0}, {"valid": -1}, {"test": 100_000}, {"questions": 21}])
def test_impossible_sizes_are_refused_by_name(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        scenes.Sizes(**wrong)


def test_the_module_shows_questions(capsys):
    scenes.main()
    assert capsys.readouterr().out.count("?") == 25
