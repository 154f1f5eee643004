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

KINDS = {"attribute", "spatial", "comparison", "existence", "counting"}
WORDS = {
    "size": ["small", "large"],
    "color": ["red", "orange", "yellow", "green", "cyan", "blue", "purple"],
    "pattern": ["plain", "striped", "dotted"],
    "shape": ["circle", "square", "triangle", "star"],
}
SMALL = scenes.Sizes(train=6, valid=2, test=3, questions=4)


@pytest.fixture(scope="module")
def pictures():
    return list(scenes.generate(scenes.Sizes(train=160, valid=20, test=60), seed=1))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes") / "new"
    scenes.write(folder, SMALL, seed=4)
    return folder


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


# -- regions and features -----------------------------------------------------------------------------------


def overlaps(box, boxes):
    """Intersection over union of a box with each of many."""
    sizes = []
    for other in boxes.tolist():
        width = min(box[2], other[2]) - max(box[0], other[0])
        height = min(box[3], other[3]) - max(box[1], other[1])
        both = max(width, 0) * max(height, 0)
        one, two = ((b[2] - b[0]) * (b[3] - b[1]) for b in (box, other))
        sizes.append(both / (one + two - both))
    return sizes


def test_every_thing_has_a_region_and_regions_are_boxes_within_the_picture(pictures):
    first_is_a_thing = 0
    for _, picture in pictures:
        boxes = picture.boxes
        assert 12 <= len(boxes) <= 16
        assert (boxes >= 0).all()
        assert (boxes <= 1).all()
        assert (boxes[:, :2] < boxes[:, 2:]).all()
        near = [overlaps(thing.box(), boxes) for thing in picture.things]
        assert min(map(max, near)) > 0.5
        first_is_a_thing += max(sizes[0] for sizes in near) > 0.5
    assert 0.2 < first_is_a_thing / len(pictures) < 0.8  # they are shuffled


def test_features_are_those_of_the_pixels_and_the_boxes_alone(written):
    for split in scenes.SPLITS:
        arrays = safetensors.numpy.load_file(written / f"features.{split}.safetensors")
        for k, image_id in enumerate(arrays["image_ids"]):
            pixels = np.array(Image.open(written / "images" / f"{split}_{image_id:06d}.png"))
            rows = slice(arrays["offsets"][k], arrays["offsets"][k + 1])
            again = scenes.region_features(pixels, arrays["boxes"][rows])
            assert (again == arrays["features"][rows]).all()


def test_the_order_and_the_number_of_regions_do_not_matter(pictures):
    _, picture = pictures[0]
    features = scenes.region_features(picture.pixels, picture.boxes)
    order = np.random.default_rng(0).permutation(len(features))
    assert (scenes.region_features(picture.pixels, picture.boxes[order]) == features[order]).all()
    assert np.allclose(scenes.region_features(picture.pixels, picture.boxes[:1]), features[:1], atol=1e-5)
    assert scenes.region_features(picture.pixels, picture.boxes[:0]).shape == (0, features.shape[1])


def test_features_of_a_grey_picture_by_hand():
    pixels = np.full((120, 160, 3), 102, dtype=np.uint8)
    (row,) = scenes.region_features(pixels, np.array([[0.25, 0.5, 0.5, 1.0]])).tolist()
    assert len(row) == 266
    assert row[:192] == pytest.approx([(0.4 - 0.66) * 4] * 192, abs=1e-5)
    assert row[192:198] == pytest.approx([(0.4 - 0.65) * 5] * 6, abs=1e-5)
    assert row[198:204] == pytest.approx([-0.17 * 12] * 6, abs=1e-5)
    shares = [0.0] * 18
    shares[12 + 2] = 1.0  # 0.4 lies in the third of six greys
    assert row[204:222] == pytest.approx([(share - 0.15) * 6 for share in shares], abs=1e-5)
    assert row[222:258] == pytest.approx([-0.065 * 16] * 36, abs=1e-5)
    sides = [0.25, 0.5, 0.5, 1.0, 0.375, 0.75]
    assert row[258:264] == pytest.approx([(side - 0.5) * 3.5 for side in sides])
    assert row[264:] == pytest.approx([(0.25 - 0.2) * 11, (0.5 - 0.2) * 11])


@pytest.mark.parametrize(("color", "place"), [((255, 0, 0), 0), ((0, 255, 0), 4), ((0, 0, 255), 8)])
def test_pure_hues_have_their_places_in_the_histogram(color, place):
    pixels = np.broadcast_to(np.array(color, dtype=np.uint8), (20, 20, 3)).copy()
    (row,) = scenes.region_features(pixels, np.array([[0.0, 0.0, 1.0, 1.0]]))
    shares = row[204:222] / 6 + 0.15
    assert shares == pytest.approx(np.eye(18)[place], abs=1e-5)


def test_edges_tell_the_direction_of_stripes():
    upright = np.zeros((24, 24, 3), dtype=np.uint8)
    upright[:, ::4] = upright[:, 1::4] = 255  # of any two neighbours to the right, every second pair differs
    box = np.array([[0.0, 0.0, 1.0, 1.0]])
    edges = [
        scenes.region_features(p, box)[0, 222:258].reshape(4, 3, 3) / 16 + 0.065
        for p in (upright, upright.transpose(1, 0, 2).copy())
    ]
    assert edges[0][0, 0, 0] == pytest.approx(0.5, abs=1e-5)
    assert edges[0][1] == pytest.approx(np.zeros((3, 3)), abs=1e-5)
    assert edges[1][0] == pytest.approx(np.zeros((3, 3)), abs=1e-5)
    assert edges[1][1, 0, 0] == pytest.approx(0.5, abs=1e-5)


def test_edges_tell_one_diagonal_from_the_other():
    light = np.add.outer(np.arange(24), np.arange(24)) % 4 < 2  # stripes from lower left to upper right
    pixels = np.repeat(light[..., None] * np.uint8(255), 3, axis=2)
    (row,) = scenes.region_features(pixels, np.array([[0.0, 0.0, 1.0, 1.0]]))
    edges = row[222:258].reshape(4, 3, 3) / 16 + 0.065
    assert edges[:, 0, 0] == pytest.approx([0.5, 0.5, 1.0, 0.0], abs=1e-5)


def test_moments_of_the_centre_by_hand():
    pixels = np.zeros((24, 24, 3), dtype=np.uint8)
    pixels[6:18, 6:18, 1] = 255
    (row,) = scenes.region_features(pixels, np.array([[0.0, 0.0, 1.0, 1.0]]))
    assert row[192:198] / 5 + 0.65 == pytest.approx([0, 0.25, 0, 0, 1, 0], abs=1e-5)
    assert row[198:204] / 12 + 0.17 == pytest.approx([0, (0.25 * 0.75) ** 0.5, 0, 0, 0, 0], abs=1e-5)


@pytest.mark.parametrize("box", [[-0.1, 0, 1, 1], [0, 0, 1, 1.1], [0.6, 0, 0.5, 1], [0, float("nan"), 1, 1]])
def test_a_wrong_box_is_named(box):
    boxes = np.array([[0.0, 0.0, 1.0, 1.0], box])
    with pytest.raises(InputError, match="box 1 is"):
        scenes.region_features(np.zeros((120, 160, 3), dtype=np.uint8), boxes)


def test_an_empty_box_counts_as_one_pixel():
    boxes = np.array([[1.0, 1.0, 1.0, 1.0], [0.3, 0.3, 0.3, 0.3]])
    pixels = np.full((120, 160, 3), 7, dtype=np.uint8)
    assert np.isfinite(scenes.region_features(pixels, boxes)).all()


def test_features_have_unit_scale_and_tell_attributes_apart(pictures):
    rows, values, train = [], [], []
    for split, picture in pictures:
        features = scenes.region_features(picture.pixels, picture.boxes)
        for thing in picture.things:
            rows.append(features[int(np.argmax(overlaps(thing.box(), picture.boxes)))])
            values.append([words.index(getattr(thing, name)) for name, words in WORDS.items()])
            train.append(split == "train")
    x, y, train = np.array(rows, dtype=np.float64), np.array(values), np.array(train)
    assert abs(x.mean()) < 0.3
    assert 0.7 < x.std() < 1.4
    x = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    for k, (name, words) in enumerate(WORDS.items()):
        gram = x[train].T @ x[train] + 10 * np.eye(x.shape[1])
        weights = np.linalg.solve(gram, x[train].T @ np.eye(len(words))[y[train, k]])
        accuracy = np.mean((x[~train] @ weights).argmax(axis=1) == y[~train, k])
        assert accuracy > 0.85, name


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
