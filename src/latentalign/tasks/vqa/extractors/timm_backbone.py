"""Any backbone of timm: cells of convolutional networks, patches of vision transformers (CLIP and DINO included).

Tokens that stand for the whole picture (class, distillation and register tokens) are left out, so that every region
has a place. A picture is resized to the size that the model was trained with, without cropping.
"""

from __future__ import annotations

from importlib import import_module
from math import isqrt
from typing import Any

import torch
from torch import Tensor

from latentalign.errors import InputError
from latentalign.extras import require_package
from latentalign.tasks.vqa.extractors.base import Extractor

PREFIX = "timm:"


def timm_backbone(model: str, *, pretrained: bool = True) -> Extractor:
    """A backbone by its name in timm, e.g. `vit_small_patch14_dinov2`, `hf-hub:NAME` or `local-dir:FOLDER`.

    Without `pretrained`, its weights are random, for tests.
    """
    name = PREFIX + model
    require_package("timm", f"--extractor {name}")
    try:
        timm = import_module("timm")
        network = timm.create_model(model, pretrained=pretrained, num_classes=0).eval()
        data = timm.data.resolve_model_data_config(network)
    except Exception as error:  # timm, its hub and torchvision raise errors of many kinds
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise InputError(f"--extractor {name}: timm cannot make this model ({reason})") from error
    _, height, width = data["input_size"]

    def feature_map(pictures: Tensor) -> Tensor:
        return as_map(name, network, network.forward_features(pictures))

    with torch.no_grad():
        feature_map(torch.zeros(1, 3, height, width))  # an output without a grid is refused before any work
    red, green, blue = (255.0 * value for value in data["mean"])
    deviations = (255.0 * data["std"][0], 255.0 * data["std"][1], 255.0 * data["std"][2])
    return Extractor(name, feature_map, height, width, (red, green, blue), deviations, batch=8)


def as_map(name: str, network: Any, output: Any) -> Tensor:
    """The output of a network as (B, D, rows, columns)."""
    if not isinstance(output, Tensor) or output.ndim not in (3, 4):
        raise InputError(f"--extractor {name}: its features are not a grid; choose another model")
    if output.ndim == 4:
        size = network.num_features
        channels_last = output.shape[3] == size != output.shape[1]
        return output.permute(0, 3, 1, 2) if channels_last else output
    skipped = getattr(network, "num_prefix_tokens", 0)
    count = output.shape[1] - skipped
    rows, columns = grid_size(network, count)
    if rows * columns != count:
        raise InputError(
            f"--extractor {name}: {count} tokens after {skipped} prefix tokens are not a grid; choose another model"
        )
    patches: Tensor = output[:, skipped:].transpose(1, 2).unflatten(2, (rows, columns))
    return patches


def grid_size(network: Any, count: int) -> tuple[int, int]:
    """Rows and columns of the patches: those that the network declares, or else a square."""
    declared = getattr(getattr(network, "patch_embed", None), "grid_size", None)
    if declared is not None and declared[0] * declared[1] == count:
        return int(declared[0]), int(declared[1])
    return isqrt(count), isqrt(count)
