"""Every foreign layout, written here as others write it, is read back; damaged rows are named."""

import base64
import gzip
import json
import sys

import numpy as np
import pytest

from latentalign.data.region_features import Features, grid_boxes, write_features
from latentalign.errors import InputError
from latentalign.tasks.vqa import layouts
from latentalign.tasks.vqa.layouts import read, read_ids, sniff

WIDTH, HEIGHT, SIZE = 640, 480, 6
GENERATOR = np.random.default_rng(0)


def picture(image_id: int, regions: int):
    """Image id, features, and boxes in pixels."""
    features = GENERATOR.normal(size=(regions, SIZE)).astype(np.float32)
    corners = np.sort(GENERATOR.uniform(size=(regions, 2, 2)), axis=1) * [WIDTH, HEIGHT]
    return image_id, features, corners.reshape(regions, 4).astype(np.float32)


PICTURES = [picture(150367, 3), picture(9, 5), picture(12, 1)]
FIXED = [picture(44, 4), picture(5, 4), picture(31, 4)]


def fractions(boxes):
    return boxes / np.float32([WIDTH, HEIGHT, WIDTH, HEIGHT])


def check(found, pictures):
    """The same pictures in the same order, with boxes as fractions."""
    found = list(found)
    assert [image_id for image_id, _, _ in found] == [image_id for image_id, _, _ in pictures]
    for (_, features, boxes), (_, expected, pixels) in zip(found, pictures, strict=True):
        assert features.dtype == boxes.dtype == np.float32
        np.testing.assert_array_equal(features, expected)
        np.testing.assert_allclose(boxes, fractions(pixels), rtol=1e-6)


def encoded(array) -> bytes:
    return base64.b64encode(np.ascontiguousarray(array, "<f4").tobytes())


def bottom_up_row(image_id, features, boxes) -> list[bytes]:
    numbers = (image_id, WIDTH, HEIGHT, len(boxes))
    return [*(str(number).encode() for number in numbers), encoded(boxes), encoded(features)]


def lxmert_row(image_id, features, boxes) -> list[bytes]:
    n = len(boxes)
    return [
        f"COCO_val2014_{image_id:012d}".encode(),
        str(HEIGHT).encode(),
        str(WIDTH).encode(),
        base64.b64encode(np.arange(n, dtype=np.int64).tobytes()),
        encoded(np.ones(n)),
        base64.b64encode(np.arange(n, dtype=np.int64).tobytes()),
        encoded(np.ones(n)),
        str(n).encode(),
        encoded(boxes),
        encoded(features),
    ]


ROWS = {"bottom-up": bottom_up_row, "lxmert": lxmert_row}


@pytest.fixture
def write(tmp_path):
    """A function that writes rows of cells as a TSV file."""

    def write(rows, *, packed=False, end=b"\n"):
        path = tmp_path / ("rows.tsv.gz" if packed else "rows.tsv")
        data = b"".join(b"\t".join(row) + end for row in rows)
        path.write_bytes(gzip.compress(data) if packed else data)
        return path

    return write


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("layout", ROWS)
def test_tsv_is_read_back(write, layout, packed):
    path = write([ROWS[layout](*picture) for picture in PICTURES], packed=packed)
    assert sniff(path) == layout
    check(read(path, layout), PICTURES)


def test_windows_ends_and_a_last_row_without_end_are_read(write):
    check(read(write([bottom_up_row(*p) for p in PICTURES], end=b"\r\n"), "bottom-up"), PICTURES)
    path = write([bottom_up_row(*p) for p in PICTURES])
    path.write_bytes(path.read_bytes()[:-1])
    check(read(path, "bottom-up"), PICTURES)


def test_rows_are_read_one_at_a_time(write):
    good, bad = bottom_up_row(*PICTURES[0]), [b"1"]
    stream = read(write([good, bad]), "bottom-up")
    assert next(stream)[0] == 150367
    with pytest.raises(InputError, match=r"rows\.tsv, row 2"):
        next(stream)


def replaced(layout, **cells):
    """The row of the second picture with some cells replaced."""
    row = ROWS[layout](*PICTURES[1])
    for name, value in cells.items():
        row[layouts.COLUMNS[layout].index(name)] = value
    return row


SECOND = PICTURES[1][1]
NAN = np.where(np.equal(SECOND, SECOND.max()), np.nan, SECOND)
SOME_NAN_BOXES = np.where(PICTURES[1][2] == PICTURES[1][2].max(), np.nan, PICTURES[1][2])


@pytest.mark.parametrize("layout", ROWS)
@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"features": encoded(SECOND)[:-16]}, "not a multiple of num_boxes = 5"),
        ({"features": encoded(SECOND)[:-1]}, "features are not base64"),
        ({"features": encoded(SECOND)[:-4]}, "features are not base64 of float32"),  # 3 bytes fewer
        ({"features": b"*" + encoded(SECOND)[1:]}, "features are not base64"),
        ({"features": encoded(SECOND) + b"AAAA"}, "features are not base64"),
        ({"features": encoded(SECOND[:, :5])}, "features have size 5, but earlier ones have size 6"),
        ({"features": b""}, "features have 0 numbers"),
        ({"features": encoded(NAN)}, "NaN"),
        (
            {"boxes": encoded(PICTURES[1][2][:4])},
            "boxes have 16 numbers, expected 4 for each of num_boxes = 5",
        ),
        ({"boxes": encoded(SOME_NAN_BOXES)}, "NaN"),
        ({"boxes": b"\xff\xff"}, "boxes are not base64"),
        ({"num_boxes": b"4"}, "num_boxes = 4"),
        ({"num_boxes": b"6"}, "num_boxes = 6"),
        ({"num_boxes": b"0"}, "num_boxes is '0'"),
        ({"num_boxes": b"-5"}, "num_boxes is '-5'"),
        ({"num_boxes": b"five"}, "num_boxes is 'five'"),
        ({"image_w": b"0"}, "image_w is '0'"),
        ({"image_h": b"nan"}, "image_h is 'nan'"),
        ({"image_h": b"9" * 5000}, "image_h is '999"),
    ],
)
def test_a_damaged_cell_is_named_with_file_row_and_image(write, layout, cells, message):
    path = write([ROWS[layout](*PICTURES[0]), replaced(layout, **cells)])
    with pytest.raises(InputError, match=message) as caught:
        list(read(path, layout))
    assert str(caught.value).startswith(f"{path}, row 2 (image 9): ")
    assert len(str(caught.value)) < len(str(path)) + 200


@pytest.mark.parametrize("layout", ROWS)
def test_wrong_numbers_of_columns_and_bad_ids_are_named(write, layout):
    row, columns = ROWS[layout](*PICTURES[1]), len(layouts.COLUMNS[layout])
    for broken, count in ((row[:-1], columns - 1), ([*row, b""], columns + 1), ([b""], 1)):
        with pytest.raises(InputError, match=rf"row 2 \(image .*\): {count} columns, expected {columns}"):
            list(read(write([ROWS[layout](*PICTURES[0]), broken]), layout))
    for name in (b"image_id", b"", b"\xff", b"9" * 30):
        with pytest.raises(InputError, match=r"rows\.tsv, row 1: .*is not an image id"):
            list(read(write([replaced(layout, image_id=name)]), layout))


def test_damaged_gzip_and_endless_rows_are_named(write, monkeypatch):
    path = write([bottom_up_row(*p) for p in PICTURES], packed=True)
    data = path.read_bytes()
    path.write_bytes(data[:-20])
    with pytest.raises(InputError, match=r"gz, row \d: damaged gzip"):
        list(read(path, "bottom-up"))
    path.write_bytes(data[:200] + bytes(50) + data[250:])
    with pytest.raises(InputError, match=r"gz, row \d"):
        list(read(path, "bottom-up"))
    monkeypatch.setattr(layouts.tsv, "LONGEST_ROW", 100)
    with pytest.raises(InputError, match="row 1: longer than 100 bytes"):
        list(read(write([bottom_up_row(*PICTURES[0])]), "bottom-up"))


def test_a_duplicate_row_is_refused_when_it_is_written(write, tmp_path):
    path = write([bottom_up_row(*p) for p in (*PICTURES, PICTURES[1])])
    with pytest.raises(InputError, match="image 9 occurs twice"):
        write_features(tmp_path / "out", read(path, "bottom-up"), layout="bottom-up")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["rows.tsv"]


def test_a_converted_file_holds_what_the_rows_hold(write, tmp_path):
    path = write([bottom_up_row(*p) for p in PICTURES])
    write_features(tmp_path / "out", read(path, "bottom-up"), layout="bottom-up")
    with Features(tmp_path / "out") as found:
        check([(int(i), *found.regions(k)) for k, i in enumerate(found.image_ids)], PICTURES)


# --- HDF5 -----------------------------------------------------------------------------------------------


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
    check(read(path.with_suffix(".data"), "hdf5"), FIXED)
    check(read(hdf5(**variable()), "hdf5"), PICTURES)


def test_hdf5_boxes_may_be_fractions(hdf5):
    boxes = np.stack([fractions(boxes) for _, _, boxes in FIXED])
    check(read(hdf5(**fixed(image_bb=boxes, image_w=None, image_h=None)), "hdf5"), FIXED)
    check(read(hdf5(**fixed(image_bb=boxes)), "hdf5"), FIXED)
    spatial = np.concatenate([boxes, boxes[..., 2:] - boxes[..., :2]], axis=-1)
    check(read(hdf5(**fixed(image_w=None, spatial_features=spatial)), "hdf5"), FIXED)
    rows = np.concatenate([fractions(boxes) for _, _, boxes in PICTURES])
    spatial = np.concatenate([rows, rows[:, 2:] - rows[:, :2]], axis=1)
    check(read(hdf5(**variable(image_w=None, spatial_features=spatial)), "hdf5"), PICTURES)


def test_hdf5_ids_come_from_names_or_a_file(hdf5, tmp_path):
    names = [f"COCO_val2014_{image_id:012d}.jpg" for image_id, _, _ in FIXED]
    check(read(hdf5(**fixed(image_ids=names)), "hdf5"), FIXED)
    numbers = [image_id for image_id, _, _ in FIXED]
    texts = (json.dumps(numbers), json.dumps(names, indent=1), "\n".join(map(str, numbers)), "\n".join(names))
    for text in texts:
        (tmp_path / "ids").write_text(text)
        check(read(hdf5(**fixed(image_ids=None)), "hdf5", tmp_path / "ids"), FIXED)
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


# --- NumPy ----------------------------------------------------------------------------------------------

BY_ID = sorted(PICTURES, key=lambda picture: picture[0])


def test_a_folder_of_archives_is_read_in_the_order_of_ids(tmp_path):
    extent = {"image_w": WIDTH, "image_h": np.array(HEIGHT)}
    for image_id, features, boxes in PICTURES:
        np.savez(tmp_path / f"COCO_train2014_{image_id:012d}.jpg.npz", x=features, bbox=boxes, **extent)
    (tmp_path / "readme.txt").touch()
    assert sniff(tmp_path) == "npz"
    check(read(tmp_path, "npz"), BY_ID)
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
    check(read(tmp_path, "npz"), BY_ID)


def test_archives_with_features_along_the_second_axis_are_turned(tmp_path):
    for image_id, features, boxes in PICTURES:
        np.savez(tmp_path / f"{image_id}.npz", x=features.T, bbox=fractions(boxes), num_bbox=[len(boxes)])
    check(read(tmp_path, "npz"), BY_ID)


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


# --- which layout, which ids ----------------------------------------------------------------------------


def test_unknown_sources_are_refused_with_what_is_known(tmp_path):
    (tmp_path / "text").write_text("hello\tworld\n")
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "image1.jpg").touch()
    for name, message in (
        ("text", "2 columns, not 6 .bottom-up. or 10"),
        ("empty", "1 columns"),
        ("absent", "no such file"),
        ("folder", "--extractor"),
    ):
        with pytest.raises(InputError, match=message) as caught:
            sniff(tmp_path / name)
        assert name in str(caught.value)
    with pytest.raises(InputError, match="unknown layout 'other'; choose one of bottom-up, lxmert, hdf5"):
        read(tmp_path / "text", "other")
    with pytest.raises(InputError, match="--ids"):
        read(tmp_path / "text", "bottom-up", tmp_path / "ids")
    for layout in ("npz", "npy"):
        with pytest.raises(InputError, match=r"expected a folder|no such file"):
            list(read(tmp_path / "nowhere", layout))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\n\n2\n", "line 2: ''"),
        ("1\nx\n", "line 2: 'x'"),
        ("[1, 2", "not JSON"),
        ("[1, true]", "item 2: 'True'"),
        ("[1, -4]", "item 2: '-4'"),
        ("[1, 2.5]", "item 2: '2.5'"),
        ("[1, null]", "item 2: 'None'"),
        ("[1, [2]]", "item 2"),
        ("[1, 99999999999999999999]", "item 2"),
    ],
)
def test_bad_ids_are_named(tmp_path, text, message):
    (tmp_path / "ids").write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        read_ids(tmp_path / "ids")
    assert str(caught.value).startswith(f"{tmp_path / 'ids'}")
