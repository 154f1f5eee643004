"""Code that all layouts share: image ids, and checks of the regions of one picture."""

from __future__ import annotations

import json
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np

from latentalign.data.region_features import Regions, image_id_of
from latentalign.errors import InputError
from latentalign.storage import open_input
from latentalign.textfiles import read_lines

Array = np.ndarray[Any, np.dtype[Any]]
LARGEST_FRACTION = 2
"""If all boxes of a picture are below this, they are fractions of the picture, not pixels."""
PICKLE_START, PICKLE_ENDS = b"\x80", (".pkl", ".pickle")
"""How a pickle of protocol 2 and later begins; no UTF-8 text begins so."""


@dataclass(frozen=True)
class Row:
    """One picture of a source, as messages name it."""

    where: str
    image: int | str

    def error(self, problem: str) -> InputError:
        return InputError(f"{self.where} (image {self.image}): {problem}")


def read_ids(path: Path) -> list[int]:
    """Image ids, or names that end in them, from a JSON list or from a file with one per line."""
    with open_input(path, "a file of image ids") as file:
        pickled = file.read(1) == PICKLE_START or path.suffix in PICKLE_ENDS
    if pickled:
        raise InputError(
            f"{path}: a pickle, which can run any code and is never loaded; write the ids as a JSON list, or one a line"
        )
    lines = list(read_lines(path))
    if not lines or not lines[0].lstrip().startswith("["):
        return [parse_image_id(line, f"{path}, line {n}") for n, line in enumerate(lines, start=1)]
    try:
        items = json.loads("\n".join(lines))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error}); expected a list of image ids") from error
    return [parse_image_id(item, f"{path}, item {n}") for n, item in enumerate(items, start=1)]


def parse_image_id(item: Any, where: str) -> int:
    """An image id, from a number or a name."""
    if isinstance(item, bytes):
        item = item.decode("utf-8", "replace")
    if isinstance(item, np.integer | int) and not isinstance(item, bool) and 0 <= item < 2**63:
        return int(item)
    try:
        return image_id_of(item if isinstance(item, str) else "")
    except InputError:
        raise InputError(
            f"{where}: {str(item)[:80]!r} is not an image id; expected 123 or a name such as image12"
        ) from None


def read_required_ids(source: Path, ids: Path | None, count: int) -> list[int]:
    """Image ids from a file that the user must name, because the source has none."""
    if ids is None:
        raise InputError(f"{source}: does not contain image ids; add --ids FILE with one id per picture")
    found = read_ids(ids)
    if len(found) != count:
        raise InputError(f"{ids}: {len(found)} ids for the {count} pictures of {source}")
    return found


def check_regions(
    row: Row,
    features: Array,
    boxes: Array,
    extent: tuple[float, float] | None,
    *,
    pixels: bool = False,
) -> Regions:
    """The regions of one picture, with boxes as fractions. `extent` is its width and height, if known."""
    if features.dtype.kind not in "fiu" or boxes.dtype.kind not in "fiu":
        raise row.error(f"features of type {features.dtype} and boxes of type {boxes.dtype} are not numbers")
    if features.ndim != 2 or boxes.shape != (len(features), 4):
        raise row.error(f"features {features.shape} with boxes {boxes.shape}; expected (n, D) with (n, 4)")
    if not features.size:
        raise row.error("there are no regions; remove the picture, or extract its features again")
    if not (np.isfinite(features).all() and np.isfinite(boxes).all()):
        raise row.error("features or boxes are NaN or infinite; extract them again")
    if pixels or boxes.max() > LARGEST_FRACTION:
        if extent is None or not (0 < extent[0] < np.inf and 0 < extent[1] < np.inf):
            raise row.error(f"boxes are in pixels, so image_w and image_h are needed, not {extent}")
        boxes = boxes / np.array([*extent, *extent])
    assert isinstance(row.image, int)
    return row.image, features.astype(np.float32, copy=False), boxes.astype(np.float32, copy=False)


def open_source(source: Path) -> BufferedReader:
    """Open a file of region features, to read bytes."""
    return open_input(source, "a file of region features")
