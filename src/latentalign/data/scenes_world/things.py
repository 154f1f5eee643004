"""Things with a shape, a color, a pattern, a size and a position, and random scenes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import cos, hypot, pi, sin
from operator import ge
from random import Random

import numpy as np
from jaxtyping import Bool
from PIL import Image, ImageDraw

WIDTH, HEIGHT = 160, 120
THINGS = range(3, 11)
"""How many things a picture may have."""
MOST_HIDDEN = 0.4
"""Largest share of a thing that things in front of it may hide."""

COLORS = {
    "red": (212, 38, 38),
    "orange": (250, 138, 22),
    "yellow": (244, 222, 50),
    "green": (38, 146, 62),
    "cyan": (70, 206, 220),
    "blue": (40, 72, 205),
    "purple": (140, 48, 168),
}
ATTRIBUTES = {  # in the order of English adjectives
    "size": ("small", "large"),
    "color": tuple(COLORS),
    "pattern": ("plain", "striped", "dotted"),
    "shape": ("circle", "square", "triangle", "star"),
}
RADII = {
    "small": (9.0, 11.0),
    "large": (16.5, 19.0),
}  # in pixels; small and large things are easy to distinguish
Description = Mapping[str, str]  # values of some of the attributes
Box = tuple[float, float, float, float]  # x1, y1, x2, y2 in [0, 1] of the picture


@dataclass(frozen=True)
class Thing:
    """One thing of a scene. Coordinates are pixels, counted from the upper left corner of the picture."""

    size: str
    color: str
    pattern: str
    shape: str
    x: float
    y: float
    radius: float
    angle: float  # of rotation, in radians
    upright: bool  # whether stripes are vertical
    phase: float  # where the pattern begins, in [0, 1)
    tint: tuple[int, int, int]  # the exact color

    def value(self, attribute: str) -> str:
        """The value of one of `ATTRIBUTES`."""
        return str(getattr(self, attribute))

    def fits(self, description: Description) -> bool:
        """Whether the thing has all values of a description."""
        return all(getattr(self, attribute) == value for attribute, value in description.items())

    def outline(self) -> list[tuple[float, float]]:
        """The corners. A circle has many."""
        return [
            (self.x + self.radius * u, self.y + self.radius * v) for u, v in _unit(self.shape, self.angle)
        ]

    def box(self) -> Box:
        """The smallest box around the thing, including hidden parts."""
        horizontal, vertical = zip(*self.outline(), strict=True)
        left, right, top, bottom = min(horizontal), max(horizontal), min(vertical), max(vertical)
        return left / WIDTH, top / HEIGHT, right / WIDTH, bottom / HEIGHT


def _unit(shape: str, angle: float) -> list[tuple[float, float]]:
    """Corners of a shape around the origin with a radius of about 1. All shapes have similar areas."""
    if shape == "circle":
        reach = [1.0] * 40
    elif shape == "square":
        reach = [1.28] * 4
        angle += pi / 4
    elif shape == "triangle":
        reach = [1.36] * 3
    else:
        reach = [1.34, 0.58] * 5
    turns = [angle + 2 * pi * k / len(reach) for k in range(len(reach))]
    return [(r * sin(turn), -r * cos(turn)) for r, turn in zip(reach, turns, strict=True)]


def describe(description: Description, *, plural: bool = False) -> str:
    """A description as a noun phrase without an article, such as "small red striped circle"."""
    adjectives = [description[name] for name in ("size", "color", "pattern") if name in description]
    noun = description.get("shape", "object") + ("s" if plural else "")
    return " ".join([*adjectives, noun])


def draw_scene(rng: Random) -> tuple[Thing, ...]:
    """The things of a picture, from back to front. At most `MOST_HIDDEN` of each is hidden."""
    things: list[Thing] = []
    visible: list[Bool[np.ndarray, "H W"]] = []  # visible pixels of each thing
    least: list[float] = []  # pixels of each thing that must stay visible
    for _ in range(rng.choice(THINGS)):
        values = _draw_attributes(rng, things)
        for _ in range(40):
            thing = _draw_thing(rng, values)
            if _is_too_close(thing, things):
                continue
            mask = _mask(thing)
            remaining = [seen & ~mask for seen in visible]
            if all(map(ge, map(np.count_nonzero, remaining), least)):
                things.append(thing)
                visible = [*remaining, mask]
                least.append((1 - MOST_HIDDEN) * np.count_nonzero(mask))
                break
    return tuple(things) if len(things) >= THINGS.start else draw_scene(rng)


def _draw_attributes(rng: Random, things: Sequence[Thing]) -> dict[str, str]:
    """Four values. Often, most of them are those of an earlier thing, so that a short description fits both."""
    values = {name: rng.choice(options) for name, options in ATTRIBUTES.items()}
    if things and rng.random() < 0.6:
        model, changed = rng.choice(things), rng.choice(list(ATTRIBUTES))
        keep = [name for name in ATTRIBUTES if name != changed and rng.random() < 0.75]
        values |= {name: model.value(name) for name in keep}
    return values


def _draw_thing(rng: Random, values: dict[str, str]) -> Thing:
    """A thing with these values at a random position, slightly rotated and tinted."""
    radius = rng.uniform(*RADII[values["size"]])
    margin = 1.36 * radius + 1
    red, green, blue = (min(255, max(0, c + round(rng.uniform(-14, 14)))) for c in COLORS[values["color"]])
    return Thing(
        **values,
        x=rng.uniform(margin, WIDTH - margin),
        y=rng.uniform(margin, HEIGHT - margin),
        radius=radius,
        angle=rng.uniform(-0.15, 0.15),
        upright=rng.random() < 0.5,
        phase=rng.random(),
        tint=(red, green, blue),
    )


def _is_too_close(thing: Thing, others: Sequence[Thing]) -> bool:
    """Whether a thing is so close to another that one of them would be hard to recognise."""
    return any(hypot(thing.x - o.x, thing.y - o.y) < 0.75 * (thing.radius + o.radius) for o in others)


def _mask(thing: Thing) -> Bool[np.ndarray, "H W"]:
    """Mask of the pixels that belong to the thing."""
    canvas = Image.new("1", (WIDTH, HEIGHT))
    ImageDraw.Draw(canvas).polygon(thing.outline(), fill=1)
    return np.array(canvas)
