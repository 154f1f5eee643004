"""The format of a features file: its tensors and its header.

A features file is a safetensors file with the tensors `features` (N, D), `boxes` (N, 4) as x1, y1, x2, y2 in [0, 1]
of the picture, `offsets` (images + 1,) and `image_ids` (images,). Picture k has the rows offsets[k] to offsets[k + 1].
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from jaxtyping import Float32

from latentalign.errors import InputError

FORMAT, VERSION = "latentalign-features", "1"
HEADER_SIZE = 1024
"""Bytes before the first tensor. The header is known only after the last picture, so its space is reserved."""
KINDS: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "I64": np.dtype("<i8")}

Array = np.ndarray[Any, np.dtype[Any]]
Regions = tuple[int, Array, Array]
"""Image id, features (n, D) and boxes (n, 4) of one picture."""

_EXPECTED = {"features": ("F32", "F16"), "boxes": ("F32",), "offsets": ("I64",), "image_ids": ("I64",)}
_LAST_DIGITS = re.compile(r"([0-9]+)[^0-9]*(?:\.[A-Za-z][A-Za-z0-9]*)?$")  # a file suffix may contain digits


def image_id_of(name: str) -> int:
    """The last digits of a name: 123456 for COCO_val2014_000000123456.jpg, 12 for image12.jpg."""
    found = _LAST_DIGITS.search(name)
    digits = found[1].lstrip("0") or "0" if found else ""
    if not 0 < len(digits) <= 18:
        raise InputError(f"{name[:80]!r} does not contain an image id; expected a name such as image12")
    return int(digits)


def grid_boxes(rows: int, columns: int) -> Float32[np.ndarray, "cells 4"]:
    """The boxes of the cells of a grid, row by row."""
    top, left = (index.ravel() for index in np.indices((rows, columns)))
    cells = np.stack([left / columns, top / rows, (left + 1) / columns, (top + 1) / rows], axis=1)
    return cells.astype(np.float32)


@dataclass(frozen=True)
class TensorEntry:
    """Type, shape and position of a tensor in a file."""

    kind: str
    shape: tuple[int, ...]
    start: int
    end: int


def encode_header(layout: str, size: int, tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> bytes:
    """Eight bytes of length and a JSON object, padded with spaces to the reserved size.

    `tensors` maps each name to its type and shape, in the order of the file.
    """
    metadata = {"format": FORMAT, "version": VERSION, "layout": layout, "size": str(size)}
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, (kind, shape) in tensors.items():
        start, end = end, end + math.prod(shape) * KINDS[kind].itemsize
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode().ljust(HEADER_SIZE - 8)
    if len(text) != HEADER_SIZE - 8:
        raise InputError(f"the name of the layout is too long: {layout[:40]!r}...")
    return len(text).to_bytes(8, "little") + text


def read_header(path: Path, file: IO[bytes], total: int) -> tuple[str, dict[str, TensorEntry]]:
    """The layout that a features file was made from, and its tensors. Every number is checked."""
    length = int.from_bytes(file.read(8), "little")
    if total < 8 or length > total - 8:
        raise damaged(path, f"not a features file, or cut short ({total} bytes)")
    try:
        header: Any = json.loads(file.read(length)) if length < 2**20 else None
        metadata = header.pop("__metadata__")
        _check_version(path, metadata["format"], metadata["version"])
        tensors = {name: _parse_entry(entry, 8 + length) for name, entry in header.items()}
        layout, size = str(metadata["layout"]), int(metadata["size"])
    except InputError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise damaged(path, "not a features file: the header cannot be parsed") from error
    _check_shapes(path, tensors, size)
    _check_positions(path, tensors, start=8 + length, total=total)
    return layout, tensors


def damaged(path: Path, problem: str) -> InputError:
    """The error for a file that is not a complete features file."""
    return InputError(f"{path}: {problem}; make it again with `latentalign features`")


def _check_version(path: Path, name: Any, version: Any) -> None:
    if (name, version) != (FORMAT, VERSION):
        raise damaged(path, f"format {name!r}, version {version!r}, expected {FORMAT!r}, {VERSION!r}")


def _parse_entry(entry: Any, base: int) -> TensorEntry:
    """One entry of a safetensors header; a ValueError if it is not valid."""
    shape, (start, end) = entry["shape"], entry["data_offsets"]
    if not all(type(number) is int and number >= 0 for number in (*shape, start, end)):
        raise ValueError("expected natural numbers")
    if end - start != math.prod(shape) * KINDS[entry["dtype"]].itemsize:
        raise ValueError("the shape of the tensor does not fit its size in bytes")
    return TensorEntry(entry["dtype"], tuple(shape), base + start, base + end)


def _check_shapes(path: Path, tensors: dict[str, TensorEntry], size: int) -> None:
    """Raise unless the types and shapes of all tensors are those of a features file."""
    for name, kinds in _EXPECTED.items():
        if name not in tensors or tensors[name].kind not in kinds:
            raise damaged(path, f"not a features file: there is no {name!r} of type {' or '.join(kinds)}")
    shapes = {name: tensors[name].shape for name in _EXPECTED}
    regions, images = shapes["features"][:1], shapes["image_ids"]
    expected = {
        "features": (*regions, size),
        "boxes": (*regions, 4),
        "offsets": (sum(images) + 1,),
        "image_ids": images,
    }
    if shapes != expected or len(images) != 1 or not (images[0] and size):
        raise damaged(path, f"the shapes of the tensors do not fit each other: {shapes}")


def _check_positions(path: Path, tensors: dict[str, TensorEntry], *, start: int, total: int) -> None:
    """Raise unless the tensors fill the file without gaps."""
    end = start
    for tensor in sorted(tensors.values(), key=lambda tensor: tensor.start):
        if tensor.start != end:
            raise damaged(path, "there are gaps between the tensors")
        end = tensor.end
    if end != total:
        problem = "is cut short" if total < end else "continues after its end"
        raise damaged(path, f"the file has {total} bytes, but its header says {end}: it {problem}")
