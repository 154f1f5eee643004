"""What extractors share: opening pictures, and a network whose output is a grid of cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from latentalign.data.region_features import grid_boxes
from latentalign.data.region_features.format import Array
from latentalign.errors import InputError

PICTURE_ERRORS = (
    OSError, ValueError, SyntaxError, UnidentifiedImageError, Image.DecompressionBombError,
    Image.DecompressionBombWarning,
)  # fmt: skip
"""What Pillow raises for files that are not pictures, or that are damaged or too large."""
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")

Network = Callable[[Float[Tensor, "B 3 height width"]], Float[Tensor, "B D rows columns"]]


def open_picture(
    source: Path | bytes,
    name: str,
    *,
    most_pixels: int | None = None,
    formats: tuple[str, ...] = FORMATS,
) -> Image.Image:
    """A picture, upright and with three colours. Its size is checked before its pixels are decoded."""
    try:
        with Image.open(BytesIO(source) if isinstance(source, bytes) else source, formats=formats) as picture:
            width, height = picture.size
            if most_pixels is not None and width * height > most_pixels:
                raise InputError(
                    f"{name}: {width} x {height} pixels, at most {most_pixels:,} are accepted; make it smaller"
                )
            return ImageOps.exif_transpose(picture).convert("RGB")
    except InputError:
        raise
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise InputError(f"{name}: {error.strerror}; expected a picture") from None
    except PICTURE_ERRORS as error:
        raise InputError(f"{name}: not a readable picture ({error}); repair or remove it") from error


@dataclass(frozen=True, eq=False)
class Extractor:
    """A network whose last feature map has cells, which are the regions of a picture.

    A picture of any shape is resized, so the cells cover all of it.
    """

    name: str
    network: Network
    height: int
    width: int
    mean: tuple[float, float, float]
    """The mean of each colour, from 0 to 255, that the network was trained with; and its deviation."""
    deviation: tuple[float, float, float]
    batch: int = 16
    """How many pictures of a folder are computed together."""

    def prepare(self, picture: Image.Image) -> Float[Tensor, "3 height width"]:
        """A picture in the size of the network, with colours in its range."""
        resized = picture.resize((self.width, self.height), Image.Resampling.BICUBIC)
        colours = np.array(resized, dtype=np.float32)
        scaled = (colours - np.array(self.mean, np.float32)) / np.array(self.deviation, np.float32)
        return torch.from_numpy(scaled).permute(2, 0, 1)

    @torch.no_grad()
    def regions(self, pictures: Sequence[Image.Image], *, fill: int = 1) -> list[tuple[Array, Array]]:
        """Features (n, D) and boxes (n, 4) of each picture.

        `fill` is the least size of the batch: rounding depends on it, so one file is computed with one size.
        """
        batch = torch.zeros(max(fill, len(pictures)), 3, self.height, self.width)
        for row, picture in enumerate(pictures):
            batch[row] = self.prepare(picture)
        maps = self.network(batch)
        boxes = grid_boxes(*maps.shape[2:])
        cells = maps.permute(0, 2, 3, 1).flatten(1, 2).float().numpy()  # B rows*columns D
        return [(features, boxes) for features in cells[: len(pictures)]]
