"""Where a model looks, drawn as figures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from PIL import Image

from latentalign.data.region_features import image_id_of
from latentalign.reproduction.plots import escape_dollars, new_figure

HUES = {"prior": "#D55E00", "inferred": "#0072B2", "posterior": "#CC79A7"}
LABELS = {"prior": "prior p", "inferred": "inferred q", "posterior": "exact posterior"}
SUFFIXES = (".png", ".jpg", ".jpeg")
QUESTION_WIDTH = 34
DIGITS = re.compile(r"\d")


def find_pictures(folder: Path) -> dict[int, Path]:
    """The picture files of a folder by image id."""
    named = [p for p in sorted(folder.iterdir()) if p.suffix.lower() in SUFFIXES and DIGITS.search(p.name)]
    return {image_id_of(p.name): p for p in named}


def draw_looks(
    records: Sequence[Mapping[str, Any]], pictures: Mapping[int, Path], *, count: int = 4
) -> Figure:
    """A row for each question: the likeliest regions under prior, q and posterior; white dashes mark gold regions."""
    usable = [r for r in records if r["image_id"] in pictures]
    shown = ([r for r in usable if r["gold"]] or usable)[:count]
    names = [n for n in ("prior", "inferred", "posterior") if shown and n in shown[0]["looks"]]
    across, down = max(1, len(names)), max(1, len(shown))
    figure, panels = new_figure(3.2 * across, 3.0 * down, panels=across, rows=down)
    for k, record in enumerate(shown):
        with Image.open(pictures[record["image_id"]]) as picture:
            pixels = np.asarray(picture.convert("RGB"))
        for m, name in enumerate(names):
            axes = panels[k * len(names) + m]
            draw_regions(axes, pixels, record, name)
            if m == 0:
                answer = f"{record['predicted']} (people: {record['answer']})"
                axes.set_title(
                    escape_dollars(f"{fill(record['question'], QUESTION_WIDTH)}\n{answer}"),
                    fontsize=8,
                    loc="left",
                )
            axes.set_xlabel(LABELS[name], fontsize=8)
    return figure


def draw_regions(axes: Any, pixels: NDArray[Any], record: Mapping[str, Any], name: str) -> None:
    """Draw a picture and its regions, relative to the most probable one; those below a tenth of it are left out."""
    height, width = pixels.shape[:2]
    axes.imshow(pixels)
    shares = np.array(record["looks"][name]) / max(record["looks"][name])
    for box, share in zip(record["boxes"], shares, strict=True):
        if share >= 0.1:
            strength = {"linewidth": 0.5 + 2.5 * share, "alpha": 0.3 + 0.7 * share}
            axes.add_patch(outline(box, width, height, edgecolor=HUES[name], **strength))
    for box in record["gold"]:
        axes.add_patch(outline(box, width, height, edgecolor="white", linewidth=1.2, linestyle="--"))
    axes.set(xticks=[], yticks=[])


def outline(box: Sequence[float], width: int, height: int, **style: Any) -> Rectangle:
    """The outline of a region whose corners are fractions of the picture."""
    x1, y1, x2, y2 = box
    size = ((x2 - x1) * width, (y2 - y1) * height)
    return Rectangle((x1 * width, y1 * height), *size, facecolor="none", **style)
