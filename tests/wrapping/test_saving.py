"""Latent layers are saved beside the model, come back bit for bit, and refuse to work with another model."""

import pytest
import torch

from latentalign import wrap
from latentalign.errors import CheckpointError, InputError
from support.wrapping import KINDS, PAIRS, make_model, shake, toy_pairs


@pytest.fixture(params=KINDS)
def kind(request):
    if request.param != "torch":
        pytest.importorskip("transformers", reason="transformers is missing: pip install 'latentalign[hf]'")
    return request.param


@pytest.mark.parametrize("mode", ["align", "translate"])
def test_a_saved_wrapper_comes_back(kind, mode, tmp_path):
    wrapped = wrap(make_model(kind), hidden=12)
    wrapped.add_inference()
    shake(wrapped).mode = mode
    path = wrapped.save(tmp_path / "new")
    assert path.name == "latentalign.safetensors"
    again = wrap(wrapped.model, tmp_path / "new")
    torch.testing.assert_close(again.tensors(), wrapped.tensors(), rtol=0, atol=0)
    torch.testing.assert_close(again.log_likelihoods(PAIRS), wrapped.log_likelihoods(PAIRS), rtol=0, atol=0)
    assert again.align(PAIRS).links == wrapped.align(PAIRS).links


def test_the_file_has_no_weights_of_the_model(kind, tmp_path):
    from safetensors import safe_open

    wrapped = wrap(make_model(kind), hidden=12)
    with safe_open(wrapped.save(tmp_path), "pt") as file:
        names = set(file.keys())
    shapes = {tuple(tensor.shape) for name, tensor in wrapped.tensors().items() if name in names}
    assert names == set(wrapped.tensors())
    assert tuple(wrapped.base.output.weight.shape) not in shapes


def test_files_are_not_overwritten_unasked(tmp_path):
    wrapped = wrap(make_model("torch"))
    wrapped.save(tmp_path)
    with pytest.raises(InputError, match="overwrite=True"):
        wrapped.save(tmp_path)
    wrapped.save(tmp_path, overwrite=True)


def test_a_model_with_other_weights_is_refused(kind, tmp_path):
    model = make_model(kind)
    wrap(model).save(tmp_path)
    with torch.no_grad():
        next(iter(model.parameters()))[0, 0] += 1e-3
    with pytest.raises(CheckpointError, match="other weights; load the model that it was saved beside"):
        wrap(model, tmp_path)


def test_another_architecture_is_refused(tmp_path):
    pytest.importorskip("transformers", reason="transformers is missing: pip install 'latentalign[hf]'")
    wrap(make_model("torch")).save(tmp_path)
    with pytest.raises(
        CheckpointError, match="fitted to a TorchTranslator, but this model is a MarianMTModel"
    ):
        wrap(make_model("marian"), tmp_path)


def test_training_the_model_makes_the_saved_layers_unusable_until_it_is_saved(tmp_path):
    model = make_model("torch")
    wrapped = wrap(model)
    wrapped.save(tmp_path)
    wrapped.fit(toy_pairs(4), "translate", epochs=1)
    with pytest.raises(CheckpointError, match="other weights"):
        wrap(model, tmp_path)
    wrapped.save(tmp_path, overwrite=True)
    again = wrap(model, tmp_path)
    torch.testing.assert_close(again.log_likelihoods(PAIRS), wrapped.log_likelihoods(PAIRS), rtol=0, atol=0)


def test_damage_is_reported(tmp_path):
    model = make_model("torch")
    with pytest.raises(InputError, match=r"latentalign.safetensors: no such file; `wrapped.save\(folder\)`"):
        wrap(model, tmp_path)
    path = wrap(model).save(tmp_path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="checksum mismatch"):
        wrap(model, tmp_path)
