"""A checkpoint survives a kill at any instant, and no damaged byte is ever taken for a good one."""

import errno
import hashlib
import json
import os
import pickle
import random
import shutil
from collections import namedtuple
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from latentalign import storage
from latentalign.errors import CheckpointError, StorageError
from latentalign.storage import read_tensors, write_tensors
from latentalign.training import checkpoint
from latentalign.training.checkpoint import load, save
from support.disk import Interrupt, content, damages, files_of, killed_at, same_tensors

Usage = namedtuple("Usage", "total used free")


def same(loaded: checkpoint.Loaded, seed: int) -> bool:
    wanted = content(seed)
    return (
        loaded.documents == wanted["documents"]
        and loaded.tensors.keys() == wanted["tensors"].keys()
        and all(same_tensors(loaded.tensors[stem], named) for stem, named in wanted["tensors"].items())
    )


def assert_only_one_save_is_left(folder: Path) -> None:
    names = sorted(os.listdir(folder))
    assert names[0] == "current.json"
    assert len(names) == 2
    assert names[1].startswith("save-")


def test_what_is_saved_is_loaded(tmp_path):
    for seed in (1, 2, 3):
        save(tmp_path / "a" / "checkpoint", **content(seed))
        loaded = load(tmp_path / "a" / "checkpoint")
        assert same(loaded, seed)
        assert loaded.version == checkpoint.VERSION
        assert_only_one_save_is_left(tmp_path / "a" / "checkpoint")
    loaded.tensors["model"]["weight"].add_(1)  # loaded tensors can be trained on


def test_an_empty_checkpoint_is_one(tmp_path):
    assert not checkpoint.exists(tmp_path)
    save(tmp_path, tensors={"none": {}}, documents={})
    assert checkpoint.exists(tmp_path)
    assert load(tmp_path) == checkpoint.Loaded({"none": {}}, {}, checkpoint.VERSION)


@pytest.mark.slow
def test_any_damage_to_any_file_is_named(tmp_path):
    folder = tmp_path / "checkpoint"
    save(folder, **content(1))
    assert len(files_of(folder)) == 5
    for path in files_of(folder):
        good = path.read_bytes()
        for bad in damages(good):
            path.write_bytes(bad)
            with pytest.raises(CheckpointError) as caught:
                load(folder)
            assert "checksum mismatch" in str(caught.value)
            assert str(path) in str(caught.value)
        path.write_bytes(good)
    assert same(load(folder), 1)


def test_a_missing_file_is_named_and_no_older_save_stands_in(tmp_path):
    folder = tmp_path / "checkpoint"
    save(folder, **content(1))
    shutil.copytree(next(folder.glob("save-*")), folder / "save-00000000")
    for path in files_of(folder):
        if path.parent.name == "save-00000000":
            continue
        good = path.read_bytes()
        path.unlink()
        with pytest.raises(
            CheckpointError, match="no checkpoint" if path.name == "current.json" else path.name
        ):
            load(folder)
        path.mkdir()
        with pytest.raises(CheckpointError, match=path.name):
            load(folder)
        path.rmdir()
        path.write_bytes(good)


def test_all_files_are_verified_before_any_is_parsed(tmp_path, monkeypatch):
    save(tmp_path, **content(1))
    last = files_of(tmp_path)[-1]
    last.write_bytes(last.read_bytes()[:-1])
    monkeypatch.setattr(safetensors.torch, "load", lambda data: pytest.fail("parsed"))
    with pytest.raises(CheckpointError, match="checksum mismatch"):
        load(tmp_path)


class Bomb:
    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("resealed", [False, True])
def test_a_pickle_under_any_name_is_refused_and_not_run(tmp_path, resealed):
    marker, folder = tmp_path / "exploded", tmp_path / "checkpoint"
    payload = pickle.dumps(Bomb(marker))
    save(folder, **content(1))
    for path in files_of(folder):
        shutil.rmtree(folder)
        save(folder, **content(1))
        path = path if path.parent == folder else next(folder.glob("save-*")) / path.name
        path.write_bytes(payload)
        if resealed and path.name not in ("current.json", "manifest.json"):
            reseal(folder, lambda m, name=path.name: m["files"][name].update(facts(payload)))
        with pytest.raises(CheckpointError, match=path.name):
            load(folder)
    path = tmp_path / "model.safetensors"
    path.write_bytes(payload)
    (tmp_path / "model.safetensors.sha256").write_text(f"{facts(payload)['sha256']}  {path.name}\n")
    with pytest.raises(CheckpointError, match="not in safetensors format"):
        read_tensors(path)
    assert not marker.exists()
    pickle.loads(payload)
    assert marker.exists(), "the payload itself is harmless: the test would prove nothing"


def facts(data: bytes) -> dict:
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def reseal(folder: Path, change) -> None:
    """Changes the manifest as someone would who also knows how to mend all sums."""
    path = next(folder.glob("save-*")) / "manifest.json"
    manifest = json.loads(path.read_bytes())
    del manifest["sha256"]
    change(manifest)
    path.write_bytes(checkpoint._seal(manifest))
    pointer = {"save": path.parent.name, "manifest_sha256": facts(path.read_bytes())["sha256"]}
    (folder / "current.json").write_bytes(checkpoint._seal(pointer))


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["files"].update({"../../outside.json": facts(b"{}")}),
        lambda m: m["files"].update({"manifest.json": facts(b"{}")}),
        lambda m: m["files"].update({"model.safetensors": None}),
        lambda m: m["files"]["model.safetensors"].pop("size"),
        lambda m: m.update(files=[]),
        lambda m: m.update(version="1"),
        lambda m: m.pop("version"),
        lambda m: m.update(format="something else"),
    ],
)
def test_a_well_sealed_but_senseless_manifest_is_refused(tmp_path, change):
    (tmp_path / "outside.json").write_bytes(b"{}")
    save(tmp_path / "c", **content(1))
    reseal(tmp_path / "c", lambda m: None)
    assert same(load(tmp_path / "c"), 1)
    reseal(tmp_path / "c", change)
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        load(tmp_path / "c")


@pytest.mark.parametrize("sealed", [{"save": "../c"}, {"save": 3, "manifest_sha256": ""}, {"x": 1}])
def test_a_well_sealed_but_senseless_pointer_is_refused(tmp_path, sealed):
    save(tmp_path, **content(1))
    (tmp_path / "current.json").write_bytes(checkpoint._seal(sealed))
    with pytest.raises(CheckpointError, match=r"current\.json"):
        load(tmp_path)


@pytest.mark.parametrize("version", [0, 2, 99])
def test_an_unknown_version_is_refused_with_those_that_can_be_read(tmp_path, version):
    save(tmp_path, **content(1), version=version)
    with pytest.raises(CheckpointError, match=rf"version {version}; this program reads .* version 1"):
        load(tmp_path)
    assert load(tmp_path, versions=(version,)).version == version


def test_names_that_could_leave_the_folder_are_refused(tmp_path):
    for stem in ("../a", "manifest", "", ".a", "a/b"):
        with pytest.raises(ValueError, match="name of a file"):
            save(tmp_path, tensors={}, documents={stem: 1})


# --- interruptions --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("first", [False, True])
def test_a_kill_at_any_instant_leaves_the_old_or_the_new_checkpoint(tmp_path, first):
    if not first:
        save(tmp_path / "before", **content(1))
    outcomes, n = [], 0
    while True:
        n += 1
        folder = tmp_path / f"kill-{n}"
        if not first:
            shutil.copytree(tmp_path / "before", folder)
        killed = killed_at(n, lambda folder=folder: save(folder, **content(2)))
        if first and not checkpoint.exists(folder):
            outcomes.append("old")
        else:
            loaded = load(folder)
            outcomes.append("new" if same(loaded, 2) else "old")
            assert same(loaded, 2) or same(loaded, 1)
        save(folder, **content(3))
        assert same(load(folder), 3)
        assert_only_one_save_is_left(folder)
        if not killed:
            break
    assert outcomes == sorted(outcomes, reverse=True), "once new, never old again"
    assert outcomes.count("old") >= 15
    assert outcomes[-1] == "new"


@contextmanager
def suppress_storage_error(messages: list[str]):
    try:
        yield
    except StorageError as error:
        messages.append(str(error))


@pytest.mark.parametrize(
    ("number", "words"), [(errno.ENOSPC, "need "), (errno.EDQUOT, "quota"), (errno.EIO, "cannot")]
)
def test_a_failing_disk_is_reported_and_leaves_no_debris(tmp_path, number, words):
    def strike():
        raise OSError(number, os.strerror(number))

    folder = tmp_path / "checkpoint"
    save(folder, **content(1))
    messages, interrupt = [], Interrupt(0, strike, deletions=False)
    while interrupt.left <= 0:  # the last one was reached
        interrupt = Interrupt(
            len(messages) + 2, strike, deletions=False
        )  # the first call finds the folder there
        with pytest.MonkeyPatch.context() as patch:
            interrupt.install(patch)
            with suppress_storage_error(messages):
                save(folder, **content(2))
        was_published = same(load(folder), 2)
        assert was_published or same(load(folder), 1)
        assert not list(folder.rglob(".*"))
        if was_published:
            save(folder, **content(1))
        assert_only_one_save_is_left(folder)
    assert len(messages) >= 15
    assert all(words in message and str(folder) in message for message in messages)


def test_an_interrupt_from_the_keyboard_leaves_no_debris(tmp_path):
    def strike():
        raise KeyboardInterrupt

    save(tmp_path, **content(1))
    with pytest.MonkeyPatch.context() as patch:
        Interrupt(5, strike, deletions=False).install(patch)
        with pytest.raises(KeyboardInterrupt):
            save(tmp_path, **content(2))
    assert same(load(tmp_path), 1)
    assert_only_one_save_is_left(tmp_path)


def test_too_little_space_is_seen_before_anything_is_written(tmp_path, monkeypatch):
    save(tmp_path / "c", **content(1))
    before = {path: path.read_bytes() for path in files_of(tmp_path)}
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**9, 10**9, 1_300_000))
    big = {"model": {"w": torch.zeros(10**6)}}
    monkeypatch.setattr(storage, "open", lambda *a: pytest.fail("written"), raising=False)
    with pytest.raises(StorageError, match=r"need 4\.\d MB, have 1\.3 MB in .*c"):
        save(tmp_path / "c", tensors=big, documents={})
    with pytest.raises(StorageError, match=r"need 4\.\d MB, have 1\.3 MB"):
        write_tensors(tmp_path / "model.safetensors", big["model"], {})
    assert {path: path.read_bytes() for path in files_of(tmp_path)} == before


def test_a_damaged_pointer_deletes_nothing_until_a_new_save_is_complete(tmp_path):
    save(tmp_path, **content(1))
    good = (tmp_path / "current.json").read_bytes()
    (tmp_path / "current.json").write_bytes(b"")
    if killed_at(8, lambda: save(tmp_path, **content(2))):
        (tmp_path / "current.json").write_bytes(good)
        assert same(load(tmp_path), 1)
    (tmp_path / "current.json").write_bytes(b"")
    save(tmp_path, **content(3))
    assert same(load(tmp_path), 3)
    assert_only_one_save_is_left(tmp_path)


# --- random numbers -------------------------------------------------------------------------------------


def draws() -> list[float]:
    return [random.gauss(), random.random(), np.random.normal(), np.random.rand(), *torch.randn(3).tolist()]


@pytest.mark.parametrize("before", [0, 1, 2])
def test_restored_random_states_give_the_same_draws(tmp_path, before):
    for _ in range(before):
        random.gauss(), np.random.normal()  # an odd number leaves one draw cached
    save(tmp_path, tensors={"random": checkpoint.random_state()}, documents={})
    expected = [draws() for _ in range(5)]
    random.seed(5), np.random.seed(5), torch.manual_seed(5)
    assert draws() != expected[0]
    checkpoint.restore_random_state(load(tmp_path).tensors["random"])
    assert [draws() for _ in range(5)] == expected


def test_unusable_random_states_are_refused():
    good = checkpoint.random_state()
    for name in ("python", "numpy", "numpy.gauss", "torch"):
        with pytest.raises(CheckpointError, match="random states"):
            checkpoint.restore_random_state({**good, name: torch.zeros(3)})
        with pytest.raises(CheckpointError, match="random states"):
            checkpoint.restore_random_state({k: v for k, v in good.items() if k != name})
    checkpoint.restore_random_state(good)
