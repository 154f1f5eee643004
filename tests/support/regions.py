"""Random pictures with region features, and how to compare them with what a reader found."""

import numpy as np

WIDTH, HEIGHT, SIZE = 640, 480, 6
GENERATOR = np.random.default_rng(0)


def picture(image_id: int, regions: int):
    """Image id, features, and boxes in pixels."""
    features = GENERATOR.normal(size=(regions, SIZE)).astype(np.float32)
    corners = np.sort(GENERATOR.uniform(size=(regions, 2, 2)), axis=1) * [WIDTH, HEIGHT]
    return image_id, features, corners.reshape(regions, 4).astype(np.float32)


PICTURES = [picture(150367, 3), picture(9, 5), picture(12, 1)]
SECOND = PICTURES[1][1]
NAN = np.where(np.equal(SECOND, SECOND.max()), np.nan, SECOND)
"""The features of the second picture with a NaN."""
FIXED = [picture(44, 4), picture(5, 4), picture(31, 4)]


def fractions(boxes):
    """Boxes in pixels as fractions of the picture."""
    return boxes / np.float32([WIDTH, HEIGHT, WIDTH, HEIGHT])


def assert_pictures(found, pictures):
    """Assert that these are the same pictures in the same order, with boxes as fractions."""
    found = list(found)
    assert [image_id for image_id, _, _ in found] == [image_id for image_id, _, _ in pictures]
    for (_, features, boxes), (_, expected, pixels) in zip(found, pictures, strict=True):
        assert features.dtype == boxes.dtype == np.float32
        np.testing.assert_array_equal(features, expected)
        np.testing.assert_allclose(boxes, fractions(pixels), rtol=1e-6)
