"""Readers of recipes and of the files of a run directory."""

from __future__ import annotations

import hashlib
import json
import tempfile
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from random import Random

import torch

from fuzz.damage import hostile
from fuzz.fuzzer import Reader, write_file
from fuzz.text_readers import texts
from latentalign import config
from latentalign.tasks.nmt.recipe import NMTConfig
from latentalign.tasks.nmt.tokenizer import Tokenizer, TokenizerConfig
from latentalign.training import checkpoint
from latentalign.training.run import Run


def recipes() -> list[bytes]:
    shipped = [Path(config.__file__).parent / "recipes" / f"{name}.toml" for name in config.shipped_recipes()]
    nmt = [path.read_bytes() for path in shipped if path.parent.name == "nmt"]
    split = b'source = "a"\ntarget = "b"\n'
    return [
        *nmt,
        b"[data.train]\n" + split + b"[data.valid]\n" + split + b"[training]\nepochs = 3\nthreads = 1\n",
    ]


OVERRIDES = (
    "training.epochs=3", "data.train.source=x y", "data.test.gold=7", "tokenizer.kind=words", "model.dropout=0.5",
    "training.learning_rate=1e-3", "objective.name=soft", "training.normalize=tokens", "data.max_length=[1, 2]",
)  # fmt: skip


def check_recipe(data: bytes, random: Random, folder: Path) -> None:
    """A recipe that is accepted is written out completely and read back as the same."""
    overrides = []
    while random.random() < 0.4:
        text = hostile(random, [override.encode() for override in OVERRIDES]).decode(
            "utf-8", "surrogateescape"
        )
        overrides.append(text)
    loaded = config.load(write_file(folder, "recipe.toml", data), NMTConfig, overrides)
    text = config.dump(loaded)
    again = write_file(folder, "again.toml", text.encode())
    assert config.dump(config.load(again, NMTConfig)) == text, "a written recipe is read differently"


@cache
def tokenizer_files() -> list[bytes]:
    with tempfile.TemporaryDirectory() as name:
        text, path = write_file(Path(name), "text", texts()[0]), Path(name) / "tokenizer.json"
        files = []
        for kind, size in (("words", 40), ("bpe", 300)):
            Tokenizer.learn(TokenizerConfig(kind=kind, vocab_size=size), text, text).save(path)
            files.append(path.read_bytes())
        return files


def check_tokenizer(data: bytes, random: Random, folder: Path) -> None:
    """Only a tokenizer that was saved is loaded; if someone made the checksum fit, it must work."""
    resealed = random.random() < 0.5 and reseal_tokenizer(data)
    loaded = Tokenizer.load(write_file(folder, "tokenizer.json", resealed or data))
    encoded = loaded.encode_source("Der Hund \u2028 </s> schläft .")
    assert len(encoded.ids) == len(encoded.words), "ids and words differ in number"
    assert all(0 <= token < loaded.source_size for token in encoded.ids), "an id beyond the vocabulary"
    loaded.decode_target(encoded.ids)
    again = folder / "again.json"
    loaded.save(again)
    assert Tokenizer.load(again) == loaded, "a saved tokenizer is loaded differently"
    if not resealed:
        known = [json.loads(valid)["sha256"] for valid in tokenizer_files()]
        assert loaded.fingerprint() in known, "damage was not noticed"


def reseal_tokenizer(data: bytes) -> bytes | None:
    """The same file under a checksum that fits; None where it has no place for one."""
    with suppress(Exception):
        content = json.loads(data)
        del content["sha256"]
        own = {
            name: content.get(name) for name in ("format", "version", "kind", "lowercase", "source", "target")
        }
        digest = hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()
        return json.dumps({**content, "sha256": digest}).encode()
    return None


# A checkpoint of three layers: the pointer vouches for the manifest, the manifest for the files.

SEAL = b',\n "sha256": "'


@cache
def _checkpoint() -> dict[str, bytes]:
    """The files of a small checkpoint by their path."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tensors = {"model": {"weight": torch.arange(6.0).view(2, 3), "count": torch.tensor([1, 2])}}
        documents = {
            "progress": {"step": 3, "best": 1.5, "words": ["ü", None, True], "deep": {"a": [1, [2]]}}
        }
        checkpoint.save(folder, tensors=tensors, documents=documents)
        return {
            str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()
        }


def _part(end: str) -> str:
    return next(path for path in _checkpoint() if path.endswith(end))


def _sealed(body: bytes) -> bytes:
    """A document that ends with the checksum of what is before it."""
    head = body + SEAL
    return head + hashlib.sha256(head).hexdigest().encode() + b'"\n}\n'


def _body(sealed: bytes) -> bytes:
    return sealed[: sealed.rindex(SEAL)]


def check_checkpoint(end: str, data: bytes, random: Random, folder: Path) -> None:
    """No damage is loaded; where every checksum was made to fit, what is loaded is whole."""
    files = dict(_checkpoint())
    part, pointer, manifest = _part(end), _part("current.json"), _part("manifest.json")
    resealed = random.random() < 0.7
    files[part] = _sealed(data) if resealed and part in (pointer, manifest) else data
    if resealed and part not in (pointer, manifest):
        facts = json.loads(files[manifest])
        facts["files"][Path(part).name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        del facts["sha256"]
        files[manifest] = _sealed(json.dumps(facts)[:-1].encode())
    if resealed and part != pointer:
        new = {
            "save": Path(manifest).parent.name,
            "manifest_sha256": hashlib.sha256(files[manifest]).hexdigest(),
        }
        files[pointer] = _sealed(json.dumps(new)[:-1].encode())
    for path, content in files.items():
        (folder / "checkpoint" / path).parent.mkdir(parents=True, exist_ok=True)
        write_file(folder / "checkpoint", path, content)
    loaded = checkpoint.load(folder / "checkpoint")
    assert all(isinstance(t, torch.Tensor) for named in loaded.tensors.values() for t in named.values())
    if not resealed:
        assert files == _checkpoint(), "damage was not noticed"


def _checkpoint_files(end: str) -> list[bytes]:
    content = _checkpoint()[_part(end)]
    return [_body(content)] if end in ("current.json", "manifest.json") else [content]


def histories() -> list[bytes]:
    records = [{"kind": "training", "step": n, "bound": 1 / (n + 1), "t": "ü"} for n in range(4)]
    return ["".join(json.dumps(record) + "\n" for record in records).encode(), b"", b'{"kind": "validation"']


def check_history(data: bytes, random: Random, folder: Path) -> None:
    """Records that were not touched are there, in order, whatever surrounds them."""
    run = Run(folder)
    run.metrics.write_bytes(data)
    records = iter([json.dumps(record) for record in run.history()])
    untouched = set(histories()[0].decode().split("\n")) - {""}
    lines = [line.decode("utf-8", "replace") for line in data.split(b"\n")]
    assert all(line in records for line in lines if line in untouched), "a whole record is lost"


RUN_READERS = (
    Reader("recipe", recipes, check_recipe),
    Reader("tokenizer.json", tokenizer_files, check_tokenizer),
    *(
        Reader(f"checkpoint, {end}", partial(_checkpoint_files, end), partial(check_checkpoint, end))
        for end in ("current.json", "manifest.json", "progress.json", "model.safetensors")
    ),
    Reader("metrics.jsonl", histories, check_history),
)
