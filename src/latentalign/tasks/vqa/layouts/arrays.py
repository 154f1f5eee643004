"""NumPy files: a folder of .npz archives or .npy arrays, or one array of all pictures."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from math import isqrt
from pathlib import Path

import numpy as np

from latentalign.data.region_features import Regions, grid_boxes
from latentalign.errors import InputError
from latentalign.progress import warn
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


def read_npy(source: Path, ids: Path | None = None, *, prefix_tokens: int | None = None) -> Iterator[Regions]:
    """The pictures of a folder of .npy arrays, or of one array."""
    if not source.is_dir():
        yield from _read_whole_array(source, ids, prefix_tokens)
        return
    _refuse_mmf(source)
    files = _list_files(source, ".npy")
    shapes = {_map_array(path).shape for _, path in files}
    rows = next(iter(shapes))[0] if len(shapes) == 1 and len(next(iter(shapes))) == 2 else None
    tokens = find_tokens(rows, prefix_tokens)
    _say_how(source, rows if len(shapes) == 1 else None, tokens, positions=all(len(s) != 2 for s in shapes))
    for image_id, path in files:
        yield _grid_regions(Row(str(path), image_id), np.array(_map_array(path)), tokens)


def _refuse_mmf(folder: Path) -> None:
    """Raise if a folder holds features of MMF, whose boxes are pickled."""
    boxes = next((path for path in folder.iterdir() if path.name.endswith("_info.npy")), None)
    if boxes is not None:
        raise InputError(
            f"{boxes}: features of MMF, whose boxes are pickled in _info.npy. Pickles can run any code and are never "
            "loaded. If you trust these files, convert them to .npz as docs/pictures.md shows"
        )


def _read_whole_array(source: Path, ids: Path | None, prefix_tokens: int | None) -> Iterator[Regions]:
    """The pictures along the first axis of one array. Only a block is mapped at a time."""
    whole = _map_array(source)
    if whole.ndim not in (3, 4):
        raise InputError(f"{source}: the array has shape {whole.shape}; expected (N, H, W, D) or (N, n, D)")
    names = read_required_ids(source, ids, len(whole))
    rows = whole.shape[1] if whole.ndim == 3 else None
    tokens = find_tokens(rows, prefix_tokens)
    _say_how(source, rows, tokens, positions=whole.ndim == 4)
    step = max(1, BLOCK // max(1, whole[:1].nbytes))
    del whole
    for start in range(0, len(names), step):
        for k, picture in enumerate(_map_array(source)[start : start + step], start=start):
            yield _grid_regions(Row(f"{source}, row {k + 1}", names[k]), np.array(picture), tokens)


def _map_array(path: Path) -> Array:
    """An array whose values stay on disk."""
    open_source(path).close()
    try:
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except READ_ERRORS as error:
        raise InputError(f"{path}: not a .npy array of numbers, or damaged ({error})") from error
    return array


def find_tokens(rows: int | None, prefix_tokens: int | None) -> int | None:
    """How many of the rows of each picture stand before the patches of a square grid; None if there is no grid.

    Without `prefix_tokens`, rows are a grid if their number is typical of vision transformers: a square and a class
    token, or a square above a hundred. A detector may well have 36 or 100 regions.
    """
    if prefix_tokens is not None or rows is None:
        return prefix_tokens
    for tokens, fewest in ((1, 49), (0, 121)):
        if rows - tokens >= fewest and isqrt(rows - tokens) ** 2 == rows - tokens:
            return tokens
    return None


def _say_how(source: Path, rows: int | None, tokens: int | None, *, positions: bool) -> None:
    """Say on stderr how rows without a position are understood."""
    if positions:
        return
    if tokens is None:
        message = "rows without a position: the box of every region is the whole picture"
        remedy = "if they are patches of a vision transformer, add --prefix-tokens N"
    else:
        cells = "" if rows is None else f"{isqrt(rows - tokens)} x {isqrt(rows - tokens)} "
        message = f"rows are {cells}patches after {tokens} class or register tokens, which are left out"
        remedy = "if not, add --prefix-tokens N with another number"
    warn(f"{source}: {message}; {remedy}")


def _grid_regions(row: Row, array: Array, tokens: int | None) -> Regions:
    """The cells of a grid with their boxes. The box of rows without a position is the whole picture."""
    if array.ndim == 3:
        return check_regions(row, array.reshape(-1, array.shape[2]), grid_boxes(*array.shape[:2]), None)
    if array.ndim != 2:
        raise row.error(f"the array has shape {array.shape}; expected (H, W, D) or (n, D)")
    if tokens is None:
        return check_regions(row, array, np.tile(grid_boxes(1, 1), (len(array), 1)), None)
    side = isqrt(max(0, len(array) - tokens))
    if side == 0 or side**2 != len(array) - tokens:
        raise row.error(f"{len(array)} rows without {tokens} prefix tokens are not a square grid of patches")
    return check_regions(row, array[tokens:], grid_boxes(side, side), None)
