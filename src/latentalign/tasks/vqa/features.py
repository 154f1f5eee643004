"""The features file: the regions of many pictures in one safetensors file, written as a stream and read in place.

Tensors `features` (N, D), `boxes` (N, 4) as x1, y1, x2, y2 in [0, 1] of the picture, `offsets` (images + 1,)
and `image_ids` (images,): picture k owns the rows offsets[k] to offsets[k + 1].
"""

from __future__ import annotations

import json
import math
import mmap
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int64

from latentalign.errors import InputError, StorageError
from latentalign.storage import explain_write_errors

FORMAT, VERSION = "latentalign-features", "1"
DTYPES = ("float32", "float16")
MAX_REGIONS = 36  # as many as the fixed bottom-up-attention features have
TOLERANCE = 0.01  # how far a box may reach beyond its picture, as detectors round; it is clipped

_RESERVED = 1024  # bytes before the first tensor: the header is known only after the last picture
_RESIDENT = 2**26  # bytes touched before the pages of the mapping are given back
_KINDS: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "I64": np.dtype("<i8")}
_EXPECTED = {"features": ("F32", "F16"), "boxes": ("F32",), "offsets": ("I64",), "image_ids": ("I64",)}
_LAST_DIGITS = re.compile(r"([0-9]+)[^0-9]*(?:\.[A-Za-z][A-Za-z0-9]*)?$")  # the end of a name may hold digits

Regions = tuple[int, np.ndarray, np.ndarray]  # image id, features (n, D), boxes (n, 4)


def image_id_of(name: str) -> int:
    """The last run of digits of a name: 123456 for COCO_val2014_000000123456.jpg, 12 for image12.jpg."""
    found = _LAST_DIGITS.search(name)
    digits = found[1].lstrip("0") or "0" if found else ""
    if not 0 < len(digits) <= 18:
        raise InputError(f"{name[:80]!r} does not hold an image id: expected a name such as image12")
    return int(digits)


def grid_boxes(rows: int, columns: int) -> Float32[np.ndarray, "cells 4"]:
    """The boxes of a grid's cells, row by row."""
    top, left = (index.ravel() for index in np.indices((rows, columns)))
    cells = np.stack([left / columns, top / rows, (left + 1) / columns, (top + 1) / rows], axis=1)
    return cells.astype(np.float32)


@dataclass(frozen=True)
class Summary:
    """What was written into a features file."""

    images: int
    regions: int
    size: int
    left_out: int  # regions beyond the largest number that a picture may have


def write_features(
    path: Path,
    pictures: Iterable[Regions],
    *,
    layout: str,
    max_regions: int = MAX_REGIONS,
    dtype: str = "float32",
    overwrite: bool = False,
) -> Summary:
    """A features file of a stream of pictures, one of which is in memory at a time."""
    with FeatureWriter(
        path, layout=layout, max_regions=max_regions, dtype=dtype, overwrite=overwrite
    ) as writer:
        for picture in pictures:
            writer.add(*picture)
    return writer.summary


class FeatureWriter:
    """Writes a features file picture by picture; the file appears, complete, when the context ends well."""

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
            raise InputError(f"at most {max_regions} regions a picture: give a positive number, or 0 for all")
        if path.is_dir() or (path.exists() and not overwrite):
            raise InputError(f"{path}: exists; give another name, or --overwrite to replace a file")
        self.path, self.layout, self.max_regions, self.overwrite = path, layout, max_regions, overwrite
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self.left_out = 0
        self._positions: dict[int, int] = {}
        self._boxes: list[np.ndarray] = []
        self._offsets = [0]
        self._size: int | None = None
        self._temporary = path.with_name(f".{path.name}.tmp")
        self._file: IO[bytes] | None = None

    @property
    def summary(self) -> Summary:
        """What has been written so far."""
        return Summary(len(self._positions), self._offsets[-1], self._size or 0, self.left_out)

    def __enter__(self) -> FeatureWriter:
        with explain_write_errors(self.path.parent, _RESERVED):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self._temporary, "wb")
            self._file.write(bytes(_RESERVED))
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

    def add(self, image_id: int, features: np.ndarray, boxes: np.ndarray) -> None:
        """The regions of one picture, of which the first `max_regions` are kept."""
        if self._file is None:
            raise ValueError("a FeatureWriter is used in a with statement")
        if not 0 <= image_id < 2**63:
            raise InputError(f"image {image_id}: an image id is a whole number from 0 to 2^63 - 1")
        if image_id in self._positions:
            raise InputError(f"image {image_id} occurs twice; remove one of the two")
        given, kept = len(features), self.max_regions or len(features)
        if features.ndim != 2 or boxes.shape != (given, 4):
            raise InputError(
                f"image {image_id}: features {features.shape} with boxes {boxes.shape}; "
                "expected (n, D) with (n, 4)"
            )
        rows = _checked_features(image_id, features[:kept], self.dtype)
        corners = _checked_boxes(image_id, boxes[:kept])
        if self._size is not None and rows.shape[1] != self._size:
            raise InputError(
                f"image {image_id}: features of size {rows.shape[1]}, but those before are of size {self._size}; "
                "one file holds the features of one extractor"
            )
        with explain_write_errors(self.path.parent, rows.nbytes + corners.nbytes):
            self._file.write(rows.data)
        self._size = rows.shape[1]
        self._positions[image_id] = len(self._positions)
        self._boxes.append(corners)
        self._offsets.append(self._offsets[-1] + len(rows))
        self.left_out += given - len(rows)

    def _finish(self, file: IO[bytes]) -> None:
        """The small tensors after the features, then the header in front of them."""
        if self._size is None:
            raise InputError(f"{self.path}: there is no picture to write; check the source of the features")
        if self.path.exists() and not self.overwrite:
            raise InputError(f"{self.path}: appeared meanwhile; give another name, or --overwrite")
        for array in self._boxes:
            file.write(array.data)
        file.write(np.array(self._offsets, dtype="<i8").data)
        file.write(np.array(list(self._positions), dtype="<i8").data)
        file.seek(0)
        file.write(self._header())
        file.flush()
        os.fsync(file.fileno())

    def _header(self) -> bytes:
        """Eight bytes of length and a JSON object, filled up with spaces to the reserved space."""
        found = self.summary
        header: dict[str, Any] = {
            "__metadata__": {
                "format": FORMAT,
                "version": VERSION,
                "layout": self.layout,
                "size": str(found.size),
            }
        }
        end = 0
        for name, kind, shape in (
            ("features", "F32" if self.dtype.itemsize == 4 else "F16", (found.regions, found.size)),
            ("boxes", "F32", (found.regions, 4)),
            ("offsets", "I64", (found.images + 1,)),
            ("image_ids", "I64", (found.images,)),
        ):
            start, end = end, end + math.prod(shape) * _KINDS[kind].itemsize
            header[name] = {"dtype": kind, "shape": shape, "data_offsets": [start, end]}
        text = json.dumps(header).encode().ljust(_RESERVED - 8)
        if len(text) != _RESERVED - 8:
            raise InputError(f"the name of the layout is too long: {self.layout[:40]!r}...")
        return len(text).to_bytes(8, "little") + text


def _checked_features(image_id: int, features: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Features in the file's own type, none of them missing or infinite."""
    if not features.size:
        raise InputError(f"image {image_id}: has no region; leave it out, or extract its features again")
    if not np.isfinite(features).all():
        raise InputError(f"image {image_id}: features that are NaN or infinite; extract them again")
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(features, dtype=dtype)
    if not np.isfinite(rows).all():
        raise InputError(f"image {image_id}: features too large for {dtype.name}; store them as float32")
    return rows


def _checked_boxes(image_id: int, boxes: np.ndarray) -> np.ndarray:
    """Boxes within the picture; what reaches a little beyond is clipped."""
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


@dataclass(frozen=True)
class _Tensor:
    """Where a tensor lies in the file."""

    kind: str
    shape: tuple[int, ...]
    start: int
    end: int


class Features:
    """A features file opened for reading; its features stay on disk, whatever is read is a copy."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with open(path, "rb") as file:
                total = os.fstat(file.fileno()).st_size
                self.layout, self._tensors = _read_header(path, file, total)
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise InputError(
                f"{path}: no such features file; make one with `latentalign features`"
            ) from error
        except OSError as error:
            raise StorageError(f"{path}: cannot be read: {error.strerror or error}") from error
        rows, self.size = self._tensors["features"].shape
        self.offsets: Int64[np.ndarray, " pictures+1"] = self._rows("offsets", 0, None).copy()
        self.image_ids: Int64[np.ndarray, " pictures"] = self._rows("image_ids", 0, None).copy()
        self._order = np.argsort(self.image_ids, kind="stable")
        self._touched = 0
        if self.offsets[0] != 0 or self.offsets[-1] != rows or (np.diff(self.offsets) <= 0).any():
            raise _damaged(path, f"its offsets do not rise from 0 to its {rows} regions")
        ordered = self.image_ids[self._order]
        if (np.diff(ordered) <= 0).any():
            raise _damaged(path, f"image {ordered[:-1][np.diff(ordered) <= 0][0]} occurs twice in it")

    def __len__(self) -> int:
        return len(self.image_ids)

    def __enter__(self) -> Features:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the mapping back; nothing can be read afterwards."""
        self._map.close()

    def index(self, image_id: int) -> int:
        """The position of a picture in the file."""
        at = int(np.searchsorted(self.image_ids, image_id, sorter=self._order))
        if at == len(self) or self.image_ids[self._order[at]] != image_id:
            raise InputError(
                f"{self.path}: no features of image {image_id}; extract them, or leave its questions out"
            )
        return int(self._order[at])

    def regions(self, position: int) -> tuple[Float32[np.ndarray, "n D"], Float32[np.ndarray, "n 4"]]:
        """Features and boxes of the picture at a position."""
        start, end = self._span(position)
        features = self._rows("features", start, end).astype(np.float32)
        boxes = self._rows("boxes", start, end).astype(np.float32)
        self._release(end - start)
        return features, boxes

    def batch(
        self, positions: Sequence[int]
    ) -> tuple[Float32[np.ndarray, "B T D"], Bool[np.ndarray, "B T"], Float32[np.ndarray, "B T 4"]]:
        """Features padded with zeros, where regions exist, and boxes of the pictures at some positions."""
        spans = [self._span(position) for position in positions]
        longest = max((end - start for start, end in spans), default=0)
        # NumPy asks for huge pages, and where memory is in pieces the system takes half a second to find them.
        features = torch.empty(len(spans), longest, self.size).numpy()
        mask = np.zeros((len(spans), longest), bool)
        boxes = np.zeros((len(spans), longest, 4), np.float32)
        for b, (start, end) in enumerate(spans):
            count = end - start
            features[b, :count] = self._rows("features", start, end)
            features[b, count:] = 0
            mask[b, :count] = True
            boxes[b, :count] = self._rows("boxes", start, end)
            self._release(count)
        return features, mask, boxes

    def _span(self, position: int) -> tuple[int, int]:
        if not 0 <= position < len(self):
            raise IndexError(f"{self.path}: position {position} of {len(self)} pictures")
        return int(self.offsets[position]), int(self.offsets[position + 1])

    def _rows(self, name: str, start: int, end: int | None) -> np.ndarray:
        """Some rows of a tensor, still in the mapping: to be copied before anything is released."""
        tensor = self._tensors[name]
        end = tensor.shape[0] if end is None else end
        kind, width = _KINDS[tensor.kind], math.prod(tensor.shape[1:])
        offset = tensor.start + start * width * kind.itemsize
        view = np.frombuffer(self._map, kind, count=(end - start) * width, offset=offset)
        return view.reshape(end - start, *tensor.shape[1:])

    def _release(self, regions: int) -> None:
        """Count what was touched, and let the system take the pages back before they become many."""
        self._touched += regions * (self.size * _KINDS[self._tensors["features"].kind].itemsize + 16)
        if self._touched > _RESIDENT:
            self._touched = 0
            if hasattr(mmap, "MADV_DONTNEED"):
                self._map.madvise(mmap.MADV_DONTNEED)


def _damaged(path: Path, what: str) -> InputError:
    return InputError(f"{path}: {what}; make it again with `latentalign features`")


def _read_header(path: Path, file: IO[bytes], total: int) -> tuple[str, dict[str, _Tensor]]:
    """The layout that a features file was made from, and its tensors; every number is checked."""
    length = int.from_bytes(file.read(8), "little")
    if total < 8 or length > total - 8:
        raise _damaged(path, f"not a features file, or one cut short ({total} bytes)")
    try:
        header: Any = json.loads(file.read(length)) if length < 2**20 else None
        facts = header.pop("__metadata__")
        if (facts["format"], facts["version"]) != (FORMAT, VERSION):
            raise _damaged(
                path,
                f"format {facts['format']!r}, version {facts['version']!r}, expected {FORMAT!r}, {VERSION!r}",
            )
        tensors = {name: _tensor(entry, 8 + length) for name, entry in header.items()}
        layout, size = str(facts["layout"]), int(facts["size"])
    except InputError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(path, "not a features file: its header cannot be understood") from error
    _check_tensors(path, tensors, size)
    end = 8 + length
    for tensor in sorted(tensors.values(), key=lambda tensor: tensor.start):
        if tensor.start != end:
            raise _damaged(path, "its tensors do not follow each other without gaps")
        end = tensor.end
    if end != total:
        fault = "is cut short" if total < end else "goes on after its end"
        raise _damaged(path, f"the file has {total} bytes where its header says {end}: it {fault}")
    return layout, tensors


def _tensor(entry: Any, base: int) -> _Tensor:
    """One entry of the header, as the safetensors format describes it; a ValueError where it is none."""
    shape, (start, end) = entry["shape"], entry["data_offsets"]
    if not all(type(number) is int and number >= 0 for number in (*shape, start, end)):
        raise ValueError("expected natural numbers")
    if end - start != math.prod(shape) * _KINDS[entry["dtype"]].itemsize:
        raise ValueError("the tensor's shape does not fill its place")
    return _Tensor(entry["dtype"], tuple(shape), base + start, base + end)


def _check_tensors(path: Path, tensors: dict[str, _Tensor], size: int) -> None:
    """Refuse a header whose tensors are not those of a features file."""
    for name, kinds in _EXPECTED.items():
        if name not in tensors or tensors[name].kind not in kinds:
            raise _damaged(path, f"not a features file: it has no {name!r} of type {' or '.join(kinds)}")
    shapes = {name: tensors[name].shape for name in _EXPECTED}
    regions, images = shapes["features"][:1], shapes["image_ids"]
    expected = {
        "features": (*regions, size),
        "boxes": (*regions, 4),
        "offsets": (sum(images) + 1,),
        "image_ids": images,
    }
    if shapes != expected or len(images) != 1 or not (images[0] and size):
        raise _damaged(path, f"the shapes of its tensors do not fit each other: {shapes}")
