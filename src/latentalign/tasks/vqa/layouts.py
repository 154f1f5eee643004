"""Readers of the layouts in which others publish region features: each a stream of pictures, boxes in [0, 1].

`bottom-up`  TSV of image_id, image_w, image_h, num_boxes, boxes, features (base64 of float32; no header)
`lxmert`     TSV of ten columns that begins with img_id, img_h, img_w and ends with num_boxes, boxes, features
`hdf5`       image_features (N, n, D) and image_bb (N, n, 4), or all rows and pos_boxes (N, 2) that parts them
`npz`        a folder of one archive a picture: x or features, bbox or boxes
`npy`        a folder of one array a picture, (H, W, D) cells or (n, D) rows; or one array of all pictures
"""

from __future__ import annotations

import base64
import gzip
import json
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from latentalign.errors import InputError, StorageError
from latentalign.extras import require_package
from latentalign.tasks.vqa.features import Regions, grid_boxes, image_id_of
from latentalign.textfiles import read_lines

COLUMNS = {
    "bottom-up": ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features"),
    "lxmert": (
        "image_id",
        "image_h",
        "image_w",
        "objects_id",
        "objects_conf",
        "attrs_id",
        "attrs_conf",
        "num_boxes",
        "boxes",
        "features",
    ),
}
_LONGEST_ROW = 2**26  # bytes: what is longer is no row of features
_LARGEST_FRACTION = 2  # a picture whose boxes stay below has them as fractions, not in pixels
_BLOCK = 2**26  # bytes of an array that are mapped at a time
_READ_FAULTS = (ValueError, EOFError, KeyError, NotImplementedError, zipfile.BadZipFile, zlib.error)
_HDF5 = b"\x89HDF\r\n\x1a\n"


@dataclass(frozen=True)
class _Row:
    """One picture of a source, as messages name it."""

    where: str
    image: int | str

    def error(self, what: str) -> InputError:
        return InputError(f"{self.where} (image {self.image}): {what}")


def sniff(source: Path) -> str:
    """The name of the layout of a file or folder, judged by its content."""
    if source.is_dir():
        ends = {path.suffix for path in source.iterdir()}
        for layout in ("npz", "npy"):
            if f".{layout}" in ends:
                return layout
        raise InputError(
            f"{source}: no .npz or .npy file in this folder; for a folder of pictures give --extractor"
        )
    with _opened(source) as file:
        beginning = file.read(8)
    if beginning == _HDF5 or source.suffix in (".h5", ".hdf5"):
        return "hdf5"
    if beginning.startswith(b"\x93NUMPY"):
        return "npy"
    columns = len(next(_lines(source), b"").split(b"\t"))
    for layout, names in COLUMNS.items():
        if columns == len(names):
            return layout
    raise InputError(
        f"{source}: not a known layout: the first row has {columns} columns, not 6 (bottom-up) or 10 (lxmert), "
        "and it is neither HDF5 nor .npy"
    )


def read(source: Path, layout: str, ids: Path | None = None) -> Iterator[Regions]:
    """The pictures of a source in the named layout; `ids` names them where the source itself does not."""
    if layout not in LAYOUTS:
        raise InputError(f"unknown layout {layout!r}; choose one of {', '.join(LAYOUTS)}")
    if ids is not None and (layout not in ("hdf5", "npy") or source.is_dir()):
        raise InputError(f"--ids: {source} names its pictures itself; leave --ids out")
    return LAYOUTS[layout](source, ids)


def read_ids(path: Path) -> list[int]:
    """Image ids, or names that end in them, of a JSON list or of a file with one a line."""
    lines = list(read_lines(path))
    if not lines or not lines[0].lstrip().startswith("["):
        return [_identified(line, f"{path}, line {n}") for n, line in enumerate(lines, start=1)]
    try:
        items = json.loads("\n".join(lines))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error}); expected a list of image ids") from error
    return [_identified(item, f"{path}, item {n}") for n, item in enumerate(items, start=1)]


def _identified(item: Any, where: str) -> int:
    """An image id given as a number or as a name."""
    if isinstance(item, bytes):
        item = item.decode("utf-8", "replace")
    if isinstance(item, np.integer | int) and not isinstance(item, bool) and 0 <= item < 2**63:
        return int(item)
    try:
        return image_id_of(item if isinstance(item, str) else "")
    except InputError:
        raise InputError(
            f"{where}: {str(item)[:80]!r} is no image id: expected 123 or a name such as image12"
        ) from None


# --- what all layouts share -----------------------------------------------------------------------------


def _opened(source: Path) -> IO[bytes]:
    try:
        return open(source, "rb")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError) as error:
        raise InputError(f"{str(source)!a}: no such file of region features; check the path") from error
    except OSError as error:
        raise StorageError(f"{source}: cannot be read: {error.strerror or error}") from error


def _regions(
    row: _Row,
    features: np.ndarray,
    boxes: np.ndarray,
    extent: tuple[float, float] | None,
    *,
    pixels: bool = False,
) -> Regions:
    """The checked regions of one picture; `extent` is its width and height where these are known."""
    if features.dtype.kind not in "fiu" or boxes.dtype.kind not in "fiu":
        raise row.error(f"features of type {features.dtype} and boxes of type {boxes.dtype} are no numbers")
    if features.ndim != 2 or boxes.shape != (len(features), 4):
        raise row.error(f"features {features.shape} with boxes {boxes.shape}; expected (n, D) with (n, 4)")
    if not features.size:
        raise row.error("no region; leave the picture out, or extract its features again")
    if not (np.isfinite(features).all() and np.isfinite(boxes).all()):
        raise row.error("features or boxes that are NaN or infinite; extract them again")
    if pixels or boxes.max() > _LARGEST_FRACTION:
        if extent is None or not (0 < extent[0] < np.inf and 0 < extent[1] < np.inf):
            raise row.error(f"boxes in pixels need the picture's image_w and image_h, not {extent}")
        boxes = boxes / np.array([*extent, *extent])
    assert isinstance(row.image, int)
    return row.image, features.astype(np.float32, copy=False), boxes.astype(np.float32, copy=False)


# --- TSV ------------------------------------------------------------------------------------------------


def _lines(source: Path) -> Iterator[bytes]:
    """Each line of a plain or gzip file without its end."""
    with _opened(source) as plain:
        packed = plain.read(2) == b"\x1f\x8b"
        plain.seek(0)
        file = gzip.GzipFile(fileobj=plain) if packed else plain
        number = 0
        try:
            while line := file.readline(_LONGEST_ROW):
                number += 1
                if len(line) == _LONGEST_ROW:
                    raise InputError(f"{source}, row {number}: longer than {_LONGEST_ROW} bytes; no features")
                yield line.removesuffix(b"\n").removesuffix(b"\r")
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise InputError(f"{source}, row {number + 1}: damaged gzip ({error}); copy it again") from error
        except OSError as error:
            raise StorageError(f"{source}: cannot be read: {error.strerror or error}") from error


def _read_tsv(source: Path, columns: tuple[str, ...]) -> Iterator[Regions]:
    size = None
    for number, line in enumerate(_lines(source), start=1):
        picture = _tsv_row(f"{source}, row {number}", line.split(b"\t"), columns)
        found = picture[1].shape[1]
        if size not in (None, found):
            row = _Row(f"{source}, row {number}", picture[0])
            raise row.error(
                f"features of size {found}, those before of {size}: cut short, or of another file"
            )
        size = found
        yield picture


def _tsv_row(where: str, cells: list[bytes], columns: tuple[str, ...]) -> Regions:
    row = _Row(where, cells[0][:40].decode("utf-8", "replace"))
    if len(cells) != len(columns):
        raise row.error(f"{len(cells)} columns, expected {len(columns)}: {', '.join(columns)}")
    named = dict(zip(columns, cells, strict=True))
    row = _Row(where, _identified(named["image_id"], where))
    width, height, count = (_number(row, name, named[name]) for name in ("image_w", "image_h", "num_boxes"))
    boxes = _floats(row, "boxes", named["boxes"])
    features = _floats(row, "features", named["features"])
    if len(boxes) != 4 * count:
        raise row.error(f"boxes of {len(boxes)} numbers, expected 4 for each of num_boxes = {count}")
    if not len(features) or len(features) % count:
        raise row.error(f"features of {len(features)} numbers, which num_boxes = {count} does not divide")
    return _regions(row, features.reshape(count, -1), boxes.reshape(count, 4), (width, height), pixels=True)


def _number(row: _Row, name: str, cell: bytes) -> int:
    if not (cell.isdigit() and len(cell) < 10 and int(cell)):
        raise row.error(f"{name} is {cell[:40].decode('utf-8', 'replace')!r}, expected a positive number")
    return int(cell)


def _floats(row: _Row, name: str, cell: bytes) -> np.ndarray:
    """The float32 numbers of a base64 column."""
    try:
        return np.frombuffer(base64.b64decode(cell, validate=True), "<f4")
    except ValueError as error:
        raise row.error(f"{name} are not base64 of float32 numbers ({error}); copy the row again") from error


def _read_bottom_up(source: Path, ids: Path | None = None) -> Iterator[Regions]:
    return _read_tsv(source, COLUMNS["bottom-up"])


def _read_lxmert(source: Path, ids: Path | None = None) -> Iterator[Regions]:
    return _read_tsv(source, COLUMNS["lxmert"])


# --- HDF5 -----------------------------------------------------------------------------------------------


def _read_hdf5(source: Path, ids: Path | None = None) -> Iterator[Regions]:
    """Pictures of an HDF5 file, one in memory at a time.

    Boxes in pixels are divided by image_w and image_h; where these are absent, the first four columns of
    spatial_features, which common converters write beside image_bb, are the boxes in [0, 1].
    """
    require_package("h5py", f"{source} is an HDF5 file")
    import h5py

    _opened(source).close()
    try:
        file = h5py.File(source, "r")
    except OSError as error:
        raise InputError(f"{source}: not an HDF5 file, or damaged ({error})") from error
    with file:
        data = {name: value for name, value in file.items() if isinstance(value, h5py.Dataset)}
        count = _check_hdf5(source, data)
        for k, image_id in enumerate(_hdf5_ids(source, data, ids, count=count)):
            row = _Row(f"{source}, row {k + 1}", image_id)
            try:
                features, boxes, extent = _hdf5_row(row, data, k)
            except OSError as error:
                raise row.error(f"cannot be read ({error}); copy the file again") from error
            yield _regions(row, features, boxes, extent)


def _check_hdf5(source: Path, data: Mapping[str, Any]) -> int:
    """How many pictures there are; an InputError where the datasets are not those of a known layout."""
    missing = {"image_features", "image_bb"} - data.keys()
    if missing:
        raise InputError(
            f"{source}: no dataset {', '.join(sorted(missing))}; it has {', '.join(sorted(data))}"
        )
    features, boxes = data["image_features"].shape, data["image_bb"].shape
    parts = data["pos_boxes"].shape if "pos_boxes" in data and len(features) == 2 else None
    if len(features) != (3 if parts is None else 2) or boxes != (*features[:-1], 4):
        raise InputError(
            f"{source}: image_features {features} with image_bb {boxes}; expected (N, n, D) with (N, n, 4), "
            "or (rows, D) with (rows, 4) and pos_boxes (N, 2)"
        )
    count = features[0] if parts is None else parts[0]
    expected = {"image_w": (count,), "image_h": (count,), "spatial_features": (*features[:-1], 6)}
    if parts is not None:
        expected["pos_boxes"] = (count, 2)
    for name, shape in expected.items():
        if name in data and data[name].shape != shape:
            raise InputError(f"{source}: {name} has the shape {data[name].shape}, expected {shape}")
    return int(count)


def _hdf5_ids(source: Path, data: Mapping[str, Any], ids: Path | None, *, count: int) -> list[int]:
    name = next((name for name in ("image_ids", "ids") if name in data), None)
    if name is None:
        return _given_ids(source, ids, count)
    if ids is not None:
        raise InputError(f"--ids: {source} has the ids of its pictures in {name!r}; leave --ids out")
    found = data[name][()].reshape(-1)
    if len(found) != count:
        raise InputError(f"{source}: {len(found)} {name} for {count} pictures")
    return [_identified(item, f"{source}, {name}, row {k}") for k, item in enumerate(found, start=1)]


def _given_ids(source: Path, ids: Path | None, count: int) -> list[int]:
    if ids is None:
        raise InputError(
            f"{source}: does not say which pictures these are; give --ids FILE, one id a picture"
        )
    found = read_ids(ids)
    if len(found) != count:
        raise InputError(f"{ids}: {len(found)} ids for the {count} pictures of {source}")
    return found


def _hdf5_row(
    row: _Row, data: Mapping[str, Any], k: int
) -> tuple[np.ndarray, np.ndarray, tuple[float, float] | None]:
    """Features, boxes, and width and height where there are any, of picture k."""
    where: Any = k
    if data["image_features"].ndim == 2:
        total, (start, end) = len(data["image_features"]), map(int, data["pos_boxes"][k])
        if not 0 <= start <= end <= total:
            raise row.error(f"pos_boxes {start}, {end} do not lie within the {total} rows")
        where = slice(start, end)
    sized = "image_w" in data and "image_h" in data
    extent = (float(data["image_w"][k]), float(data["image_h"][k])) if sized else None
    if extent is None and "spatial_features" in data:
        return data["image_features"][where], data["spatial_features"][where][:, :4], None
    return data["image_features"][where], data["image_bb"][where], extent


# --- NumPy ----------------------------------------------------------------------------------------------


def _files(folder: Path, end: str) -> list[tuple[int, Path]]:
    """The files of a folder with the ids in their names, in the order of the ids."""
    files = [path for path in folder.iterdir() if path.suffix == end] if folder.is_dir() else []
    if not files:
        raise InputError(f"{folder}: expected a folder of {end} files")
    return sorted((_identified(path.name, str(path)), path) for path in files)


def _read_npz(source: Path, ids: Path | None = None) -> Iterator[Regions]:
    for image_id, path in _files(source, ".npz"):
        row = _Row(str(path), image_id)
        try:
            with _opened(path) as file, np.load(file, allow_pickle=False) as archive:
                found = _npz_regions(row, archive)
        except InputError:
            raise
        except (*_READ_FAULTS, TypeError, AttributeError) as error:
            raise row.error(f"not an archive of plain arrays, or damaged ({error})") from error
        yield found


def _npz_regions(row: _Row, archive: Mapping[str, np.ndarray]) -> Regions:
    """The arrays of one archive; features may also be (D, n), as some extractors store them."""

    def first(*names: str) -> np.ndarray:
        for name in names:
            if name in archive:
                return archive[name]
        raise row.error(f"no array {' or '.join(names)}; it has {', '.join(archive)}")

    features, boxes = first("x", "features"), first("bbox", "boxes")
    if features.ndim != 2 or boxes.ndim != 2:
        raise row.error(f"features {features.shape} with boxes {boxes.shape}; expected (n, D) with (n, 4)")
    if len(features) != len(boxes) == features.shape[1]:
        features = features.T
    if "num_bbox" in archive:
        count = int(archive["num_bbox"].item())
        if not 0 < count <= len(boxes):
            raise row.error(f"num_bbox is {count}, but there are {len(boxes)} boxes")
        features, boxes = features[:count], boxes[:count]  # the rest is padding
    sized = "image_w" in archive and "image_h" in archive
    extent = (float(archive["image_w"].item()), float(archive["image_h"].item())) if sized else None
    return _regions(row, features, boxes, extent)


def _read_npy(source: Path, ids: Path | None = None) -> Iterator[Regions]:
    if not source.is_dir():
        yield from _read_array(source, ids)
        return
    for image_id, path in _files(source, ".npy"):
        yield _cells(_Row(str(path), image_id), np.array(_mapped(path)))


def _read_array(source: Path, ids: Path | None) -> Iterator[Regions]:
    """The pictures along the first axis of one array, of which a block is mapped at a time."""
    whole = _mapped(source)
    if whole.ndim not in (3, 4):
        raise InputError(f"{source}: an array {whole.shape}; expected (N, H, W, D) or (N, n, D)")
    names = _given_ids(source, ids, len(whole))
    step = max(1, _BLOCK // max(1, whole[:1].nbytes))
    del whole
    for start in range(0, len(names), step):
        for k, picture in enumerate(_mapped(source)[start : start + step], start=start):
            yield _cells(_Row(f"{source}, row {k + 1}", names[k]), np.array(picture))


def _mapped(path: Path) -> np.ndarray:
    _opened(path).close()
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except _READ_FAULTS as error:
        raise InputError(f"{path}: not a .npy array of numbers, or damaged ({error})") from error


def _cells(row: _Row, array: np.ndarray) -> Regions:
    """A grid's cells with their boxes; rows without a place have the whole picture as their box."""
    if array.ndim == 3:
        return _regions(row, array.reshape(-1, array.shape[2]), grid_boxes(*array.shape[:2]), None)
    if array.ndim == 2:
        return _regions(row, array, np.tile(grid_boxes(1, 1), (len(array), 1)), None)
    raise row.error(f"an array {array.shape}; expected (H, W, D) or (n, D)")


LAYOUTS: dict[str, Callable[[Path, Path | None], Iterator[Regions]]] = {
    "bottom-up": _read_bottom_up,
    "lxmert": _read_lxmert,
    "hdf5": _read_hdf5,
    "npz": _read_npz,
    "npy": _read_npy,
}
