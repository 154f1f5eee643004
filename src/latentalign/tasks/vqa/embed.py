"""Pictures as `data:` addresses, for pages that need no network."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from latentalign.tasks.vqa.extractors import open_picture

LONGEST_SIDE = 800
"""Pixels of a picture on a page. Larger pictures are made smaller."""


def embed_picture(path: Path) -> str:
    """A small version of a picture file as a `data:` address."""
    small = open_picture(path, str(path))
    small.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=85)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def embed_pictures(
    looks: Mapping[str, Sequence[Mapping[str, Any]]], pictures: Mapping[int, Path]
) -> dict[str, str]:
    """The pictures that records refer to, by image id."""
    wanted = {record["image_id"] for records in looks.values() for record in records}
    return {str(image_id): embed_picture(pictures[image_id]) for image_id in sorted(wanted & pictures.keys())}
