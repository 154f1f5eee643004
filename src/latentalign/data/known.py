"""Known corpora: generated, downloaded with a checksum, or copied from a local folder."""

from __future__ import annotations

import gzip
import urllib.error
import urllib.request
import zlib
from dataclasses import dataclass
from pathlib import Path

from latentalign.data import daquar, demo, spelling
from latentalign.errors import InputError, StorageError
from latentalign.storage import explain_write_errors, read_input, sha256, write_bytes
from latentalign.textfiles import count_lines

HOME = Path("latentalign-data")
"""The folder for corpora, relative to the current one. Shipped recipes look for their data there."""


@dataclass(frozen=True)
class File:
    """One file of a corpus: its checksum and its address, if known."""

    name: str
    lines: int | None = None
    sha256: str | None = None
    address: str | None = None


@dataclass(frozen=True)
class KnownCorpus:
    """A corpus: its files, and how to get them if they cannot be downloaded."""

    files: tuple[File, ...]
    advice: str


_MULTI30K = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/"

CORPORA: dict[str, KnownCorpus] = {
    "multi30k": KnownCorpus(
        (
            File(
                "train.de",
                29_000,
                "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72",
                _MULTI30K + "train.de.gz",
            ),
            File(
                "train.en",
                29_000,
                "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6",
                _MULTI30K + "train.en.gz",
            ),
            File(
                "valid.de",
                1_014,
                "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660",
                _MULTI30K + "val.de.gz",
            ),
            File(
                "valid.en",
                1_014,
                "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227",
                _MULTI30K + "val.en.gz",
            ),
            File(
                "test.de",
                1_000,
                "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
                _MULTI30K + "test_2016_flickr.de.gz",
            ),
            File(
                "test.en",
                1_000,
                "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
                _MULTI30K + "test_2016_flickr.en.gz",
            ),
        ),
        "the raw files of task 1 of the public Multi30k repository",
    ),
    "iwslt14": KnownCorpus(
        tuple(File(f"{split}.{side}") for split in ("train", "valid", "test") for side in ("de", "en")),
        "prepare the IWSLT 2014 German-English task as Edunov et al. (2017) did (lowercased, Moses tokens, "
        "160,239 / 7,283 / 6,750 pairs) and pass the folder with --from",
    ),
    "iwslt14-part": KnownCorpus(
        (
            File("train.de", 52_365, "3461746172d059557a5ba28ddc0932305c6d954a9b37cb80de14cfb815eaaf40"),
            File("train.en", 52_365, "3b8dc01bc92ae90e6449ba355c845005130307ef277f0824286cf7b2a64c0f26"),
            File("valid.de", 7_282, "b09d2ab5797dbf31f67313cc0df74850819556733f5871ceed5ef85ee796845d"),
            File("valid.en", 7_282, "c685db703558e94a2ca9a22c4947e5f34edb946895d7fec571b1854c900a18d6"),
            File("test.de", 6_750, "b899a137e81dc3e3c34f5a2cf16c09880ab33b8d22252483ff9c049b2a34e203"),
            File("test.en", 6_750, "1685cc2a0c169051b66957d7f56056341161dc4617a849b649e84cdac5b73e24"),
        ),
        "it is a part of the IWSLT 2014 German-English task, prepared as for iwslt14, with 52,365 / 7,282 / 6,750 "
        "pairs; pass the folder of your copy with --from. Another part of the training text needs a recipe of its own",
    ),
    "g2p": KnownCorpus(
        tuple(
            File(f"{language}_{split}.tsv")
            for language in ("fre", "hin", "hun", "ice", "jpn")
            for split in ("train", "dev", "test")
        ),
        "get the data of SIGMORPHON 2020 task 1 from the shared task's public repository, and pass the folder with "
        "--from",
    ),
    "vqa2": KnownCorpus(
        tuple(
            File(f"{kind}.{split}.json")
            for split in ("train", "valid")
            for kind in ("questions", "annotations")
        ),
        "get the official questions and annotations of VQA 2.0, name them questions.train.json, annotations.train.json "
        "and so on (gzip is fine), and pass the folder with --from",
    ),
    "wmt17": KnownCorpus(
        tuple(File(f"{split}.{side}") for split in ("train", "valid", "test") for side in ("en", "de")),
        "prepare WMT 2017 English-German as Vaswani et al. (2017) did, with newstest2017 as the test set, and "
        "pass the folder with --from",
    ),
}


def names() -> list[str]:
    """The names of all corpora that `latentalign data` knows."""
    return ["demo", "spelling", *CORPORA, "scenes", "daquar"]


def obtain(name: str, *, source: Path | None, out: Path, overwrite: bool = False) -> list[str]:
    """Put a corpus into a folder and return one line of report per file. Replaces files only with `overwrite`."""
    if name in ("demo", "spelling"):
        write = demo.write if name == "demo" else spelling.write
        write(out, overwrite=overwrite)
        return [f"{out}: generated"]
    if name == "scenes":
        from latentalign.data import scenes  # needs Pillow, which translation does not

        scenes.write(out, overwrite=overwrite)
        return [f"{out}: generated"]
    if name == "daquar":
        if source is None:
            raise InputError(
                "daquar cannot be downloaded: pass the folder that contains all_qa_pairs.txt with --from"
            )
        parts = daquar.convert(source, out, overwrite=overwrite)
        return [f"{out}: {split}, {part.questions} questions" for split, part in parts.items()]
    if name not in CORPORA:
        raise InputError(f"unknown corpus {name!r}; choose one of {', '.join(names())}")
    return _obtain_files(name, CORPORA[name], source=source, out=out, overwrite=overwrite)


def _obtain_files(
    name: str, corpus: KnownCorpus, *, source: Path | None, out: Path, overwrite: bool
) -> list[str]:
    """Copy or download the files of a corpus."""
    present = [out / f.name for f in corpus.files if (out / f.name).exists()]
    if present and not overwrite:
        raise InputError(f"{present[0]} already exists; add --overwrite to replace it")
    contents = [(f, read_local(source, f) if source else download(f, corpus, name)) for f in corpus.files]
    with explain_write_errors(out, sum(len(data) for _, data in contents)):
        out.mkdir(parents=True, exist_ok=True)
    for file, data in contents:
        write_bytes(out / file.name, data)
    text = [f for f in corpus.files if not f.name.endswith((".json", ".tsv"))]
    for first, second in zip(text[::2], text[1::2], strict=True):
        counts = count_lines(out / first.name), count_lines(out / second.name)
        if counts[0] != counts[1]:
            raise InputError(f"{first.name} has {counts[0]} lines, {second.name} has {counts[1]}")
    return [f"{out / f.name}: {len(data):,} bytes, sha256 {sha256(data)}" for f, data in contents]


def read_local(folder: Path, file: File) -> bytes:
    """A file of a local copy, plain or gzip. It may have our name or its public name."""
    names = [file.name, *([Path(file.address).name.removesuffix(".gz")] if file.address else [])]
    for path in (folder / f"{name}{end}" for name in dict.fromkeys(names) for end in ("", ".gz")):
        if path.is_file():
            data = read_input(path)
            try:
                unpacked = gzip.decompress(data) if path.suffix == ".gz" else data
            except (EOFError, OSError, zlib.error) as error:
                raise InputError(f"{path}: damaged: {error}") from None
            return _check(unpacked, file, str(path))
    raise InputError(f"{folder}: no {' or '.join(dict.fromkeys(names))}, plain or .gz")


def download(file: File, corpus: KnownCorpus, name: str) -> bytes:
    """A file from its address. The checksum is that of the unpacked text."""
    if file.address is None:
        raise InputError(f"{name} cannot be downloaded: {corpus.advice}")
    try:
        with urllib.request.urlopen(file.address, timeout=60) as answer:
            return _check(gzip.decompress(answer.read()), file, file.address)
    except (urllib.error.URLError, OSError, EOFError, zlib.error) as error:
        raise StorageError(f"{file.address}: {error}; or get {corpus.advice}, and pass --from DIR") from None


def _check(data: bytes, file: File, where: str) -> bytes:
    """The bytes, if they have the right checksum."""
    if file.sha256 is not None and sha256(data) != file.sha256:
        raise InputError(
            f"{where}: sha256 is {sha256(data)}, expected {file.sha256}; this is another version"
        )
    return data


def advise_on_corpus(path: Path) -> str:
    """How to get a file of a known corpus that is missing, to be added to an error message; empty for other files."""
    folder = path.absolute().parent
    if path.name.startswith("features"):
        return (
            f"; compute it with `latentalign features PICTURES --extractor efficientnet-lite0 --out {path}`, "
            "or convert features that you have"
        )
    if folder.parent != HOME.absolute() or folder.name not in names():
        return ""
    if can_be_made(folder.name):
        return f"; run `latentalign data {folder.name}` first"
    return f"; run `latentalign data {folder.name} --from DIR` with the folder of your copy first"


def can_be_made(name: str) -> bool:
    """Whether a corpus can be generated or downloaded."""
    known = CORPORA.get(name)
    return name in ("demo", "scenes") if known is None else all(file.address for file in known.files)


def materialize(needed: Path) -> None:
    """Generate the data of an embedded language or world, if a recipe needs a file of it that is absent."""
    for name in ("demo", "spelling", "scenes"):
        if not needed.exists() and needed.parent.absolute() == (HOME / name).absolute():
            obtain(name, source=None, out=HOME / name, overwrite=True)
