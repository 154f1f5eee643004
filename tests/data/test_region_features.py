"""The features file: what is written is read back, whatever is wrong is named, and memory stays small."""

import json
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from latentalign.data.region_features import (
    Features,
    FeatureWriter,
    grid_boxes,
    image_id_of,
    reader,
    write_features,
)
from latentalign.errors import InputError


def picture(image_id, regions, size=5, seed=0):
    """Random features and ordered boxes."""
    generator = np.random.default_rng([seed, image_id])
    features = generator.normal(size=(regions, size)).astype(np.float32)
    boxes = np.sort(generator.uniform(size=(regions, 2, 2)), axis=1).reshape(regions, 4).astype(np.float32)
    return image_id, features, boxes


PICTURES = [picture(70, 3), picture(9, 1), picture(12, 6), picture(2**40, 2)]


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "made" / "features.safetensors"


@pytest.fixture
def written(path) -> Path:
    write_features(path, PICTURES, layout="test")
    return path


def test_safetensors_opens_the_file_with_equal_tensors(written):
    for framework in ("np", "pt"):
        with safe_open(written, framework) as file:
            found = {name: np.asarray(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
            metadata = file.metadata()
        np.testing.assert_array_equal(found["features"], np.concatenate([f for _, f, _ in PICTURES]))
        np.testing.assert_array_equal(found["boxes"], np.concatenate([b for _, _, b in PICTURES]))
        np.testing.assert_array_equal(found["offsets"], [0, 3, 4, 10, 12])
        np.testing.assert_array_equal(found["image_ids"], [70, 9, 12, 2**40])
        assert {k: v.dtype.name for k, v in found.items()} == {
            "features": "float32",
            "boxes": "float32",
            "offsets": "int64",
            "image_ids": "int64",
        }
        assert metadata == {"format": "latentalign-features", "version": "1", "layout": "test", "size": "5"}


def test_pictures_are_read_back_by_position_and_id(written):
    with Features(written) as found:
        assert (len(found), found.size, found.layout) == (4, 5, "test")
        assert found.image_ids.tolist() == [70, 9, 12, 2**40]
        assert [found.index(image_id) for image_id in (9, 12, 70, 2**40)] == [1, 2, 0, 3]
        for position, (_, features, boxes) in enumerate(PICTURES):
            read = found.regions(position)
            np.testing.assert_array_equal(read[0], features)
            np.testing.assert_array_equal(read[1], boxes)
            read[0][:] = 7  # a copy: the file is not changed
        np.testing.assert_array_equal(found.regions(0)[0], PICTURES[0][1])
        for missing in (8, 71, 2**41):
            with pytest.raises(InputError, match=rf"features\.safetensors: no features of image {missing};"):
                found.index(missing)
        for position in (-1, 4):
            with pytest.raises(IndexError):
                found.regions(position)


def test_batch_padding_equals_a_loop(written):
    with Features(written) as found:
        for positions in ([2, 0, 1, 2], [1], [3, 0]):
            features, mask, boxes = found.batch(positions)
            longest = max(len(PICTURES[p][1]) for p in positions)
            assert features.shape == (len(positions), longest, 5)
            assert (features.dtype, mask.dtype, boxes.dtype) == (np.float32, bool, np.float32)
            for b, p in enumerate(positions):
                for t in range(longest):
                    exists = t < len(PICTURES[p][1])
                    assert mask[b, t] == exists
                    assert features[b, t].tolist() == (PICTURES[p][1][t].tolist() if exists else [0] * 5)
                    assert boxes[b, t].tolist() == (PICTURES[p][2][t].tolist() if exists else [0] * 4)
        assert found.batch([])[0].shape == (0, 0, 5)


def test_float16_of_an_odd_size_is_rounded_and_nothing_else(path):
    pictures = [picture(1, 3, size=7), picture(2, 2, size=7)]  # 35 numbers: what follows is not aligned
    write_features(path, pictures, layout="test", dtype="float16")
    with Features(path) as found:
        for position, (_, features, boxes) in enumerate(pictures):
            np.testing.assert_array_equal(found.regions(position)[0], features.astype(np.float16))
            np.testing.assert_array_equal(found.regions(position)[1], boxes)
        assert found.batch([0, 1])[0].dtype == np.float32
        assert found.image_ids.tolist() == [1, 2]
    for framework in ("np", "pt"):
        with safe_open(path, framework) as file:
            np.testing.assert_array_equal(np.asarray(file.get_tensor("offsets")), [0, 3, 5])
            assert np.asarray(file.get_tensor("features")).dtype == np.float16


@pytest.mark.parametrize(("largest", "kept"), [(36, 36), (4, 4), (0, 40)])
def test_the_first_regions_are_kept(path, largest, kept):
    image_id, features, boxes = picture(5, 40)
    summary = write_features(path, [(image_id, features, boxes)], layout="t", max_regions=largest)
    assert (summary.images, summary.regions, summary.left_out) == (1, kept, 40 - kept)
    with Features(path) as found:
        np.testing.assert_array_equal(found.regions(0)[0], features[:kept])
        np.testing.assert_array_equal(found.regions(0)[1], boxes[:kept])


def test_boxes_a_little_beyond_the_picture_are_clipped(path):
    boxes = np.float32([[-0.005, 0.2, 1.005, 0.9], [0, 0, 1, 1]])
    write_features(path, [(1, np.ones((2, 3)), boxes)], layout="t")
    with Features(path) as found:
        np.testing.assert_array_equal(found.regions(0)[1], np.float32([[0, 0.2, 1, 0.9], [0, 0, 1, 1]]))


def spoiled(what):
    """A picture with one fault."""
    _, features, boxes = picture(31, 3)
    return {
        "nan": lambda: (31, np.where(features == features.max(), np.nan, features), boxes),
        "infinite": lambda: (31, np.where(features == features.max(), -np.inf, features), boxes),
        "nan box": lambda: (31, features, np.where(boxes == boxes.max(), np.nan, boxes)),
        "negative box": lambda: (31, features, boxes - np.float32([1.5, 0, 0, 0])),
        "large box": lambda: (31, features, boxes + np.float32([0, 0, 1.5, 0])),
        "reversed box": lambda: (31, features, boxes[:, [2, 1, 0, 3]]),
        "no region": lambda: (31, features[:0], boxes[:0]),
        "no feature": lambda: (31, features[:, :0], boxes),
        "other size": lambda: (31, features[:, :4], boxes),
        "fewer boxes": lambda: (31, features, boxes[:2]),
        "flat": lambda: (31, features[0], boxes),
        "twice": lambda: (70, features, boxes),
        "negative id": lambda: (-31, features, boxes),
        "large id": lambda: (2**63, features, boxes),
    }[what]()


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("nan", "image 31: .*NaN or infinite"),
        ("infinite", "image 31: .*NaN or infinite"),
        ("nan box", r"image 31: box .*nan.* of region \d"),
        ("negative box", "image 31: box .* of region 1"),
        ("large box", "image 31: box .* of region 1"),
        ("reversed box", "image 31: box .* x1 <= x2"),
        ("no region", "image 31 has no region"),
        ("no feature", "image 31 has no region"),
        ("other size", "image 31: the features have size 4, but earlier ones have size 5"),
        ("fewer boxes", r"image 31: features \(3, 5\) with boxes \(2, 4\)"),
        ("flat", r"image 31: features \(5,\)"),
        ("twice", "image 70 occurs twice"),
        ("negative id", "image -31"),
        ("large id", f"image {2**63}"),
    ],
)
def test_faults_are_named_and_leave_nothing_behind(path, fault, message):
    with pytest.raises(InputError, match=message):
        write_features(path, [*PICTURES, spoiled(fault)], layout="t")
    assert list(path.parent.iterdir()) == []


def test_features_too_large_for_float16_are_refused(path):
    with pytest.raises(InputError, match="image 3: features are too large for float16"):
        write_features(path, [(3, np.full((1, 2), 7e4), np.zeros((1, 4)))], layout="t", dtype="float16")


def test_no_picture_and_bad_options_are_refused(path):
    with pytest.raises(InputError, match="no picture"):
        write_features(path, [], layout="t")
    with pytest.raises(InputError, match="'int8'"):
        FeatureWriter(path, layout="t", dtype="int8")
    with pytest.raises(InputError, match="max_regions is -1"):
        FeatureWriter(path, layout="t", max_regions=-1)
    with pytest.raises(InputError, match="too long"):
        write_features(path, PICTURES, layout="t" * 900)
    assert not path.exists()


def test_nothing_is_overwritten_unasked(written):
    before = written.read_bytes()
    with pytest.raises(InputError, match="--overwrite"):
        write_features(written, PICTURES[:1], layout="t")
    with pytest.raises(InputError, match="image 9 occurs twice"):
        write_features(written, PICTURES[1:2] * 2, layout="t", overwrite=True)
    assert written.read_bytes() == before
    write_features(written, PICTURES[:1], layout="t", overwrite=True)
    with Features(written) as found:
        assert found.image_ids.tolist() == [70]
    with pytest.raises(InputError, match="exists"):
        FeatureWriter(written.parent, layout="t", overwrite=True)


def test_the_writer_holds_no_features(path):
    tracemalloc.start()
    try:
        with FeatureWriter(path, layout="t") as writer:
            for image_id in range(200):
                writer.add(image_id, np.full((20, 500), image_id, np.float32), np.zeros((20, 4), np.float32))
            temporary = next(path.parent.iterdir())
            assert temporary != path
            assert temporary.stat().st_size > 0.9 * 200 * 20 * 500 * 4
            assert tracemalloc.get_traced_memory()[1] < 2**20  # of 8 MB
    finally:
        tracemalloc.stop()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def header_of(data: bytes) -> dict:
    return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])


def with_header(data: bytes, change) -> bytes:
    """The same file with a changed header."""
    header = header_of(data)
    change(header)
    text = json.dumps(header).encode().ljust(1016)
    return data[:8] + text + data[1024:]


def test_truncated_and_padded_files_are_refused(written):
    data = written.read_bytes()
    for length in (0, 4, 8, 500, 1023, 1024, 1100, len(data) - 1):
        written.write_bytes(data[:length])
        with pytest.raises(InputError, match=r"features\.safetensors: .*(cut short|parsed)"):
            Features(written)
    written.write_bytes(data + b"\0")
    with pytest.raises(InputError, match=rf"{len(data) + 1} bytes, .* says {len(data)}: it continues"):
        Features(written)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h["__metadata__"].update(format="other"), "format 'other'"),
        (lambda h: h["__metadata__"].update(version="2"), "version '2'"),
        (lambda h: h["__metadata__"].update(size="6"), "do not fit"),
        (lambda h: h["__metadata__"].update(size="many"), "header"),
        (lambda h: h.pop("__metadata__"), "header"),
        (lambda h: h.pop("boxes"), "no 'boxes'"),
        (lambda h: h["offsets"].update(dtype="F64"), "header"),
        (lambda h: h["features"].update(dtype="F16"), "header"),
        (lambda h: h["features"].update(shape=[5, 12]), "do not fit"),
        (lambda h: h["features"].update(shape=[-12, -5]), "header"),
        (lambda h: h["boxes"].update(data_offsets=[0, 192]), "gaps between"),
        (lambda h: h.update(offsets=h["image_ids"], image_ids=h["offsets"]), "do not fit"),
        (lambda h: h.update(boxes=3), "header"),
    ],
)
def test_headers_that_lie_are_refused(written, change, message):
    written.write_bytes(with_header(written.read_bytes(), change))
    with pytest.raises(InputError, match=message):
        Features(written)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("offsets", [0, 3, 2, 10, 12], "do not increase"),
        ("offsets", [0, 3, 3, 10, 12], "do not increase"),
        ("offsets", [1, 3, 4, 10, 12], "do not increase"),
        ("offsets", [0, 3, 4, 10, 11], "do not increase"),
        ("image_ids", [70, 9, 70, 1], "image 70 occurs twice"),
    ],
)
def test_offsets_rise_and_ids_differ(written, name, values, message):
    data = written.read_bytes()
    start, end = header_of(data)[name]["data_offsets"]
    values = np.array(values, "<i8").tobytes()
    written.write_bytes(data[: 1024 + start] + values + data[1024 + end :])
    with pytest.raises(InputError, match=message):
        Features(written)


def test_what_is_no_features_file_is_named(tmp_path):
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(InputError, match=f"{path.name}: no such features file"):
            Features(path)
    for data in (b"hello world, this is text", b"\x05" + b"\0" * 7 + b"[[[[[" + b"x" * 90, bytes(100)):
        (tmp_path / "text").write_bytes(data)
        with pytest.raises(InputError, match="text: not a features file"):
            Features(tmp_path / "text")


def mapped_memory(path: Path) -> int:
    """Resident bytes of a file's mapping."""
    inside, total = False, 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ")[0] and ":" not in line.split(" ")[0]:
            inside = line.endswith(str(path))
        elif inside and line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024
    return total


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_resident_memory_does_not_grow_with_the_file(path, monkeypatch):
    write_features(path, (picture(k, 8, size=1024) for k in range(1000)), layout="t")  # 33 MB
    largest = {}
    for limit in (2**22, 2**40):
        monkeypatch.setattr(reader, "RESIDENT_BYTES", limit)
        with Features(path) as found:
            largest[limit] = 0
            for start in range(0, 1000, 50):
                features, _, _ = found.batch(range(start, start + 50))
                np.testing.assert_array_equal(features[7], picture(start + 7, 8, size=1024)[1])
                largest[limit] = max(largest[limit], mapped_memory(path))
    assert largest[2**22] < 2**23
    assert largest[2**40] > 2**24  # the measurement sees what is not given back


def test_ids_are_the_last_digits_of_a_name():
    names = {
        "COCO_val2014_000000123456.jpg": 123456,
        "COCO_val2014_000000123456": 123456,
        "image12.jpg": 12,
        "7": 7,
        "000": 0,
        "image12.jp2": 12,
        "12_small.png": 12,
        "a1b2c": 2,
    }
    assert {name: image_id_of(name) for name in names} == names
    for name in ("picture.jpg", "", "9" * 5000, "9" * 19, "٣"):
        with pytest.raises(InputError, match="image id"):
            image_id_of(name)


def test_cells_tile_the_picture_row_by_row():
    np.testing.assert_allclose(
        grid_boxes(2, 4)[[0, 3, 4, 7]],
        [[0, 0, 0.25, 0.5], [0.75, 0, 1, 0.5], [0, 0.5, 0.25, 1], [0.75, 0.5, 1, 1]],
    )
    boxes = grid_boxes(7, 7).astype(float)
    assert np.isclose(((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])).sum(), 1)


def test_folders_are_made_and_boxes_may_extend_beyond_the_picture_by_a_hundredth(tmp_path):
    path = tmp_path / "new" / "below" / "features.safetensors"
    edge = np.array([[-0.01, 0.0, 1 + 0.01, 1.0]])
    write_features(path, [(1, np.ones((1, 2), np.float32), edge)], layout="test")
    with Features(path) as features:
        assert features.regions(0)[1].tolist() == [[0, 0, 1, 1]]
