"""Region features in NumPy archives and arrays are read back; faults are named."""

import numpy as np
import pytest

from latentalign.data.region_features import grid_boxes
from latentalign.errors import InputError
from latentalign.tasks.vqa import layouts
from latentalign.tasks.vqa.layouts import read, sniff
from support.regions import GENERATOR, HEIGHT, NAN, PICTURES, SECOND, SIZE, WIDTH, assert_pictures, fractions

BY_ID = sorted(PICTURES, key=lambda picture: picture[0])


def test_a_folder_of_archives_is_read_in_the_order_of_ids(tmp_path):
    extent = {"image_w": WIDTH, "image_h": np.array(HEIGHT)}
    for image_id, features, boxes in PICTURES:
        np.savez(tmp_path / f"COCO_train2014_{image_id:012d}.jpg.npz", x=features, bbox=boxes, **extent)
    (tmp_path / "readme.txt").touch()
    assert sniff(tmp_path) == "npz"
    assert_pictures(read(tmp_path, "npz"), BY_ID)
    for path in tmp_path.glob("*.npz"):
        path.unlink()
    for image_id, features, boxes in PICTURES:
        padding = np.zeros((2, SIZE), np.float32), np.zeros((2, 4), np.float32)
        np.savez_compressed(
            tmp_path / f"{image_id}.npz",
            features=np.concatenate([features, padding[0]]),
            boxes=np.concatenate([fractions(boxes), padding[1]]),
            num_bbox=len(boxes),
            info=np.array({"objects": 1}, dtype=object),  # pickled, and never looked at
        )
    assert_pictures(read(tmp_path, "npz"), BY_ID)


def test_archives_with_features_along_the_second_axis_are_turned(tmp_path):
    for image_id, features, boxes in PICTURES:
        np.savez(tmp_path / f"{image_id}.npz", x=features.T, bbox=fractions(boxes), num_bbox=[len(boxes)])
    assert_pictures(read(tmp_path, "npz"), BY_ID)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": None}, "no array x or features; found bbox"),
        ({"bbox": None}, "no array bbox or boxes; found x"),
        ({"image_w": None}, "boxes are in pixels"),
        ({"num_bbox": 6}, "num_bbox is 6, but there are 5 boxes"),
        ({"num_bbox": 0}, "num_bbox is 0"),
        ({"num_bbox": [1, 2]}, "damaged"),
        ({"x": NAN}, "NaN or infinite"),
        ({"x": SECOND[:3]}, r"features \(3, 6\) with boxes \(5, 4\)"),
        ({"x": SECOND[0]}, r"features \(6,\)"),
        ({"x": np.float32(1)}, r"features \(\)"),
        ({"bbox": np.float32(1)}, "boxes"),
        ({"x": SECOND.astype(object)}, "plain arrays"),
        ({"x": SECOND.astype(str)}, "not numbers"),
    ],
)
def test_archive_faults_are_named(tmp_path, arrays, message):
    path = tmp_path / "image9.npz"
    whole = {"x": SECOND, "bbox": PICTURES[1][2], "image_w": WIDTH, "image_h": HEIGHT, **arrays}
    np.savez(path, **{name: value for name, value in whole.items() if value is not None})
    with pytest.raises(InputError, match=message) as caught:
        list(read(tmp_path, "npz"))
    assert str(caught.value).startswith(f"{path} (image 9): ")


def test_what_is_no_archive_is_named(tmp_path):
    path = tmp_path / "image9.npz"
    np.savez_compressed(path, x=SECOND, bbox=PICTURES[1][2], image_w=WIDTH, image_h=HEIGHT)
    data = path.read_bytes()
    for broken in (b"", b"PK\x03\x04", b"text", data[:-30], data[:80] + bytes(40) + data[120:]):
        path.write_bytes(broken)
        with pytest.raises(InputError, match=r"image9\.npz \(image 9\): not an archive"):
            list(read(tmp_path, "npz"))
    with path.open("wb") as file:
        np.save(file, SECOND)
    with pytest.raises(InputError, match=r"image9\.npz \(image 9\): not an archive"):
        list(read(tmp_path, "npz"))
    path.rename(tmp_path / "nameless.npz")
    with pytest.raises(InputError, match=r"nameless\.npz.* is not an image id"):
        list(read(tmp_path, "npz"))


GRIDS = GENERATOR.normal(size=(3, 2, 4, SIZE)).astype(np.float32)


def check_grids(found, ids):
    found = list(found)
    assert [image_id for image_id, _, _ in found] == ids
    order = np.argsort([7, 3, 5]) if ids == [3, 5, 7] else range(3)
    for (_, features, boxes), k in zip(found, order, strict=True):
        for row in range(2):
            for column in range(4):
                np.testing.assert_array_equal(features[4 * row + column], GRIDS[k, row, column])
                expected = [column / 4, row / 2, (column + 1) / 4, (row + 1) / 2]
                np.testing.assert_allclose(boxes[4 * row + column], expected)


def test_grids_are_read_as_cells_with_their_boxes(tmp_path, monkeypatch):
    folder, ids = tmp_path / "grids", tmp_path / "ids.json"
    folder.mkdir()
    for image_id, grid in zip((7, 3, 5), GRIDS, strict=True):
        np.save(folder / f"image{image_id}.npy", grid)
    assert sniff(folder) == "npy"
    check_grids(read(folder, "npy"), [3, 5, 7])
    ids.write_text("[7, 3, 5]")
    for array in (GRIDS, np.asfortranarray(GRIDS)):
        np.save(tmp_path / "all.npy", array)
        assert sniff(tmp_path / "all.npy") == "npy"
        for block in (1, GRIDS[:2].nbytes, 2**26):
            monkeypatch.setattr(layouts.arrays, "BLOCK", block)
            check_grids(read(tmp_path / "all.npy", "npy", ids), [7, 3, 5])
    with pytest.raises(InputError, match=r"all\.npy: does not contain image ids.*--ids"):
        list(read(tmp_path / "all.npy", "npy"))
    ids.write_text("[7, 3]")
    with pytest.raises(InputError, match=r"ids\.json: 2 ids for the 3 pictures of .*all\.npy"):
        list(read(tmp_path / "all.npy", "npy", ids))


def test_rows_without_a_place_have_the_whole_picture_as_box(tmp_path):
    np.save(tmp_path / "image4.npy", SECOND.astype(np.float64))
    [(image_id, features, boxes)] = read(tmp_path, "npy")
    assert image_id == 4
    np.testing.assert_array_equal(features, SECOND)
    assert boxes.tolist() == [[0, 0, 1, 1]] * 5
    np.testing.assert_array_equal(grid_boxes(1, 1), [[0, 0, 1, 1]])


def test_array_faults_are_named(tmp_path):
    path = tmp_path / "image4.npy"
    cases = {
        "NaN": NAN,
        r"\(6,\)": SECOND[0],
        "damaged": SECOND.astype(object),
        "no region": SECOND[:0],
        "not numbers": SECOND.astype(str),
    }
    for message, array in cases.items():
        np.save(path, array, allow_pickle=True)
        with pytest.raises(InputError, match=rf"image4\.npy.*{message}"):
            list(read(tmp_path, "npy"))
    np.save(path, SECOND)
    data = path.read_bytes()
    for broken in (b"", data[:5], data[:100], data[:-3], b"\x80\x04pickle"):
        path.write_bytes(broken)
        with pytest.raises(InputError, match=r"image4\.npy: not a \.npy array"):
            list(read(tmp_path, "npy"))
    np.save(path, GRIDS * np.array([1, np.inf, 1])[:, None, None, None])
    (tmp_path / "ids").write_text("1\n2\n3\n")
    with pytest.raises(InputError, match=r"image4\.npy, row 2 \(image 2\): .*infinite"):
        list(read(path, "npy", tmp_path / "ids"))
    np.save(path, SECOND)
    with pytest.raises(InputError, match=r"image4\.npy: the array has shape \(5, 6\)"):
        list(read(path, "npy", tmp_path / "ids"))


def tokens(count):
    return np.arange(count * SIZE, dtype=np.float32).reshape(count, SIZE)


@pytest.mark.parametrize(
    ("count", "side", "left_out"), [(257, 16, 1), (197, 14, 1), (50, 7, 1), (196, 14, 0)]
)
def test_tokens_of_vision_transformers_are_recognised(tmp_path, capsys, count, side, left_out):
    np.save(tmp_path / "image4.npy", tokens(count))
    np.save(tmp_path / "image5.npy", tokens(count))
    for _, features, boxes in read(tmp_path, "npy"):
        np.testing.assert_array_equal(boxes, grid_boxes(side, side))
        np.testing.assert_array_equal(features, tokens(count)[left_out:])
    message = capsys.readouterr().err
    assert message.count("latentalign") == 1
    assert f"{side} x {side} patches after {left_out} class or register tokens" in message


def test_register_tokens_are_named_by_an_option(tmp_path, capsys):
    np.save(tmp_path / "image4.npy", tokens(5 + 49))
    [(_, features, boxes)] = read(tmp_path, "npy", prefix_tokens=5)
    np.testing.assert_array_equal(boxes, grid_boxes(7, 7))
    np.testing.assert_array_equal(features, tokens(54)[5:])
    with pytest.raises(
        InputError, match=r"image4\.npy.*54 rows without 4 prefix tokens are not a square grid"
    ):
        list(read(tmp_path, "npy", prefix_tokens=4))
    np.save(tmp_path / "all.npy", np.stack([tokens(54)] * 2))
    (tmp_path / "ids").write_text("1\n2\n")
    for _, _, boxes in read(tmp_path / "all.npy", "npy", tmp_path / "ids", prefix_tokens=5):
        np.testing.assert_array_equal(boxes, grid_boxes(7, 7))
    with pytest.raises(InputError, match="--prefix-tokens applies to the layout npy"):
        read(tmp_path, "npz", prefix_tokens=1)


@pytest.mark.parametrize("counts", [(36, 36), (100, 100), (50, 37)])
def test_regions_of_detectors_are_not_taken_for_a_grid(tmp_path, capsys, counts):
    for number, count in enumerate(counts):
        np.save(tmp_path / f"image{number}.npy", tokens(count))
    for _, _, boxes in read(tmp_path, "npy"):
        assert (boxes == [0, 0, 1, 1]).all()
    assert "the box of every region is the whole picture" in capsys.readouterr().err


def test_pickles_are_refused_with_the_reason(tmp_path):
    np.save(tmp_path / "image4.npy", SECOND)
    np.save(tmp_path / "image4_info.npy", np.array({"bbox": 1}, dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match=r"image4_info\.npy: features of MMF, whose boxes are pickled"):
        list(read(tmp_path, "npy"))
    np.save(tmp_path / "all.npy", GRIDS)
    for name, content in (("ids.txt", b"\x80\x04\x95\x06"), ("ids.pkl", b"(lp0\nI1\naI2\na.")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=rf"{name}: a pickle, which can run any code"):
            list(read(tmp_path / "all.npy", "npy", tmp_path / name))


def test_lmdb_is_named_as_unsupported(tmp_path):
    (tmp_path / "data.mdb").touch()
    (tmp_path / "file.lmdb").touch()
    for path in (tmp_path, tmp_path / "file.lmdb"):
        for attempt in (sniff, lambda source: list(read(source, "npy"))):
            with pytest.raises(
                InputError, match="an LMDB database, which is not supported: its values are pickles"
            ):
                attempt(path)
