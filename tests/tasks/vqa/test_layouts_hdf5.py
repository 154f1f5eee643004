"""Region features in HDF5 files are read back; faults are named."""

import json
import sys

import numpy as np
import pytest

from latentalign.errors import InputError
from latentalign.tasks.vqa.layouts import read, sniff
from support.regions import FIXED, HEIGHT, PICTURES, SIZE, WIDTH, assert_pictures, fractions


@pytest.fixture
def hdf5(tmp_path):
    """A function that writes datasets into an HDF5 file; those given as None are left out."""
    h5py = pytest.importorskip("h5py")

    def write(**datasets):
        with h5py.File(tmp_path / "features.h5", "w") as file:
            for name, value in datasets.items():
                if value is not None:
                    file[name] = value
        return tmp_path / "features.h5"

    return write


def fixed(**changes):
    """The datasets of pictures that all have the same number of boxes."""
    return {
        "image_features": np.stack([features for _, features, _ in FIXED]),
        "image_bb": np.stack([boxes for _, _, boxes in FIXED]),
        "image_w": np.full(3, WIDTH),
        "image_h": np.full(3, HEIGHT),
        "image_ids": np.array([image_id for image_id, _, _ in FIXED]),
        **changes,
    }


def variable(**changes):
    """The datasets of pictures with different numbers of boxes."""
    return {
        "image_features": np.concatenate([features for _, features, _ in PICTURES]),
        "image_bb": np.concatenate([boxes for _, _, boxes in PICTURES]),
        "pos_boxes": np.array([[0, 3], [3, 8], [8, 9]], np.int32),
        "image_w": np.full(3, WIDTH),
        "image_h": np.full(3, HEIGHT),
        "ids": np.array([image_id for image_id, _, _ in PICTURES]),
        **changes,
    }


def test_hdf5_is_read_back(hdf5):
    path = hdf5(**fixed())
    assert sniff(path) == sniff(path.rename(path.with_suffix(".data"))) == "hdf5"
    assert_pictures(read(path.with_suffix(".data"), "hdf5"), FIXED)
    assert_pictures(read(hdf5(**variable()), "hdf5"), PICTURES)


def test_hdf5_boxes_may_be_fractions(hdf5):
    boxes = np.stack([fractions(boxes) for _, _, boxes in FIXED])
    assert_pictures(read(hdf5(**fixed(image_bb=boxes, image_w=None, image_h=None)), "hdf5"), FIXED)
    assert_pictures(read(hdf5(**fixed(image_bb=boxes)), "hdf5"), FIXED)
    spatial = np.concatenate([boxes, boxes[..., 2:] - boxes[..., :2]], axis=-1)
    assert_pictures(read(hdf5(**fixed(image_w=None, spatial_features=spatial)), "hdf5"), FIXED)
    rows = np.concatenate([fractions(boxes) for _, _, boxes in PICTURES])
    spatial = np.concatenate([rows, rows[:, 2:] - rows[:, :2]], axis=1)
    assert_pictures(read(hdf5(**variable(image_w=None, spatial_features=spatial)), "hdf5"), PICTURES)


def test_hdf5_ids_come_from_names_or_a_file(hdf5, tmp_path):
    names = [f"COCO_val2014_{image_id:012d}.jpg" for image_id, _, _ in FIXED]
    assert_pictures(read(hdf5(**fixed(image_ids=names)), "hdf5"), FIXED)
    numbers = [image_id for image_id, _, _ in FIXED]
    texts = (json.dumps(numbers), json.dumps(names, indent=1), "\n".join(map(str, numbers)), "\n".join(names))
    for text in texts:
        (tmp_path / "ids").write_text(text)
        assert_pictures(read(hdf5(**fixed(image_ids=None)), "hdf5", tmp_path / "ids"), FIXED)
    with pytest.raises(InputError, match="remove --ids"):
        list(read(hdf5(**fixed()), "hdf5", tmp_path / "ids"))
    with pytest.raises(InputError, match=r"features\.h5: does not contain image ids.*--ids"):
        list(read(hdf5(**fixed(image_ids=None)), "hdf5"))


@pytest.mark.parametrize(
    ("datasets", "message"),
    [
        (fixed(image_bb=None), "no dataset image_bb; found image_features"),
        (fixed(image_w=None), r"row 1 \(image 44\): boxes are in pixels, .*image_w"),
        (fixed(image_w=np.zeros(3)), r"row 1 \(image 44\): boxes are in pixels"),
        (fixed(image_w=np.ones(2)), r"image_w has the shape \(2,\), expected \(3,\)"),
        (fixed(image_ids=[1, 2]), "2 image_ids for 3 pictures"),
        (fixed(image_ids=["a", "b", "c"]), "image_ids, row 1: 'a' is not an image id"),
        (fixed(image_ids=[1, -2, 3]), "image_ids, row 2: '-2' is not an image id"),
        (fixed(image_bb=fixed()["image_bb"].transpose(0, 2, 1)[:, :, :3]), r"image_bb \(3, 4, 3\)"),
        (
            fixed(image_features=fixed()["image_features"] * np.array([1, np.nan, 1])[:, None, None]),
            "row 2 .*NaN",
        ),
        (fixed(image_features=np.full((3, 4, SIZE), b"x")), r"row 1 \(image 44\): .*not numbers"),
        (variable(pos_boxes=None), "pos_boxes"),
        (variable(pos_boxes=np.array([[0, 3], [3, 10], [8, 9]])), r"row 2 \(image 9\): pos_boxes 3, 10"),
        (variable(pos_boxes=np.array([[0, 3], [3, 2], [8, 9]])), r"row 2 \(image 9\): pos_boxes 3, 2"),
        (variable(pos_boxes=np.array([[0, 3], [3, 3], [8, 9]])), r"row 2 \(image 9\): there are no region"),
        (variable(pos_boxes=np.arange(3)), r"pos_boxes has the shape \(3,\)"),
    ],
)
def test_hdf5_faults_are_named(hdf5, datasets, message):
    with pytest.raises(InputError, match=message) as caught:
        list(read(hdf5(**datasets), "hdf5"))
    assert "features.h5" in str(caught.value)


def test_damaged_or_missing_hdf5_is_named(hdf5, tmp_path):
    path = hdf5(**fixed())
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(InputError, match=r"features\.h5: not an HDF5 file, or damaged"):
        list(read(path, "hdf5"))
    with pytest.raises(InputError, match="absent"):
        list(read(tmp_path / "absent.h5", "hdf5"))


def test_hdf5_without_its_package_says_what_to_install(monkeypatch, tmp_path):
    (tmp_path / "f.h5").touch()
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(InputError, match=r"h5py is not installed; run pip install \"latentalign\[vqa\]\""):
        list(read(tmp_path / "f.h5", "hdf5"))
