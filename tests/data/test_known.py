"""Known corpora from a local copy, under our names and the public ones."""

import gzip
from dataclasses import replace

import pytest

from latentalign.data import known
from latentalign.errors import InputError


@pytest.fixture
def unchecked(monkeypatch):
    """Multi30k without its checksums, so that two lines will do."""
    whole = known.CORPORA["multi30k"]
    files = tuple(replace(file, sha256=None, lines=None) for file in whole.files)
    monkeypatch.setitem(known.CORPORA, "multi30k", replace(whole, files=files))
    return files


def test_files_are_taken_under_the_names_the_public_repository_gives_them(tmp_path, unchecked):
    source = tmp_path / "public"
    source.mkdir()
    for file in unchecked:
        name = file.address.rpartition("/")[2]
        (source / name).write_bytes(gzip.compress(f"{file.name}\n".encode()))
    assert (source / "val.de.gz").is_file()
    assert (source / "test_2016_flickr.en.gz").is_file()
    known.obtain("multi30k", source=source, out=tmp_path / "out")
    for file in unchecked:
        assert (tmp_path / "out" / file.name).read_text() == f"{file.name}\n"
    (source / "val.de.gz").unlink()
    with pytest.raises(InputError, match=r"no valid\.de or val\.de, plain or \.gz"):
        known.obtain("multi30k", source=source, out=tmp_path / "again")
