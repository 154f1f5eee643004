"""Regions and features of generated scenes."""

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from PIL import Image

from latentalign.data import scenes
from latentalign.errors import InputError
from support.scenes import WORDS


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


@pytest.mark.slow
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
