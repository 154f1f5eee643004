"""The latent layers in a safetensors file beside the model, and which model they belong to."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from latentalign.errors import CheckpointError, InputError
from latentalign.storage import read_tensors, require_folder_place, write_tensors

FILE = "latentalign.safetensors"
FORMAT = "latentalign.wrap/1"


def fingerprint(model: nn.Module) -> str:
    """SHA-256 of all weights of a model with their names and shapes, in hexadecimal."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def write_layers(
    folder: Path | str, tensors: Mapping[str, Tensor], about: Mapping[str, str], *, overwrite: bool
) -> Path:
    """Write the layers into a folder, which is created if it does not exist."""
    path = Path(folder) / FILE
    require_folder_place(path.parent)
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists; choose another folder, or pass overwrite=True")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_tensors(path, tensors, {"format": FORMAT, **about})
    return path


def read_layers(folder: Path | str, model: nn.Module) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The layers in a folder and what they say about themselves; raises unless they were fitted to this model."""
    path = Path(folder) / FILE
    if not path.exists():
        raise InputError(f"{path}: no such file; `wrapped.save(folder)` writes it")
    tensors, about = read_tensors(path)
    if about.get("format") != FORMAT:
        raise CheckpointError(
            f"{path}: its format is {about.get('format')!r}, expected {FORMAT!r}; another version wrote it"
        )
    name = type(model).__name__
    if about["model"] != name:
        raise CheckpointError(
            f"{path}: fitted to a {about['model']}, but this model is a {name}; load that model"
        )
    if about["fingerprint"] != fingerprint(model):
        raise CheckpointError(
            f"{path}: fitted to a {name} with other weights; load the model that it was saved beside, in the same "
            "precision (after fit(mode='translate') the model has new weights: save it as well)"
        )
    return tensors, about
