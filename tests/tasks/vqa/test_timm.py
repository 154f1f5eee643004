"""Backbones of timm as extractors: with a module that behaves like timm, and with timm itself where it is installed."""

import importlib.util
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from latentalign.data.region_features import grid_boxes
from latentalign.errors import InputError
from latentalign.tasks.vqa.extractors import make_extractor
from latentalign.tasks.vqa.extractors.timm_backbone import timm_backbone

HEIGHT, WIDTH, PATCH, SIZE = 32, 48, 16, 5


class Backbone(torch.nn.Module):
    """Mean colours of patches as features, in the layout of a kind of network."""

    def __init__(self, kind: str, prefix: int = 0) -> None:
        super().__init__()
        self.kind, self.num_features, self.num_prefix_tokens = kind, SIZE, prefix
        rows, columns = HEIGHT // PATCH, WIDTH // PATCH
        self.patch_embed = SimpleNamespace(grid_size=(rows, columns) if kind != "square" else (9, 9))

    def forward_features(self, pictures):
        means = torch.nn.functional.avg_pool2d(pictures, PATCH)  # B 3 rows columns
        cells = torch.cat([means, means[:, :2]], 1)
        if self.kind == "convolutional":
            return cells
        if self.kind == "channels last":
            return cells.permute(0, 2, 3, 1)
        if self.kind == "pooled":
            return cells.mean((2, 3))
        prefix = torch.full((len(pictures), self.num_prefix_tokens, SIZE), 1e6)
        return torch.cat([prefix, cells.flatten(2).transpose(1, 2)], 1)


@pytest.fixture
def timm(monkeypatch):
    """A stand-in for timm with the functions that the extractor calls."""
    models = {
        "resnet": Backbone("convolutional"),
        "swin": Backbone("channels last"),
        "siglip": Backbone("tokens"),
        "clip": Backbone("tokens", prefix=1),
        "dinov2_reg4": Backbone("tokens", prefix=5),
        "odd": Backbone("square", prefix=1),
        "pooled": Backbone("pooled"),
    }

    def create_model(name, *, pretrained, num_classes):
        assert (pretrained, num_classes) == (True, 0)
        if name not in models:
            raise RuntimeError(f"Unknown model ({name})")
        return models[name]

    data = {"input_size": (3, HEIGHT, WIDTH), "mean": (0.5, 0.25, 0.0), "std": (0.5, 0.5, 1.0)}
    module = SimpleNamespace(
        create_model=create_model,
        data=SimpleNamespace(resolve_model_data_config=lambda network: data),
        __spec__=importlib.util.spec_from_loader("timm", None),
    )
    monkeypatch.setitem(sys.modules, "timm", module)


def picture():
    """A picture whose upper left patch is red; all others are black."""
    colours = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    colours[:PATCH, :PATCH, 0] = 255
    return Image.fromarray(colours)


@pytest.mark.parametrize("model", ["resnet", "swin", "siglip", "clip", "dinov2_reg4"])
def test_cells_and_patches_have_boxes_and_prefix_tokens_have_none(timm, model):
    extractor = make_extractor(f"timm:{model}")
    assert extractor.name == f"timm:{model}"
    ((features, boxes),) = extractor.regions([picture()])
    np.testing.assert_array_equal(boxes, grid_boxes(2, 3))
    assert features.shape == (6, SIZE)
    assert features[:, 0].tolist() == [1, -1, -1, -1, -1, -1]  # red, scaled with mean and deviation
    np.testing.assert_allclose(features[:, 1], -0.5)
    np.testing.assert_allclose(features[:, 2], 0)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("nonsense", r"timm:nonsense: timm cannot make this model \(Unknown model"),
        ("odd", "6 tokens after 1 prefix tokens are not a grid"),
        ("pooled", "its features are not a grid"),
    ],
)
def test_models_without_a_grid_are_refused(timm, model, message):
    with pytest.raises(InputError, match=message):
        make_extractor(f"timm:{model}")


def test_without_timm_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(InputError, match=r'timm is not installed; run pip install "latentalign\[timm\]"'):
        make_extractor("timm:resnet18")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of timm and torchvision
@pytest.mark.parametrize(
    ("model", "side", "size"),
    [
        ("resnet18", 7, 512),
        ("resnet50_clip", 7, 2048),
        ("swin_tiny_patch4_window7_224", 7, 768),
        ("vit_base_patch32_clip_224", 7, 768),
        ("vit_small_patch16_224.dino", 14, 384),
        ("vit_small_patch14_dinov2", 37, 384),
        ("vit_small_patch14_reg4_dinov2", 37, 384),
    ],
)
def test_backbones_of_timm_with_random_weights(model, side, size):
    pytest.importorskip("timm", exc_type=ImportError)
    ((features, boxes),) = timm_backbone(model, pretrained=False).regions([picture()])
    assert features.shape == (side * side, size)
    np.testing.assert_array_equal(boxes, grid_boxes(side, side))
    assert np.isfinite(features).all()
    assert np.abs(features[0] - features[-1]).max() > 1e-3
