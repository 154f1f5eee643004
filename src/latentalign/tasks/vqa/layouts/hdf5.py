"""HDF5 files with image_features and image_bb."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from latentalign.data.region_features import Regions
from latentalign.errors import InputError
from latentalign.extras import require_package
from latentalign.tasks.vqa.layouts.pictures import (
    Array,
    Row,
    check_regions,
    open_source,
    parse_image_id,
    read_required_ids,
)


def read_hdf5(source: Path, ids: Path | None = None) -> Iterator[Regions]:
    """The pictures of an HDF5 file. Only one is in memory at a time.

    Boxes in pixels are divided by image_w and image_h. If these are absent, the first four columns of
    spatial_features are the boxes in [0, 1]; common converters write them beside image_bb.
    """
    require_package("h5py", f"{source} is an HDF5 file")
    import h5py

    open_source(source).close()
    try:
        file = h5py.File(source, "r")
    except OSError as error:
        raise InputError(f"{source}: not an HDF5 file, or damaged ({error})") from error
    with file:
        data = {name: value for name, value in file.items() if isinstance(value, h5py.Dataset)}
        count = _check_datasets(source, data)
        for k, image_id in enumerate(_image_ids(source, data, ids, count=count)):
            row = Row(f"{source}, row {k + 1}", image_id)
            try:
                features, boxes, extent = _read_row(row, data, k)
            except OSError as error:
                raise row.error(f"cannot be read ({error}); copy the file again") from error
            yield check_regions(row, features, boxes, extent)


def _check_datasets(source: Path, data: Mapping[str, Any]) -> int:
    """The number of pictures; an InputError if the datasets do not have a known layout."""
    missing = {"image_features", "image_bb"} - data.keys()
    if missing:
        raise InputError(
            f"{source}: no dataset {', '.join(sorted(missing))}; found {', '.join(sorted(data))}"
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


def _image_ids(source: Path, data: Mapping[str, Any], ids: Path | None, *, count: int) -> list[int]:
    """Image ids from the file itself, or else from the file `ids`."""
    name = next((name for name in ("image_ids", "ids") if name in data), None)
    if name is None:
        return read_required_ids(source, ids, count)
    if ids is not None:
        raise InputError(f"--ids: {source} contains the image ids in {name!r}; remove --ids")
    found = data[name][()].reshape(-1)
    if len(found) != count:
        raise InputError(f"{source}: {len(found)} {name} for {count} pictures")
    return [parse_image_id(item, f"{source}, {name}, row {k}") for k, item in enumerate(found, start=1)]


def _read_row(row: Row, data: Mapping[str, Any], k: int) -> tuple[Array, Array, tuple[float, float] | None]:
    """Features, boxes, and width and height (if known) of picture k."""
    where: Any = k
    if data["image_features"].ndim == 2:
        total, (start, end) = len(data["image_features"]), map(int, data["pos_boxes"][k])
        if not 0 <= start <= end <= total:
            raise row.error(f"pos_boxes {start}, {end} are outside the {total} rows")
        where = slice(start, end)
    sized = "image_w" in data and "image_h" in data
    extent = (float(data["image_w"][k]), float(data["image_h"][k])) if sized else None
    if extent is None and "spatial_features" in data:
        return data["image_features"][where], data["spatial_features"][where][:, :4], None
    return data["image_features"][where], data["image_bb"][where], extent
