"""Pictures of scenes. They are drawn at twice their size and then reduced, so edges are smooth."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw

from latentalign.data.scenes_world.things import HEIGHT, WIDTH, Thing

SCALE = 2
PERIOD = 6.0
"""Distance between stripes and between dots, in pixels of the picture."""
DARK, LIGHT = (35, 35, 40), (250, 250, 250)


def paint(things: Sequence[Thing], rng: Random) -> UInt8[np.ndarray, "H W 3"]:
    """The picture of a scene on a lightly textured background."""
    canvas = _background(rng)
    for thing in things:
        _paint_thing(canvas, thing)
    return np.array(canvas.reduce(SCALE))


def _background(rng: Random) -> Image.Image:
    """A light, nearly grey background with soft spots."""
    base = np.array([rng.uniform(196, 222) + rng.uniform(-6, 6) for _ in range(3)])
    spots = np.frombuffer(rng.randbytes(24 * 18), dtype=np.uint8).reshape(18, 24, 1) / 255 - 0.5
    small = np.clip(base + 26 * spots, 0, 255).astype(np.uint8)
    return Image.fromarray(small).resize((WIDTH * SCALE, HEIGHT * SCALE), Image.Resampling.BILINEAR)


def _paint_thing(canvas: Image.Image, thing: Thing) -> None:
    """Paint a thing with its pattern and a darker outline."""
    corners = [(x * SCALE, y * SCALE) for x, y in thing.outline()]
    horizontal, vertical = zip(*corners, strict=True)
    left, top = int(min(horizontal)), int(min(vertical))
    size = int(max(horizontal)) - left + 2, int(max(vertical)) - top + 2
    surface, mask = Image.new("RGB", size, thing.tint), Image.new("L", size)
    _paint_pattern(ImageDraw.Draw(surface), size, thing)
    local = [(x - left, y - top) for x, y in corners]
    ImageDraw.Draw(mask).polygon(local, fill=255)
    red, green, blue = (c * 11 // 20 for c in thing.tint)
    ImageDraw.Draw(surface).line([*local, local[0]], fill=(red, green, blue), width=3)
    canvas.paste(surface, (left, top), mask)


def _paint_pattern(draw: ImageDraw.ImageDraw, size: tuple[int, int], thing: Thing) -> None:
    """Paint stripes or dots: dark on light colors, light on dark colors."""
    red, green, blue = thing.tint
    ink = DARK if 0.3 * red + 0.59 * green + 0.11 * blue > 125 else LIGHT
    period = PERIOD * SCALE
    start = -thing.phase * period
    width, height = size
    if thing.pattern == "striped":
        for k in range(int(max(size) / period) + 2):
            low, high = start + k * period, start + (k + 0.42) * period
            draw.rectangle((low, 0, high, height) if thing.upright else (0, low, width, high), fill=ink)
    elif thing.pattern == "dotted":
        radius = 0.27 * period
        for row in range(int(height / period) + 2):
            for column in range(int(width / period) + 3):
                x = start + (column - 0.5 * (row % 2)) * period
                y = start + row * period
                draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=ink)
