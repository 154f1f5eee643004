"""Image regions like those of a detector, and their features, which depend only on pixels and boxes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from random import Random

import numpy as np
from jaxtyping import Float, Float32, UInt8
from PIL import Image

from latentalign.data.scenes_world.things import HEIGHT, WIDTH, Box
from latentalign.errors import InputError

REGIONS = range(12, 17)
"""How many regions a picture may have."""
JITTER = 2.0
"""Pixels by which a proposed box may differ from the box of a thing, on each side."""
PATCH, HUES, GREYS = 24, 12, 6
SCALING = {
    "thumbnail": (0.66, 4.0),
    "means": (0.65, 5.0),
    "deviations": (0.17, 12.0),
    "histogram": (0.15, 6.0),
    "edges": (0.065, 16.0),
    "box": (0.5, 3.5),
    "extent": (0.2, 11.0),
}
"""For each group of features: the number that is subtracted, then the factor."""


def propose(boxes: Sequence[Box], rng: Random) -> Float32[np.ndarray, "n 4"]:
    """Boxes near those of the things, and other random boxes, shuffled."""
    total = rng.choice(range(max(REGIONS.start, len(boxes) + 2), REGIONS.stop))
    proposals = [_near(box, rng) for box in boxes]
    proposals += [_anywhere(rng) for _ in range(total - len(boxes))]
    rng.shuffle(proposals)
    return np.array(proposals, dtype=np.float32)


def _near(box: Box, rng: Random) -> list[float]:
    """A box near another one."""
    sides = [side + rng.uniform(-JITTER, JITTER) / (HEIGHT if k % 2 else WIDTH) for k, side in enumerate(box)]
    return [min(1.0, max(0.0, side)) for side in sides]


def _anywhere(rng: Random) -> list[float]:
    """A random box."""
    width, height = rng.uniform(16, 60) / WIDTH, rng.uniform(16, 60) / HEIGHT
    left, top = rng.uniform(0, 1 - width), rng.uniform(0, 1 - height)
    return [left, top, left + width, top + height]


def region_features(
    pixels: UInt8[np.ndarray, "H W 3"], boxes: Float[np.ndarray, "n 4"]
) -> Float32[np.ndarray, "n D"]:
    """Features of the appearance and position of each region, with about zero mean and unit scale.

    They are a thumbnail, means and deviations of the colors, a histogram of hues and greys, edges by direction
    and position, and the box. A box is x1, y1, x2, y2 in [0, 1] of the picture.
    """
    wrong = ~((boxes >= 0) & (boxes <= 1)).all(axis=1) | (boxes[:, :2] > boxes[:, 2:]).any(axis=1)
    if wrong.any():
        row = int(wrong.argmax())
        raise InputError(f"box {row} is {boxes[row].tolist()}: expected x1 <= x2 and y1 <= y2, all in [0, 1]")
    patches = _patches(pixels, boxes)
    inner = patches[:, :, PATCH // 4 : -PATCH // 4, PATCH // 4 : -PATCH // 4]
    low, high = boxes[:, :2], boxes[:, 2:]
    groups = {
        "thumbnail": _pool(patches, 8),
        "means": np.concatenate([part.mean(axis=(2, 3)) for part in (patches, inner)], axis=1),
        "deviations": np.concatenate([part.std(axis=(2, 3)) for part in (patches, inner)], axis=1),
        "histogram": _histogram(patches),
        "edges": _pool(_edges(patches), 3),
        "box": np.concatenate([boxes, (low + high) / 2], axis=1),
        "extent": high - low,
    }
    scaled = [(groups[name] - mean) * scale for name, (mean, scale) in SCALING.items()]
    flat = [group.reshape(len(boxes), prod(group.shape[1:])) for group in scaled]
    return np.concatenate(flat, axis=1).astype(np.float32)


def _patches(
    pixels: UInt8[np.ndarray, "H W 3"], boxes: Float[np.ndarray, "n 4"]
) -> Float32[np.ndarray, "n 3 P P"]:
    """Each region, resized to a square of fixed size, values in [0, 1]. A box has at least one pixel."""
    picture, (height, width, _) = Image.fromarray(pixels), pixels.shape
    patches = np.empty((len(boxes), 3, PATCH, PATCH), dtype=np.float32)
    for row, (x1, y1, x2, y2) in enumerate((boxes * [width, height, width, height]).tolist()):
        left, top = min(x1, width - 1), min(y1, height - 1)
        box = left, top, min(max(x2, left + 1), width), min(max(y2, top + 1), height)
        patch = picture.resize((PATCH, PATCH), Image.Resampling.BILINEAR, box=box)
        patches[row] = np.asarray(patch).transpose(2, 0, 1)
    return patches / 255


def _pool(maps: Float32[np.ndarray, "n C P P"], cells: int) -> Float32[np.ndarray, "n C cells cells"]:
    """Means over a square grid of cells."""
    step = PATCH // cells
    rows = reduce(np.add, (maps[:, :, k::step] for k in range(step)))
    total: Float32[np.ndarray, "n C cells cells"] = reduce(np.add, (rows[..., k::step] for k in range(step)))
    return total / np.float32(step**2)


def _histogram(patches: Float32[np.ndarray, "n 3 P P"]) -> Float32[np.ndarray, "n bins"]:
    """Square roots of the shares of hues, weighted by chroma, and of greys, weighted by 1 - chroma."""
    n, (red, green, blue) = len(patches), np.moveaxis(patches, 1, 0)
    top = np.maximum(np.maximum(red, green), blue)
    chroma = top - np.minimum(np.minimum(red, green), blue)
    safe = np.maximum(chroma, 1e-6)
    sector = np.where(top == green, (blue - red) / safe + 2, (red - green) / safe + 4)
    sector = np.where(top == red, (green - blue) / safe % 6, sector)
    hue = np.minimum((sector / 6 * HUES).astype(np.int64), HUES - 1)
    grey = HUES + np.minimum((top * GREYS).astype(np.int64), GREYS - 1)
    row = np.arange(n)[:, None, None] * (HUES + GREYS)
    bins = np.concatenate([(row + hue).ravel(), (row + grey).ravel()])
    counts = np.bincount(bins, np.concatenate([chroma.ravel(), 1 - chroma.ravel()]), n * (HUES + GREYS))
    return np.sqrt(counts.reshape(n, HUES + GREYS) / PATCH**2).astype(np.float32)


def _edges(patches: Float32[np.ndarray, "n 3 P P"]) -> Float32[np.ndarray, "n 4 P P"]:
    """Absolute changes of brightness to the right, downwards and along both diagonals."""
    light = 0.3 * patches[:, 0] + 0.59 * patches[:, 1] + 0.11 * patches[:, 2]
    here, right, below = light[:, :-1, :-1], light[:, :-1, 1:], light[:, 1:, :-1]
    energy = np.zeros((len(light), 4, PATCH, PATCH), dtype=np.float32)
    for k, change in enumerate((right - here, below - here, light[:, 1:, 1:] - here, below - right)):
        np.abs(change, out=energy[:, k, :-1, :-1])
    return energy
