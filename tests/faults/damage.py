"""Files of a run that are truncated, altered, missing or not its own: named, never believed, never run."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import random
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch

from faults.lab import Lab, Tally, command, differences, files_of, fraction, spread, tensors_sha256
from latentalign import config as recipes
from latentalign.errors import CheckpointError, LatentAlignError
from latentalign.tasks.nmt import task as nmt
from latentalign.training import checkpoint
from latentalign.training.loop import Trainer
from latentalign.training.run import Run

OPTIONS = ("objective.name=variational-sample", "training.max_steps=8", "training.validate_steps=4")
Loader = Callable[[Path], Any]


# How a run is read


def as_training(run: Path) -> dict[str, str]:
    """What `train --resume` would go on from: everything up to the first step."""
    stands: dict[str, str] = {}

    def instead(self: Trainer) -> Any:
        stands["module"] = tensors_sha256(dict(self.module.state_dict()))
        stands["optimizer"] = tensors_sha256(self.optimizer.tensors())
        stands["position"] = json.dumps([vars(self.position), vars(self.schedule)])
        stands["batches"] = tensors_sha256(
            {f"{i}.{f}": getattr(self.data.load_batch(key), f) for i, key in enumerate(self.data.batch_keys(0)[:5])
             for f in ("source", "target")}
        )  # fmt: skip
        return self.schedule

    train, Trainer.train = Trainer.train, instead
    try:
        config = recipes.load(run.parent / "recipe.toml", nmt.NMTConfig, OPTIONS)
        nmt.TRANSLATION.train(config, Run(run), resume=True, overwrite=False)
    finally:
        Trainer.train = train
    return stands


def as_model(run: Path) -> dict[str, str]:
    """What `evaluate` and `translate` would compute with."""
    trained = nmt.TRANSLATION.load(run)
    return {
        "model": tensors_sha256(dict(trained.model.state_dict())),
        "config": recipes.dump(trained.config),
        "tokenizer": trained.vocabulary.fingerprint(),
    }


def readers(run: Path, path: Path) -> list[Loader]:
    """Who reads a file of a run and must refuse it when it is damaged."""
    name = path.relative_to(run).parts[0]
    return {
        "checkpoint": [as_training],
        "tokenizer.json": [as_training, as_model],
        "model.safetensors": [as_model],
        "model.safetensors.sha256": [as_model],
    }.get(name, [])


def commands(lab: Lab, run: Path, loaders: Iterable[Loader]) -> list[Callable[[], None]]:
    """The same as commands of the command line."""
    train = lab.train(run, *OPTIONS, flags=["--resume"])
    model = [command("evaluate", run, "--no-bleu"), command("translate", run)]
    return [action for loader in loaders for action in ([train] if loader is as_training else model)]


def covered(run: Path) -> list[Path]:
    """The files of a run that stand under a checksum."""
    return [path for path in files_of(run) if readers(run, path)]


# Damage


def damages(data: bytes, count: int) -> Iterator[tuple[str, bytes]]:
    """Truncations and single flipped bits, `count` of each, spread over a file."""
    chance = random.Random(len(data))
    for i in range(count):
        length = len(data) * i // count
        yield f"truncated to {length} bytes", data[:length]
        where = min(len(data) - 1, int(len(data) * (i + chance.random()) / count))
        flipped = data[where] ^ 1 << chance.randrange(8)
        yield f"byte {where} flipped", data[:where] + bytes([flipped]) + data[where + 1 :]


def refusal_errors(reader: Loader, run: Path, path: Path, *words: str) -> Iterator[str]:
    """What is wrong with the response to a damaged file: it must be a CheckpointError that names it."""
    try:
        reader(run)
        yield "was accepted"
    except CheckpointError as error:
        for word in (str(path), *words):
            if word not in str(error):
                yield f"{word!r} is not in the message {error}"
    except Exception as error:
        yield f"{type(error).__name__}: {error}"


def damage(lab: Lab, scale: float) -> Tally:
    """Truncate every file with a checksum and flip bits, at 64 offsets each; read it in this process."""
    tally = lab.tally("a file truncated or a bit flipped", 'refused with its name and "checksum mismatch"')
    run = lab.copy(lab.finished(*OPTIONS))
    for path in covered(run):

        def each(path: Path = path) -> list[list[str]]:
            good, found = path.read_bytes(), []
            for what, bad in damages(good, fraction(scale, 64)):
                for reader in readers(run, path):
                    path.write_bytes(bad)
                    complaints = refusal_errors(reader, run, path, "checksum mismatch")
                    found.append([f"{path.name} {what}, {reader.__name__}: {c}" for c in complaints])
            path.write_bytes(good)
            for reader in readers(run, path):
                reader(run)  # the restored file is read again
            return found

        for complaints in lab.ask(each):
            tally.check(complaints)
    return tally


def damage_met_by_commands(lab: Lab, scale: float) -> Tally:
    """Damage every file in three ways and run the commands that read it."""
    tally = lab.tally("a damaged file met by a command", "ended with 4 and its name, without a traceback")
    whole = lab.finished(*OPTIONS)
    run = lab.copy(whole)
    for path in covered(run):
        good = path.read_bytes()
        half, flipped = good[: len(good) // 2], bytes([*good[:-20], good[-20] ^ 4, *good[-19:]])
        for what, bad in (("halved", half), ("flipped", flipped), ("emptied", b""))[: fraction(scale, 3)]:
            path.write_bytes(bad)
            for action in commands(lab, run, readers(run, path)):
                complaints = lab.run(action).complaints(4, str(path), "checksum mismatch")
                tally.check(f"{path.name} {what}: {c}" for c in complaints)
        path.write_bytes(good)
    return tally


def foreign(lab: Lab, scale: float) -> Tally:
    """Use files that are missing, or from another run, a later version or another program."""
    tally = lab.tally(
        "a missing file, one of a later version, of another run or program", "refused with its name"
    )
    whole = lab.finished(*OPTIONS)
    cases = [*foreign_files(lab, whole), *missing_files(whole)]
    step = max(1, len(cases) // fraction(scale, len(cases)))
    for what, change, name, loaders in cases[::-step]:
        run = lab.copy(whole)
        change(run)
        for action in commands(lab, run, loaders or readers(run, run / name)):
            tally.check(f"{what}: {c}" for c in lab.run(action).complaints(4, str(run / name)))
        shutil.rmtree(run)
    return tally


Case = tuple[str, Callable[[Path], Any], str, Sequence[Loader]]
"""A description, the change to a run, the file that must be named, and the loaders if not all that read it."""


def missing_files(whole: Path) -> Iterator[Case]:
    """Each file deleted, or replaced by a folder."""
    for path in covered(whole):
        name = str(path.relative_to(whole))
        # A training run without a tokenizer learns the same one again if it can.
        loaders = [as_model] if name == "tokenizer.json" else []
        yield f"{name} missing", lambda run, name=name: (run / name).unlink(), name, loaders

        def folder(run: Path, name: str = name) -> None:
            (run / name).unlink()
            (run / name).mkdir()

        yield f"{name} is a folder", folder, name, loaders


def foreign_files(lab: Lab, whole: Path) -> Iterator[Case]:
    """Valid files that do not belong to this run."""
    vocabulary = lab.finished(*OPTIONS, "tokenizer.min_count=3")
    larger = lab.finished(*OPTIONS, "model.head_size=10")
    exact = lab.finished("objective.name=marginal", *OPTIONS[1:])

    def later(run: Path) -> None:
        loaded = checkpoint.load(run / "checkpoint")
        checkpoint.save(
            run / "checkpoint", tensors=loaded.tensors, documents=loaded.documents, version=loaded.version + 1
        )

    def later_tokenizer(run: Path) -> None:
        content = json.loads((run / "tokenizer.json").read_text())
        (run / "tokenizer.json").write_text(json.dumps({**content, "version": content["version"] + 1}))

    def of(other: Path, *names: str) -> Callable[[Path], None]:
        def change(run: Path) -> None:
            for name in names:
                if (other / name).is_dir():
                    shutil.rmtree(run / name)
                    shutil.copytree(other / name, run / name)
                else:
                    shutil.copy(other / name, run / name)

        return change

    def beside(run: Path) -> None:
        inside = next((run / "checkpoint").glob("save-*"))
        shutil.copy(next((larger / "checkpoint").glob("save-*")) / "module.safetensors", inside)

    model = ("model.safetensors", "model.safetensors.sha256")
    inside = str(next((whole / "checkpoint").glob("save-*")).relative_to(whole))
    tokenizer = of(vocabulary, "tokenizer.json")
    yield "a checkpoint of a later version", later, "checkpoint", ()
    yield "a tokenizer of a later version", later_tokenizer, "tokenizer.json", ()
    yield "another run's tokenizer beside the model", tokenizer, "tokenizer.json", [as_model]
    yield "another run's tokenizer beside the checkpoint", tokenizer, "checkpoint", [as_training]
    yield "another run's model", of(larger, *model), "model.safetensors", ()
    yield "another run's model without its checksum", of(larger, model[0]), "model.safetensors", ()
    yield "a larger run's checkpoint", of(larger, "checkpoint"), "checkpoint", ()
    yield "another objective's checkpoint", of(exact, "checkpoint"), "checkpoint", ()
    yield "one file of another checkpoint", beside, f"{inside}/module.safetensors", ()
    strange = {"text": b"hello\n", "JSON": b"[1, 2]", "noise": bytes(range(256)) * 9, "object": b"{}"}
    strange["nesting"] = b"[" * 100_000
    for kind, data in strange.items():
        for path in covered(whole):
            name = str(path.relative_to(whole))
            yield f"{kind} as {name}", lambda run, n=name, d=data: (run / n).write_bytes(d), name, ()


class Bomb:
    """An object whose unpickling makes a folder."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.mkdir, (str(self.marker),)


def fix_checksums(run: Path, path: Path) -> None:
    """Make all checksums match a file, as a skilled attacker would."""
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    if path == Run(run).model:
        path.with_name(f"{path.name}.sha256").write_text(f"{digest}  {path.name}\n")
    elif path.parent.parent == Run(run).checkpoint and path.name != "manifest.json":
        manifest = path.with_name("manifest.json")
        content = json.loads(manifest.read_bytes())
        content["files"][path.name] = {"size": len(data), "sha256": digest}
        del content["sha256"]
        manifest.write_bytes(checkpoint._seal(content))
        pointer = {
            "save": path.parent.name,
            "manifest_sha256": hashlib.sha256(manifest.read_bytes()).hexdigest(),
        }
        (Run(run).checkpoint / "current.json").write_bytes(checkpoint._seal(pointer))


def pickle_in_place(lab: Lab, scale: float) -> Tally:
    """Replace every file of a run by a pickle or an archive of torch.save: it is refused and never unpickled.

    Where a file has a checksum, the archive comes with a matching one.
    """
    tally = lab.tally("a pickle in place of a file", "not run, and refused where the file is read")
    marker, archive = lab.path("marker"), lab.path("archive")
    torch.save(Bomb(marker), archive)
    payloads = {"pickle": pickle.dumps(Bomb(marker)), "archive": archive.read_bytes()}
    whole = lab.finished(*OPTIONS)
    names = [path.relative_to(whole) for path in files_of(whole)]
    for name, (kind, payload) in product(spread(names, fraction(scale, len(names))), payloads.items()):
        for loader in readers(whole, whole / name) or [as_training]:
            run = lab.copy(whole)
            path = run / name
            path.write_bytes(payload)
            if kind == "archive":
                fix_checksums(run, path)
            for action in commands(lab, run, [loader]):
                ended = lab.run(action)
                wrong = [*ended.complaints(4, str(path))] if readers(run, path) else []
                if "Traceback" in ended.errors or marker.exists():
                    wrong.append(f"run: {marker.exists()}; {ended.errors[-300:]}")
                tally.check(f"{kind} as {path.name}: {c}" for c in wrong)
            shutil.rmtree(run)
    pickle.loads(payloads["pickle"])
    if not marker.exists():
        tally.check(["the payload itself is harmless, so nothing was tested"])
    return tally


# Files without a checksum of their own


def config(lab: Lab, scale: float) -> Tally:
    """Damage config.toml: it is refused, or read with its original content."""
    tally = lab.tally("config.toml truncated or a bit flipped", "refused with its name, or read as it was")
    return damage_uncovered_file(
        lab, tally, "config.toml", [as_training, as_model], count=fraction(scale, 256)
    )


def cache(lab: Lab, scale: float) -> Tally:
    """Damage encoded text: it is encoded again, or refused."""
    tally = lab.tally("the cache truncated or a bit flipped", "encoded anew to the same batches")
    for name in ("source.ids", "source.offsets", "target.ids", "target.offsets", "lines", "corpus.json"):
        damage_uncovered_file(lab, tally, f"cache/train/{name}", [as_training], count=fraction(scale, 32))
    return tally


STRANGE_LINES = [
    b"null", b"{}", b"[]", b"{", b"\xff\xfe", b"a\0b", b"[" * 100_000, b'{"kind": "validation"}',
    b'{"step": 3}', b'{"kind": "training", "step": "3"}', b'{"kind": 1, "step": 1e400}',
]  # fmt: skip


def metrics(lab: Lab, scale: float) -> Tally:
    """Damage metrics.jsonl: complete lines are kept and training continues."""
    tally = lab.tally("metrics.jsonl truncated or a bit flipped", "read without the lines that are not whole")
    run = lab.copy(lab.finished(*OPTIONS))
    path = Run(run).metrics

    def each() -> list[list[str]]:
        good, found, wanted = path.read_bytes(), [], as_training(run)
        lines = good.split(b"\n")[:-1]
        added = ((f"{line[:20]!r} added", good + line + b"\n") for line in STRANGE_LINES)
        for what, bad in (*damages(good, fraction(scale, 128)), *added):
            path.write_bytes(bad)
            try:
                same = differences(as_training(run), wanted)
                kept = [json.dumps(r).encode() for r in Run(run).history()]
                lost = sum(line in bad.split(b"\n") and line not in kept for line in lines)
                complaints = [*same, *([f"{lost} whole lines lost"] if lost else [])]
            except Exception as error:
                complaints = [f"{type(error).__name__}: {error}"]
            found.append([f"{what}: {c}" for c in complaints])
        return found

    for complaints in lab.ask(each):
        tally.check(complaints)
    return tally


def damage_uncovered_file(
    lab: Lab, tally: Tally, name: str, loaders: Iterable[Loader], *, count: int
) -> Tally:
    """Damage a file without a checksum: it is refused by name, or read with its original content."""
    whole = lab.finished(*OPTIONS)
    run = lab.copy(whole)
    path = run / name

    def each() -> list[list[str]]:
        good, found = path.read_bytes(), []
        for reader in loaders:
            path.write_bytes(good)
            wanted = reader(run)
            for what, bad in damages(good, count):
                path.write_bytes(bad)
                try:
                    complaints = list(differences(reader(run), wanted))
                except LatentAlignError as error:
                    complaints = [] if str(path) in str(error) else [f"not named: {error}"]
                except Exception as error:
                    complaints = [f"{type(error).__name__}: {error}"]
                found.append([f"{name} {what}, {reader.__name__}: {c}" for c in complaints])
        return found

    for complaints in lab.ask(each):
        tally.check(complaints)
    shutil.rmtree(run)
    return tally
