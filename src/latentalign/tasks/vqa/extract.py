"""Region features of a folder of pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from PIL import Image

from latentalign.data.region_features import Regions, image_id_of
from latentalign.errors import InputError
from latentalign.tasks.vqa.extractors import Extractor, make_extractor, open_picture, require_extractor

ENDS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff")

Report = Callable[[Path, InputError], None]
"""Called with a picture that cannot be read, and the reason."""


def extract(
    images: Path, extractor: str = "efficientnet-lite0", *, on_bad: Report | None = None
) -> Iterator[Regions]:
    """(image id, features, boxes) of every picture in a folder, sorted by the ids in the names.

    The first picture that cannot be read is an error. With `on_bad`, such pictures are reported and left out.
    """
    require_extractor(extractor)
    found = list_pictures(images)
    return _extract_batches(found, make_extractor(extractor), on_bad)


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


def _extract_batches(
    found: list[tuple[int, Path]], extractor: Extractor, on_bad: Report | None
) -> Iterator[Regions]:
    """Features of pictures, in batches. Batches are always full, because rounding depends on their size."""
    batch: list[tuple[int, Image.Image]] = []
    for number, (image_id, path) in enumerate(found, start=1):
        try:
            batch.append((image_id, open_picture(path, str(path))))
        except InputError as error:
            if on_bad is None:
                raise
            on_bad(path, error)
        if batch and (len(batch) == extractor.batch or number == len(found)):
            regions = extractor.regions([picture for _, picture in batch], fill=extractor.batch)
            yield from ((known, *one) for (known, _), one in zip(batch, regions, strict=True))
            batch = []
