"""Files are replaced completely or not at all, damage is noticed, and every error says what to do."""

import gzip
import json
import math
import os
import shutil
import subprocess

import pytest
import safetensors

from latentalign import storage
from latentalign.errors import CheckpointError, InputError, StorageError
from latentalign.storage import read_tensors, write_tensors
from support.disk import content, damages, files_of, killed_at, same_tensors


def test_checked_tensors_come_back_with_their_metadata(tmp_path):
    path, tensors = tmp_path / "model.safetensors", content(1)["tensors"]["model"]
    metadata = {"config": "a = 'ü'\n", "version": "1", **{str(i): "x" * i for i in range(9)}}
    write_tensors(path, tensors, metadata)
    assert same_tensors(read_tensors(path)[0], tensors)
    assert read_tensors(path)[1] == metadata
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.safetensors", "model.safetensors.sha256"]
    with safetensors.safe_open(path, framework="pt") as file:
        assert file.metadata() == metadata
    write_tensors(path, tensors, {})
    assert read_tensors(path)[1] == {}
    if shutil.which("sha256sum"):
        subprocess.run(["sha256sum", "-c", "--strict", f"{path.name}.sha256"], cwd=tmp_path, check=True)


def test_the_same_content_gives_the_same_bytes(tmp_path):
    tensors, metadata = content(1)["tensors"]["model"], {str(i): str(i) for i in range(20)}
    for i in range(4):
        write_tensors(tmp_path / f"{i}", tensors, metadata)
    assert len({(tmp_path / f"{i}").read_bytes() for i in range(4)}) == 1


def test_any_damage_to_checked_tensors_is_named(tmp_path):
    path = tmp_path / "model.safetensors"
    write_tensors(path, content(1)["tensors"]["model"], {"a": "b"})
    for damaged in files_of(tmp_path):
        good = damaged.read_bytes()
        for bad in damages(good):
            damaged.write_bytes(bad)
            with pytest.raises(CheckpointError, match="checksum mismatch") as caught:
                read_tensors(path)
            assert str(path) in str(caught.value)
        damaged.unlink()
        with pytest.raises(CheckpointError, match="missing"):
            read_tensors(path)
        damaged.write_bytes(good)


@pytest.mark.slow
def test_a_kill_leaves_the_old_or_the_new_checked_tensors(tmp_path):
    path, killed, n = tmp_path / "model.safetensors", True, 0
    old, new = content(1)["tensors"]["model"], content(2)["tensors"]["model"]
    while killed:
        n += 1
        write_tensors(path, old, {})
        killed = killed_at(n, lambda: write_tensors(path, new, {}))
        tensors, _ = read_tensors(path)
        assert same_tensors(tensors, old) or (n > 4 and same_tensors(tensors, new))
    assert n > 12
    assert len(files_of(tmp_path)) == 2


def test_single_files_are_replaced_whole_or_not_at_all(tmp_path):
    path, killed, n = tmp_path / "card.json", True, 0
    while killed:
        n += 1
        storage.write_json(path, {"a": [1]})
        killed = killed_at(n, lambda: storage.write_json(path, {"b": "ü" * 99}))
        assert json.loads(path.read_bytes()) in ({"a": [1]}, {"b": "ü" * 99})
    assert n > 4
    storage.write_bytes(path, b"x")
    assert path.read_bytes() == b"x"
    assert files_of(tmp_path) == [path]
    with pytest.raises(ValueError, match="JSON compliant"):
        storage.write_json(path, {"ppl": math.nan})
    with pytest.raises(StorageError, match="absent"):
        storage.write_bytes(tmp_path / "absent" / "file", b"")


def test_a_file_that_is_not_durable_is_still_replaced_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: pytest.fail("waited for the disk"))
    storage.write_bytes(tmp_path / "picture", b"old", durable=False)
    storage.write_bytes(tmp_path / "picture", b"new", durable=False)
    assert (tmp_path / "picture").read_bytes() == b"new"
    assert files_of(tmp_path) == [tmp_path / "picture"]


@pytest.mark.parametrize("read", [storage.read_input, storage.read_json_input, storage.fingerprint])
def test_a_wrong_path_of_a_user_is_bad_input(read, tmp_path):
    (tmp_path / "file").write_text("{}")
    for path in (tmp_path / "absent", tmp_path / "file" / "below", "a\0b"):
        with pytest.raises(InputError, match="no such file"):
            read(path)
    with pytest.raises(InputError, match="is a directory"):
        read(tmp_path)


def test_a_json_file_of_a_user_is_read_or_refused_with_the_reason(tmp_path):
    path = tmp_path / "file.json"
    path.write_text('{"a": [1]}')
    assert storage.read_json_input(path) == {"a": [1]}
    for text in ("{", "[" * 100_000):
        path.write_text(text)
        with pytest.raises(InputError, match=r"file\.json: not valid JSON"):
            storage.read_json_input(path)


def test_a_missing_file_of_a_run_says_how_to_recover(tmp_path):
    with pytest.raises(CheckpointError, match=r"absent: the file is missing; restore it"):
        storage.read_saved(tmp_path / "absent")
    with pytest.raises(CheckpointError, match="cannot be read"):
        storage.read_saved(tmp_path)


def test_an_output_never_replaces_a_file_unasked_and_needs_a_folder(tmp_path):
    path = tmp_path / "out.json"
    storage.require_free(path, overwrite=False)
    path.write_text("{}")
    storage.require_free(path, overwrite=True)
    with pytest.raises(InputError, match=r"out\.json exists; add --overwrite"):
        storage.require_free(path, overwrite=False)
    with pytest.raises(InputError, match=r"the folder .*absent does not exist"):
        storage.require_free(tmp_path / "absent" / "out.json", overwrite=True)


def test_a_folder_can_be_made_below_folders_alone(tmp_path, monkeypatch):
    storage.require_folder_place(tmp_path)
    storage.require_folder_place(tmp_path / "new" / "below")
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InputError, match="file: is a file, expected a folder"):
            storage.require_folder_place(path)
    (tmp_path / "link").symlink_to(tmp_path / "absent")
    with pytest.raises(InputError, match=r"link: is a symbolic link to .*absent, which does not exist"):
        storage.require_folder_place(tmp_path / "link" / "below")
    asked = []
    monkeypatch.setattr(os, "access", lambda place, mode: asked.append((place, mode)))
    with pytest.raises(StorageError, match="no permission to write"):
        storage.require_folder_place(tmp_path / "new")
    assert asked == [(tmp_path, os.W_OK | os.X_OK)]


def test_gzip_data_are_unpacked_and_everything_else_is_as_it_is(tmp_path):
    for data in (b"", b"plain", gzip.compress(b"packed")):
        (tmp_path / "file").write_bytes(data)
        expected = b"packed" if data.startswith(b"\x1f\x8b") else data
        assert storage.read_unpacked(tmp_path / "file") == expected
        assert storage.read_input(tmp_path / "file") == data
    for read in (storage.read_unpacked, storage.read_input, storage.fingerprint):
        with pytest.raises(InputError, match=r"is a directory, expected a file$"):
            read(tmp_path)
