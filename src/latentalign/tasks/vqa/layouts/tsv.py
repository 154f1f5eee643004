"""TSV files with one picture per row, plain or gzip, without a header."""

from __future__ import annotations

import base64
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from latentalign.data.region_features import Regions
from latentalign.errors import InputError
from latentalign.storage import explain_read_errors
from latentalign.tasks.vqa.layouts.pictures import Array, Row, check_regions, open_source, parse_image_id

COLUMNS = {
    "bottom-up": ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features"),
    "lxmert": (
        *("image_id", "image_h", "image_w", "objects_id", "objects_conf", "attrs_id", "attrs_conf"),
        *("num_boxes", "boxes", "features"),
    ),
}
LONGEST_ROW = 2**26
"""Bytes. A longer row does not contain features."""


def read_rows(source: Path) -> Iterator[bytes]:
    """Each line of a plain or gzip file, without its end."""
    with explain_read_errors(source), open_source(source) as plain:
        packed = plain.read(2) == b"\x1f\x8b"
        plain.seek(0)
        file = gzip.GzipFile(fileobj=plain) if packed else plain
        number = 0
        try:
            while line := file.readline(LONGEST_ROW):
                number += 1
                if len(line) == LONGEST_ROW:
                    raise InputError(f"{source}, row {number}: longer than {LONGEST_ROW} bytes")
                yield line.removesuffix(b"\n").removesuffix(b"\r")
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise InputError(f"{source}, row {number + 1}: damaged gzip ({error}); copy it again") from error


def _read_tsv(source: Path, columns: tuple[str, ...]) -> Iterator[Regions]:
    """The pictures of a TSV file with these columns."""
    size = None
    for number, line in enumerate(read_rows(source), start=1):
        picture = _parse_row(f"{source}, row {number}", line.split(b"\t"), columns)
        found = picture[1].shape[1]
        if size not in (None, found):
            row = Row(f"{source}, row {number}", picture[0])
            raise row.error(
                f"the features have size {found}, but earlier ones have size {size}; is the file cut short?"
            )
        size = found
        yield picture


def _parse_row(where: str, cells: list[bytes], columns: tuple[str, ...]) -> Regions:
    row = Row(where, cells[0][:40].decode("utf-8", "replace"))
    if len(cells) != len(columns):
        raise row.error(f"{len(cells)} columns, expected {len(columns)}: {', '.join(columns)}")
    named = dict(zip(columns, cells, strict=True))
    row = Row(where, parse_image_id(named["image_id"], where))
    width, height, count = (
        _parse_number(row, name, named[name]) for name in ("image_w", "image_h", "num_boxes")
    )
    boxes = _parse_floats(row, "boxes", named["boxes"])
    features = _parse_floats(row, "features", named["features"])
    if len(boxes) != 4 * count:
        raise row.error(f"boxes have {len(boxes)} numbers, expected 4 for each of num_boxes = {count}")
    if not len(features) or len(features) % count:
        raise row.error(f"features have {len(features)} numbers, not a multiple of num_boxes = {count}")
    return check_regions(
        row, features.reshape(count, -1), boxes.reshape(count, 4), (width, height), pixels=True
    )


def _parse_number(row: Row, name: str, cell: bytes) -> int:
    if not (cell.isdigit() and len(cell) < 10 and int(cell)):
        raise row.error(f"{name} is {cell[:40].decode('utf-8', 'replace')!r}, expected a positive number")
    return int(cell)


def _parse_floats(row: Row, name: str, cell: bytes) -> Array:
    """The float32 numbers of a base64 column."""
    try:
        return np.frombuffer(base64.b64decode(cell, validate=True), "<f4")
    except ValueError as error:
        raise row.error(f"{name} are not base64 of float32 numbers ({error}); copy the row again") from error


def read_bottom_up(source: Path, ids: Path | None = None) -> Iterator[Regions]:
    return _read_tsv(source, COLUMNS["bottom-up"])


def read_lxmert(source: Path, ids: Path | None = None) -> Iterator[Regions]:
    return _read_tsv(source, COLUMNS["lxmert"])
