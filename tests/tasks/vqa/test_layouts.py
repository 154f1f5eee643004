"""Every foreign layout, written here as others write it, is read back; damaged rows are named."""

import base64
import gzip

import numpy as np
import pytest

from latentalign.data.region_features import Features, write_features
from latentalign.errors import InputError
from latentalign.tasks.vqa import layouts
from latentalign.tasks.vqa.layouts import read, read_ids, sniff
from latentalign.tasks.vqa.layouts.arrays import find_tokens
from latentalign.tasks.vqa.layouts.pictures import parse_image_id
from support.regions import (
    HEIGHT,
    NAN,
    PICTURES,
    SECOND,
    WIDTH,
    assert_pictures,
)


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
    assert_pictures(read(path, layout), PICTURES)


def test_windows_ends_and_a_last_row_without_end_are_read(write):
    assert_pictures(read(write([bottom_up_row(*p) for p in PICTURES], end=b"\r\n"), "bottom-up"), PICTURES)
    path = write([bottom_up_row(*p) for p in PICTURES])
    path.write_bytes(path.read_bytes()[:-1])
    assert_pictures(read(path, "bottom-up"), PICTURES)


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
        assert_pictures([(int(i), *found.regions(k)) for k, i in enumerate(found.image_ids)], PICTURES)


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


def test_image_ids_reach_from_0_to_what_a_features_file_can_store():
    assert [parse_image_id(item, "here") for item in (0, np.int64(7), 2**63 - 1, b"image12.png")] == [
        0,
        7,
        2**63 - 1,
        12,
    ]
    for item in (-1, 2**63, True, 1.0, "", None):
        with pytest.raises(InputError, match=r"here: .* is not an image id"):
            parse_image_id(item, "here")


def test_the_smallest_grids_of_tokens():
    assert [find_tokens(rows, None) for rows in (50, 197, 121, 122, 144)] == [1, 1, 0, 1, 0]
    assert [find_tokens(rows, None) for rows in (37, 48, 49, 100, 120, None)] == [None] * 6
    assert find_tokens(37, 1) == 1
