"""Things with a shape, a color, a pattern, a size and a place, and how a scene of them is drawn at random."""

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
THINGS = range(3, 11)  # in a picture
MOST_HIDDEN = 0.4  # of a thing, by those in front of it

COLORS = {
    "red": (212, 38, 38),
    "orange": (250, 138, 22),
    "yellow": (244, 222, 50),
    "green": (38, 146, 62),
    "cyan": (70, 206, 220),
    "blue": (40, 72, 205),
    "purple": (140, 48, 168),
}
ATTRIBUTES = {  # in the order in which English puts them
    "size": ("small", "large"),
    "color": tuple(COLORS),
    "pattern": ("plain", "striped", "dotted"),
    "shape": ("circle", "square", "triangle", "star"),
}
RADII = {"small": (9.0, 11.0), "large": (16.5, 19.0)}  # in pixels: no small thing looks like a large one
Description = Mapping[str, str]  # some of the attributes with their values
Box = tuple[float, float, float, float]  # x1, y1, x2, y2 in [0, 1] of the picture


@dataclass(frozen=True)
class Thing:
    """One thing of a scene; coordinates are pixels of the picture, counted from its upper left corner."""

    size: str
    color: str
    pattern: str
    shape: str
    x: float
    y: float
    radius: float
    angle: float  # of rotation, in radians
    upright: bool  # whether stripes, if any, run from top to bottom
    phase: float  # in [0, 1), where the pattern begins
    tint: tuple[int, int, int]  # the color it really has

    def value(self, attribute: str) -> str:
        """The value of one of `ATTRIBUTES`."""
        return str(getattr(self, attribute))

    def fits(self, description: Description) -> bool:
        """Whether it has all of the described values."""
        return all(getattr(self, attribute) == value for attribute, value in description.items())

    def outline(self) -> list[tuple[float, float]]:
        """Its corners; a circle has many."""
        return [
            (self.x + self.radius * u, self.y + self.radius * v) for u, v in _unit(self.shape, self.angle)
        ]

    def box(self) -> Box:
        """The smallest box around it, what others hide included."""
        horizontal, vertical = zip(*self.outline(), strict=True)
        left, right, top, bottom = min(horizontal), max(horizontal), min(vertical), max(vertical)
        return left / WIDTH, top / HEIGHT, right / WIDTH, bottom / HEIGHT


def _unit(shape: str, angle: float) -> list[tuple[float, float]]:
    """Corners of a shape of about radius 1 around the origin; sizes are such that areas are comparable."""
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
    """A description as a noun phrase without an article: "small red striped circle"."""
    adjectives = [description[name] for name in ("size", "color", "pattern") if name in description]
    noun = description.get("shape", "object") + ("s" if plural else "")
    return " ".join([*adjectives, noun])


def draw_scene(rng: Random) -> tuple[Thing, ...]:
    """The things of a picture, those behind first; none is hidden by more than `MOST_HIDDEN`."""
    things: list[Thing] = []
    visible: list[Bool[np.ndarray, "H W"]] = []  # what is seen of each, so far
    least: list[float] = []  # how many pixels of each have to be
    for _ in range(rng.choice(THINGS)):
        values = _draw_attributes(rng, things)
        for _ in range(40):
            thing = _draw_thing(rng, values)
            if _crowded(thing, things):
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
    """Four values; often most of them are those of an earlier thing, so that a short description fits both."""
    values = {name: rng.choice(options) for name, options in ATTRIBUTES.items()}
    if things and rng.random() < 0.6:
        model, changed = rng.choice(things), rng.choice(list(ATTRIBUTES))
        keep = [name for name in ATTRIBUTES if name != changed and rng.random() < 0.75]
        values |= {name: model.value(name) for name in keep}
    return values


def _draw_thing(rng: Random, values: dict[str, str]) -> Thing:
    """A thing with these values somewhere in the picture, slightly turned and tinted."""
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


def _crowded(thing: Thing, others: Sequence[Thing]) -> bool:
    """Whether a thing is so near to another that one of them would be hard to recognise."""
    return any(hypot(thing.x - o.x, thing.y - o.y) < 0.75 * (thing.radius + o.radius) for o in others)


def _mask(thing: Thing) -> Bool[np.ndarray, "H W"]:
    """True where the thing is."""
    canvas = Image.new("1", (WIDTH, HEIGHT))
    ImageDraw.Draw(canvas).polygon(thing.outline(), fill=1)
    return np.array(canvas)
