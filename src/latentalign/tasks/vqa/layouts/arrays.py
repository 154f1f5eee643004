"""NumPy files: a folder of .npz archives or .npy arrays, or one array of all pictures."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from latentalign.data.region_features import Regions, grid_boxes
from latentalign.errors import InputError
from latentalign.tasks.vqa.layouts.pictures import (
    Array,
    Row,
    check_regions,
    open_source,
    parse_image_id,
    read_required_ids,
)

BLOCK = 2**26
"""Bytes of an array that are mapped at a time."""
READ_ERRORS = (ValueError, EOFError, KeyError, NotImplementedError, zipfile.BadZipFile, zlib.error)
"""Errors that NumPy raises for damaged files."""


def _list_files(folder: Path, end: str) -> list[tuple[int, Path]]:
    """The files of a folder with the ids in their names, sorted by id."""
    files = [path for path in folder.iterdir() if path.suffix == end] if folder.is_dir() else []
    if not files:
        raise InputError(f"{folder}: expected a folder of {end} files")
    return sorted((parse_image_id(path.name, str(path)), path) for path in files)


def read_npz(source: Path, ids: Path | None = None) -> Iterator[Regions]:
    """The pictures of a folder of .npz archives."""
    for image_id, path in _list_files(source, ".npz"):
        row = Row(str(path), image_id)
        try:
            with open_source(path) as file, np.load(file, allow_pickle=False) as archive:
                found = _parse_archive(row, archive)
        except InputError:
            raise
        except (*READ_ERRORS, TypeError, AttributeError) as error:
            raise row.error(f"not an archive of plain arrays, or damaged ({error})") from error
        yield found


def _parse_archive(row: Row, archive: Mapping[str, Array]) -> Regions:
    """The regions in one archive. Features may also be (D, n), because some extractors store them so."""

    def first(*names: str) -> Array:
        for name in names:
            if name in archive:
                return archive[name]
        raise row.error(f"no array {' or '.join(names)}; found {', '.join(archive)}")

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
    return check_regions(row, features, boxes, extent)


def read_npy(source: Path, ids: Path | None = None) -> Iterator[Regions]:
    """The pictures of a folder of .npy arrays, or of one array."""
    if not source.is_dir():
        yield from _read_whole_array(source, ids)
        return
    for image_id, path in _list_files(source, ".npy"):
        yield _grid_regions(Row(str(path), image_id), np.array(_map_array(path)))


def _read_whole_array(source: Path, ids: Path | None) -> Iterator[Regions]:
    """The pictures along the first axis of one array. Only a block is mapped at a time."""
    whole = _map_array(source)
    if whole.ndim not in (3, 4):
        raise InputError(f"{source}: the array has shape {whole.shape}; expected (N, H, W, D) or (N, n, D)")
    names = read_required_ids(source, ids, len(whole))
    step = max(1, BLOCK // max(1, whole[:1].nbytes))
    del whole
    for start in range(0, len(names), step):
        for k, picture in enumerate(_map_array(source)[start : start + step], start=start):
            yield _grid_regions(Row(f"{source}, row {k + 1}", names[k]), np.array(picture))


def _map_array(path: Path) -> Array:
    """An array whose values stay on disk."""
    open_source(path).close()
    try:
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except READ_ERRORS as error:
        raise InputError(f"{path}: not a .npy array of numbers, or damaged ({error})") from error
    return array


def _grid_regions(row: Row, array: Array) -> Regions:
    """The cells of a grid with their boxes. The box of rows without a position is the whole picture."""
    if array.ndim == 3:
        return check_regions(row, array.reshape(-1, array.shape[2]), grid_boxes(*array.shape[:2]), None)
    if array.ndim == 2:
        return check_regions(row, array, np.tile(grid_boxes(1, 1), (len(array), 1)), None)
    raise row.error(f"the array has shape {array.shape}; expected (H, W, D) or (n, D)")
