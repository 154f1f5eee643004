"""Extractors: networks that turn a picture into regions with features.

A features file that an extractor made stores the extractor's name as its layout, and so does the card of a run. So a
trained model can be asked about any picture.
"""

from __future__ import annotations

from collections.abc import Callable

from latentalign.errors import InputError
from latentalign.tasks.vqa.extractors.base import Extractor, open_picture
from latentalign.tasks.vqa.extractors.efficientnet import efficientnet_lite0
from latentalign.tasks.vqa.extractors.timm_backbone import PREFIX, timm_backbone

__all__ = [
    "CHOICES",
    "EXTRACTORS",
    "Extractor",
    "is_extractor",
    "make_extractor",
    "open_picture",
]

EXTRACTORS: dict[str, Callable[[], Extractor]] = {"efficientnet-lite0": efficientnet_lite0}
CHOICES = f"{', '.join(EXTRACTORS)} or {PREFIX}MODEL"


def is_extractor(name: str) -> bool:
    """Whether a name is that of an extractor, so that a layout with this name can be computed from pictures."""
    return name in EXTRACTORS or name.startswith(PREFIX)


def require_extractor(name: str) -> None:
    """Raise if there is no extractor with a name."""
    if not is_extractor(name):
        raise InputError(f"unknown extractor {name!r}; choose {CHOICES}")


def make_extractor(name: str) -> Extractor:
    """An extractor by name, with its weights."""
    require_extractor(name)
    if name.startswith(PREFIX):
        return timm_backbone(name.removeprefix(PREFIX))
    return EXTRACTORS[name]()
