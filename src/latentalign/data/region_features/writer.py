"""Writes features files as a stream."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np

from latentalign.data.region_features.format import HEADER_SIZE, Array, Regions, encode_header
from latentalign.errors import InputError
from latentalign.storage import explain_write_errors

DTYPES = ("float32", "float16")
MAX_REGIONS = 36
"""Regions per picture: as many as the fixed bottom-up-attention features have."""
TOLERANCE = 0.01
"""How far a box may extend beyond its picture, because detectors round. It is clipped."""


@dataclass(frozen=True)
class Summary:
    """The number of pictures and regions in a features file."""

    images: int
    regions: int
    size: int
    left_out: int
    """Regions that were dropped because a picture has more than `max_regions`."""


def write_features(
    path: Path,
    pictures: Iterable[Regions],
    *,
    layout: str,
    max_regions: int = MAX_REGIONS,
    dtype: str = "float32",
    overwrite: bool = False,
) -> Summary:
    """Write a stream of pictures to a features file. Only one picture is in memory at a time."""
    writer = FeatureWriter(path, layout=layout, max_regions=max_regions, dtype=dtype, overwrite=overwrite)
    with writer:
        for picture in pictures:
            writer.add(*picture)
    return writer.summary


class FeatureWriter:
    """Writes a features file picture by picture. The complete file appears when the context ends without an error."""

    def __init__(
        self,
        path: Path,
        *,
        layout: str,
        max_regions: int = MAX_REGIONS,
        dtype: str = "float32",
        overwrite: bool = False,
    ) -> None:
        if dtype not in DTYPES:
            raise InputError(f"features cannot be stored as {dtype!r}; choose one of {', '.join(DTYPES)}")
        if max_regions < 0:
            raise InputError(f"max_regions is {max_regions}; choose a positive number, or 0 for all regions")
        if path.is_dir() or (path.exists() and not overwrite):
            raise InputError(
                f"{path} already exists; choose another name, or add --overwrite to replace a file"
            )
        self.path, self.layout, self.max_regions, self.overwrite = path, layout, max_regions, overwrite
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self.left_out = 0
        self._positions: dict[int, int] = {}
        self._boxes: list[Array] = []
        self._offsets = [0]
        self._size: int | None = None
        self._temporary = path.with_name(f".{path.name}.tmp")
        self._file: IO[bytes] | None = None

    @property
    def summary(self) -> Summary:
        """The number of pictures and regions so far."""
        return Summary(len(self._positions), self._offsets[-1], self._size or 0, self.left_out)

    def __enter__(self) -> FeatureWriter:
        with explain_write_errors(self.path.parent, HEADER_SIZE):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self._temporary, "wb")
            self._file.write(bytes(HEADER_SIZE))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._file is not None
        try:
            with explain_write_errors(self.path.parent, 0), self._file:
                if kind is None:
                    self._finish(self._file)
            if kind is None:
                with explain_write_errors(self.path.parent, 0):
                    os.replace(self._temporary, self.path)
        finally:
            self._temporary.unlink(missing_ok=True)

    def add(self, image_id: int, features: Array, boxes: Array) -> None:
        """Add the regions of one picture. The first `max_regions` are kept."""
        if self._file is None:
            raise ValueError("use a FeatureWriter in a with statement")
        if not 0 <= image_id < 2**63:
            raise InputError(f"image {image_id}: an image id is an integer from 0 to 2^63 - 1")
        if image_id in self._positions:
            raise InputError(f"image {image_id} occurs twice; remove one of the two")
        given, kept = len(features), self.max_regions or len(features)
        if features.ndim != 2 or boxes.shape != (given, 4):
            raise InputError(
                f"image {image_id}: features {features.shape} with boxes {boxes.shape}; "
                "expected (n, D) with (n, 4)"
            )
        rows = _convert_features(image_id, features[:kept], self.dtype)
        corners = _clip_boxes(image_id, boxes[:kept])
        if self._size is not None and rows.shape[1] != self._size:
            raise InputError(
                f"image {image_id}: the features have size {rows.shape[1]}, but earlier ones have size {self._size}; "
                "a file contains the features of one extractor"
            )
        with explain_write_errors(self.path.parent, rows.nbytes + corners.nbytes):
            self._file.write(rows.data)
        self._size = rows.shape[1]
        self._positions[image_id] = len(self._positions)
        self._boxes.append(corners)
        self._offsets.append(self._offsets[-1] + len(rows))
        self.left_out += given - len(rows)

    def _finish(self, file: IO[bytes]) -> None:
        """Write the small tensors after the features, then the header before them."""
        if self._size is None:
            raise InputError(f"{self.path}: there are no pictures to write; check the source of the features")
        if self.path.exists() and not self.overwrite:
            raise InputError(f"{self.path} appeared during writing; choose another name, or add --overwrite")
        for array in self._boxes:
            file.write(array.data)
        file.write(np.array(self._offsets, dtype="<i8").data)
        file.write(np.array(list(self._positions), dtype="<i8").data)
        file.seek(0)
        file.write(self._header())
        file.flush()
        os.fsync(file.fileno())

    def _header(self) -> bytes:
        found = self.summary
        kind = "F32" if self.dtype.itemsize == 4 else "F16"
        tensors: dict[str, tuple[str, tuple[int, ...]]] = {
            "features": (kind, (found.regions, found.size)),
            "boxes": ("F32", (found.regions, 4)),
            "offsets": ("I64", (found.images + 1,)),
            "image_ids": ("I64", (found.images,)),
        }
        return encode_header(self.layout, found.size, tensors)


def _convert_features(image_id: int, features: Array, dtype: np.dtype[Any]) -> Array:
    """Features in the type of the file. They must be finite."""
    if not features.size:
        raise InputError(f"image {image_id} has no regions; remove it, or extract its features again")
    if not np.isfinite(features).all():
        raise InputError(f"image {image_id}: features are NaN or infinite; extract them again")
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(features, dtype=dtype)
    if not np.isfinite(rows).all():
        raise InputError(f"image {image_id}: features are too large for {dtype.name}; store them as float32")
    return rows


def _clip_boxes(image_id: int, boxes: Array) -> Array:
    """Boxes clipped to the picture. They may extend beyond it only a little."""
    within = (boxes >= -TOLERANCE) & (boxes <= 1 + TOLERANCE)  # False for NaN
    clipped = np.clip(boxes, 0, 1)
    ordered = (clipped[:, :2] <= clipped[:, 2:]).all(axis=1)
    wrong = ~(within.all(axis=1) & ordered)
    if wrong.any():
        region = int(wrong.argmax())
        raise InputError(
            f"image {image_id}: box {boxes[region].tolist()} of region {region + 1}; "
            "expected x1 <= x2 and y1 <= y2, all within [0, 1] of the picture"
        )
    return np.ascontiguousarray(clipped, dtype="<f4")
