"""Reads features files in place."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int64

from latentalign.data.region_features.format import KINDS, Array, damaged, read_header
from latentalign.errors import InputError
from latentalign.storage import explain_read_errors, open_input

RESIDENT_BYTES = 2**26
"""Bytes that are read before the pages of the mapped file are returned to the system."""


class Features:
    """A features file that is open for reading. Features stay on disk; the methods return copies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not os.path.isfile(path):
            raise InputError(f"{path}: no such features file; make one with `latentalign features`")
        with explain_read_errors(path), open_input(path) as file:
            total = os.fstat(file.fileno()).st_size
            self.layout, self._tensors = read_header(path, file, total)
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        rows, self.size = self._tensors["features"].shape
        self.offsets: Int64[np.ndarray, " pictures+1"] = self._rows("offsets", 0, None).copy()
        self.image_ids: Int64[np.ndarray, " pictures"] = self._rows("image_ids", 0, None).copy()
        self._order = np.argsort(self.image_ids, kind="stable")
        self._touched = 0
        if self.offsets[0] != 0 or self.offsets[-1] != rows or (np.diff(self.offsets) <= 0).any():
            raise damaged(path, f"the offsets do not increase from 0 to the {rows} regions")
        ordered = self.image_ids[self._order]
        if (np.diff(ordered) <= 0).any():
            raise damaged(path, f"image {ordered[:-1][np.diff(ordered) <= 0][0]} occurs twice")

    def __len__(self) -> int:
        return len(self.image_ids)

    def __enter__(self) -> Features:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Nothing can be read afterwards."""
        self._map.close()

    def index(self, image_id: int) -> int:
        """The position of a picture in the file."""
        at = int(np.searchsorted(self.image_ids, image_id, sorter=self._order))
        if at == len(self) or self.image_ids[self._order[at]] != image_id:
            raise InputError(
                f"{self.path}: no features of image {image_id}; extract them, or remove its questions"
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
        """Features padded with zeros, a mask of existing regions, and boxes of the pictures at some positions."""
        spans = [self._span(position) for position in positions]
        longest = max((end - start for start, end in spans), default=0)
        # NumPy requests huge pages. If memory is fragmented, the system needs half a second to find them.
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

    def _rows(self, name: str, start: int, end: int | None) -> Array:
        """Rows of a tensor, still in the mapped file. Copy them before `_release`."""
        tensor = self._tensors[name]
        end = tensor.shape[0] if end is None else end
        kind, width = KINDS[tensor.kind], math.prod(tensor.shape[1:])
        offset = tensor.start + start * width * kind.itemsize
        view = np.frombuffer(self._map, kind, count=(end - start) * width, offset=offset)
        return view.reshape(end - start, *tensor.shape[1:])

    def _release(self, regions: int) -> None:
        """Count the bytes that were read, and return their pages to the system before there are too many."""
        self._touched += regions * (self.size * KINDS[self._tensors["features"].kind].itemsize + 16)
        if self._touched > RESIDENT_BYTES:
            self._touched = 0
            if hasattr(mmap, "MADV_DONTNEED"):
                self._map.madvise(mmap.MADV_DONTNEED)
