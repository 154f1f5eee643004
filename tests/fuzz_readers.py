"""Feeds hostile files to every reader: only the project's own errors may come out.

    python tests/fuzz_readers.py 100000             that many inputs, spread over the readers
    python tests/fuzz_readers.py 1000 recipe        those readers whose name contains a word
    python tests/fuzz_readers.py --seed 17 recipe   one input again, with its traceback

Each input is random bytes or a valid file that was damaged, a function of the reader's name and the seed
alone. A reader may read it, if what it gives back is consistent, or refuse it; anything else is a failure,
printed with its seed and a minimal input. The command ends with code 1 when there are any.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import hashlib
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from random import Random

import numpy as np
import torch

from latentalign import config
from latentalign.data import demo
from latentalign.errors import InputError, LatentAlignError
from latentalign.tasks.nmt.link_formats import LARGEST, read_gold, read_links
from latentalign.tasks.nmt.links import Gold, format_pharaoh
from latentalign.tasks.nmt.task import NMTConfig
from latentalign.tasks.nmt.tokenizer import Tokenizer, TokenizerConfig
from latentalign.tasks.vqa import layouts
from latentalign.tasks.vqa.accuracy import accuracies
from latentalign.tasks.vqa.features import Features, write_features
from latentalign.tasks.vqa.questions import read_annotations, read_questions, read_results, write_results
from latentalign.tasks.vqa.vectors import read_vectors
from latentalign.textfiles import BYTE_ORDER_MARK, count_lines, decode_lines, read_lines, read_parallel
from latentalign.training import checkpoint
from latentalign.training.run import Run

SLOW = 5.0
"""Seconds beyond which an input counts as a failure: a reader must not hang."""


# Damage

ODD = (
    *(text.encode() for text in ("\u2028", "\u2029", "\u0085", "\ufeff", "\ufffd", "\xa0", "٣", "𝟗", "\U0010ffff")),
    *(b"\0", b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xf8\x88\x80\x80\x80", b"\x1a", b"\x7f"),
    *(b"\n", b"\r", b"\r\n", b"\n\n\n", b" ", b"\t", b"\\", b'"', b"'", b'"""', b"#", b"=", b".", b",", b"{}", b"[]"),
    *(b"-1", b"0", b"00", b"1e999", b"-0", b"nan", b"-inf", b"NaN", b"Infinity", b"0x" + b"f" * 5000, b"1_0", b"true"),
    *(b"null", b"{}", b"[", b"{", b'"\\ud800"', b'"\\u0000"', b"1979-05-27T07:32:00Z", b"25:61:61", b"1-1", b"0?0"),
    *(b"9" * 19, b"9" * 400, b"9" * 5000, b"0-" + b"9" * 30, b"1." + b"0" * 3000),
)  # fmt: skip
NESTS = ((b"[", b"]"), (b'{"a":', b"}"), (b"{a=", b"}"), (b"a.", b"b=1"), (b"[[", b"]]"), (b"(", b")"))


def _cut(random: Random, data: bytes) -> tuple[int, int]:
    """A stretch of a file: mostly short, sometimes anything."""
    start = random.randrange(len(data) + 1)
    size = random.randrange(1, 9) if random.random() < 0.6 else random.randrange(len(data) + 1)
    return start, min(len(data), start + size)


def flip(random: Random, data: bytes) -> bytes:
    """A few bits the other way round."""
    changed = bytearray(data or b"\0")
    for _ in range(random.randrange(1, 4)):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def truncate(random: Random, data: bytes) -> bytes:
    """Only the beginning, or only the end."""
    place = random.randrange(len(data) + 1)
    return data[:place] if random.random() < 0.7 else data[place:]


def delete(random: Random, data: bytes) -> bytes:
    start, stop = _cut(random, data)
    return data[:start] + data[stop:]


def duplicate(random: Random, data: bytes) -> bytes:
    start, stop = _cut(random, data)
    place = random.randrange(len(data) + 1)
    return data[:place] + data[start:stop] * random.choice((1, 1, 2, 30)) + data[place:]


def swap(random: Random, data: bytes) -> bytes:
    a, b, c, d = sorted(random.randrange(len(data) + 1) for _ in range(4))
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]


def insert(random: Random, data: bytes) -> bytes:
    """Something odd at some place, or instead of what stands there."""
    start, stop = _cut(random, data)
    return data[:start] + random.choice(ODD) + data[start if random.random() < 0.6 else stop :]


def number(random: Random, data: bytes) -> bytes:
    """Another number for one that stands there."""
    places = [place for place, byte in enumerate(data[:5000]) if 48 <= byte <= 57]
    if not places:
        return insert(random, data)
    place = random.choice(places)
    other = random.choice(
        (b"-1", b"1e400", b"9" * 5000, b"0x1", b"1.5", b"999999", b"1000000", b"", b"true", b'"3"')
    )
    return data[:place] + other + data[place + 1 :]


def nest(random: Random, data: bytes) -> bytes:
    """Brackets in brackets where a value may stand, closed or not."""
    left, right = random.choice(NESTS)
    depth = random.choice((5, 90, 400, 3000))
    place = random.choice([0, *(end + 1 for end, byte in enumerate(data[:5000]) if byte in b":=,\n")])
    closed = right * (depth * (random.random() < 0.7))
    return data[:place] + left * depth + random.choice((b"", b"1", b"a")) + closed + data[place:]


def stretch(random: Random, data: bytes) -> bytes:
    """A very long line."""
    place = random.randrange(len(data) + 1)
    return data[:place] + random.choice((b"x", b"9", b" ", b"1-1 ", "ü".encode())) * 20_000 + data[place:]


def line_ends(random: Random, data: bytes) -> bytes:
    """Windows, old Macintosh and Unix line ends in a mixture."""
    pieces = data.split(b"\n")
    return b"".join(piece + random.choice((b"\n", b"\r\n", b"\r", b"\r\r\n")) for piece in pieces[:2000])


DAMAGES = (flip, truncate, delete, duplicate, swap, insert, insert, number, number, line_ends)
RARE = (nest, stretch)


def hostile(random: Random, valid: list[bytes]) -> bytes:
    """Random bytes, or a valid file with up to four damages."""
    if random.random() < 0.1:
        alphabet = random.choice(
            (bytes(range(256)), b"0123456789-?pSP \t\r\n", b'{}[]":,\\u 0aenrtf', b"[]=\"'.\n#a1 {}")
        )
        return bytes(random.choices(alphabet, k=random.choice((0, 1, 3, 20, 200))))
    data = random.choice(valid)
    for _ in range(random.choice((0, 1, 1, 1, 2, 4))):
        data = random.choice(RARE if random.random() < 0.05 else DAMAGES)(random, data)
    return data


# Readers

Check = Callable[[bytes, Random, Path], None]


@dataclass(frozen=True)
class Reader:
    """A reader under test: valid files to damage, and what must hold of a file unless it is refused."""

    name: str
    valid: Callable[[], list[bytes]]
    check: Check


def _written(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


@cache
def _pairs() -> list[demo.Pair]:
    return demo.generate(12, seed=0)


def texts() -> list[bytes]:
    lines = [" ".join(pair.source) for pair in _pairs()]
    return [
        "\n".join(lines).encode(),
        "\r\n".join(["\ufeff" + lines[0], "", *lines[1:4], ""]).encode(),
        b"",
        b"\n",
    ]


def _expected_lines(data: bytes) -> list[str] | None:
    """What a text file holds, the slow way; None where it is no text."""
    pieces = data.removeprefix(BYTE_ORDER_MARK).split(b"\n")
    if not pieces[-1]:
        pieces.pop()
    try:
        lines = [piece.removesuffix(b"\r").decode() for piece in pieces]
    except UnicodeDecodeError:
        return None
    return None if any("\0" in line for line in lines) else lines


def check_lines(data: bytes, random: Random, folder: Path) -> None:
    """N lines in are N lines out, of files and of streams; what is no text is refused."""
    path, expected = _written(folder, "text", data), _expected_lines(data)
    pieces = data.removeprefix(BYTE_ORDER_MARK).count(b"\n")
    partial_line = bool(data.removeprefix(BYTE_ORDER_MARK)) and not data.endswith(b"\n")
    assert count_lines(path) == pieces + partial_line, "lines are miscounted"
    with open(path, "rb") as stream:
        try:
            assert list(decode_lines(stream, "-")) == expected, "a stream is read differently"
        except InputError:
            assert expected is None, "good text is refused in a stream"
    if expected is None:
        _must_refuse(lambda: list(read_lines(path)))
    assert list(read_lines(path)) == expected, "lines are read wrongly"


def check_parallel(data: bytes, random: Random, folder: Path) -> None:
    """Files of equal length are read in pairs, others are refused."""
    source, expected = _written(folder, "source", data), _expected_lines(data)
    count = max(0, data.count(b"\n") + random.choice((-1, 0, 1, 1, 1)))
    target = _written(folder, "target", b"y\r\n" * count)
    if expected is None or len(expected) != count:
        _must_refuse(lambda: list(read_parallel(source, target)))
    assert list(read_parallel(source, target)) == [(line, "y") for line in expected or []]


def _must_refuse(read: Callable[[], object]) -> None:
    """Raises the refusal of what must be refused."""
    read()
    raise AssertionError("bad input is accepted")


def pharaoh_files() -> list[bytes]:
    gold = "\n".join(demo.pharaoh(pair) for pair in _pairs())
    sure = "\n".join(format_pharaoh(pair.sure) for pair in _pairs())
    numbered = "\n".join(f"{place}\t{format_pharaoh(pair.sure)}" for place, pair in enumerate(_pairs()))
    return [text.encode() for text in (gold, gold.replace("?", "p"), sure, numbered, "0-0\n\n3-4 1?2\n")]


def naacl_files() -> list[bytes]:
    lines = [
        f"{place:04d} {i + 1} {j + 1}{mark}"
        for place, pair in enumerate(_pairs(), start=1)
        for (i, j), mark in zip(
            sorted(pair.sure), (" S", " P", "", " S 0.5", " 1", " P .25") * 9, strict=False
        )
    ]
    return ["\n".join(lines).encode(), b"1 1 1\r\n3 2 2 P\r\n", b"2 1 1"]


def check_gold(data: bytes, random: Random, folder: Path) -> None:
    """Positions are within bounds, and links written again are read back as they were."""
    one_based, sentences = random.choice((None, True, False)), random.choice((None, None, 3, 12))
    gold = read_gold(_written(folder, "gold", data), one_based=one_based, sentences=sentences)
    assert sentences is None or len(gold) == sentences, "another number of sentences"
    if len(gold) > 10_000:
        gold = gold[-50:]  # of a .wa file that names a sentence far away
    positions = [position for one in gold for link in one.possible for position in link]
    assert all(0 <= position <= LARGEST for position in positions), "a position beyond bounds"
    assert all(one.sure <= one.possible for one in gold), "a sure link that is not possible"
    again = folder / "again"
    marked = ([(*link, "-" if link in one.sure else "?") for link in sorted(one.possible)] for one in gold)
    again.write_text("".join(" ".join(f"{i}{mark}{j}" for i, j, mark in line) + "\n" for line in marked))
    assert read_gold(again) == gold, "written links are read differently"


def check_links(data: bytes, random: Random, folder: Path) -> None:
    """A set of links for each line, which is read back as it was."""
    links = read_links(_written(folder, "links", data), one_based=random.random() < 0.3)
    body = data.removeprefix(BYTE_ORDER_MARK)
    assert len(links) == body.count(b"\n") + (bool(body) and not body.endswith(b"\n")), "lines are lost"
    again = folder / "again"
    again.write_text("".join(format_pharaoh(line) + "\n" for line in links))
    assert read_links(again) == links, "written links are read differently"
    assert read_gold(again) == [Gold(line) for line in links], "gold and predictions are read differently"


def recipes() -> list[bytes]:
    shipped = [Path(config.__file__).parent / "recipes" / f"{name}.toml" for name in config.shipped()]
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
    loaded = config.load(_written(folder, "recipe.toml", data), NMTConfig, overrides)
    text = config.dump(loaded)
    again = _written(folder, "again.toml", text.encode())
    assert config.dump(config.load(again, NMTConfig)) == text, "a written recipe is read differently"


@cache
def _tokenizers() -> list[bytes]:
    with tempfile.TemporaryDirectory() as name:
        text, path = _written(Path(name), "text", texts()[0]), Path(name) / "tokenizer.json"
        files = []
        for kind, size in (("words", 40), ("bpe", 300)):
            Tokenizer.learn(TokenizerConfig(kind=kind, vocab_size=size), text, text).save(path)
            files.append(path.read_bytes())
        return files


def check_tokenizer(data: bytes, random: Random, folder: Path) -> None:
    """Only a tokenizer that was saved is loaded; if someone made the checksum fit, it must work."""
    resealed = random.random() < 0.5 and _resealed_tokenizer(data)
    loaded = Tokenizer.load(_written(folder, "tokenizer.json", resealed or data))
    encoded = loaded.encode_source("Der Hund \u2028 </s> schläft .")
    assert len(encoded.ids) == len(encoded.words), "ids and words differ in number"
    assert all(0 <= token < loaded.source_size for token in encoded.ids), "an id beyond the vocabulary"
    loaded.decode_target(encoded.ids)
    again = folder / "again.json"
    loaded.save(again)
    assert Tokenizer.load(again) == loaded, "a saved tokenizer is loaded differently"
    if not resealed:
        known = [json.loads(valid)["sha256"] for valid in _tokenizers()]
        assert loaded.fingerprint() in known, "damage was not noticed"


def _resealed_tokenizer(data: bytes) -> bytes | None:
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
        _written(folder / "checkpoint", path, content)
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


# Questions about pictures


def question_files() -> list[bytes]:
    asked = [{"question_id": n, "image_id": n // 2, "question": f"what ist das {n}?"} for n in range(4)]
    plain = json.dumps({"questions": asked}).encode()
    return [plain, gzip.compress(plain, mtime=0), b'{"questions": []}']


def annotation_files() -> list[bytes]:
    answers = [
        {"answer_id": k, "answer": "ja" if k % 3 else "nein", "answer_confidence": "yes"} for k in range(10)
    ]
    common = {"question_type": "what", "answer_type": "other", "answers": answers}
    given = [
        {"question_id": n, "image_id": n // 2, "regions": [[0.1, 0.2, 0.5, 0.75]][:n], **common}
        for n in range(3)
    ]
    return [json.dumps({"annotations": given}).encode()]


def result_files() -> list[bytes]:
    return [json.dumps([{"question_id": n, "answer": "zwei Hunde"} for n in range(3)]).encode(), b"[]"]


def check_questions(data: bytes, random: Random, folder: Path) -> None:
    """Ids are distinct numbers and every question is text."""
    found = read_questions(_written(folder, "questions", data))
    assert len({q.question_id for q in found}) == len(found), "an id twice"
    assert all(isinstance(q.question, str) and isinstance(q.image_id, int) for q in found)


def check_annotations(data: bytes, random: Random, folder: Path) -> None:
    """Boxes lie within the picture, and accuracies are shares."""
    found = read_annotations(_written(folder, "annotations", data))
    assert all(0 <= x <= 1 for a in found for box in a.regions for x in box), "a box beyond the picture"
    scores = accuracies({a.question_id: "ja" for a in found}, found) if found else None
    assert scores is None or 0 <= scores.paper <= 1


def check_results(data: bytes, random: Random, folder: Path) -> None:
    """What is read is read back as it was."""
    found = read_results(_written(folder, "results", data))
    write_results(folder / "again", found, overwrite=True)
    assert read_results(folder / "again") == found, "written answers are read differently"


@cache
def _regions() -> list[tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(0)
    boxes = np.float32([[1, 2, 30, 40], [5, 5, 60, 50]])
    return [(random.standard_normal((2, 3)).astype(np.float32), boxes) for _ in range(3)]


def tsv_files(layout: str) -> list[bytes]:
    lines = []
    for number, (features, boxes) in enumerate(_regions()):
        encoded = [base64.b64encode(x.tobytes()).decode() for x in (boxes, features)]
        first = (
            [str(number), "64", "64"]
            if layout == "bottom-up"
            else [f"COCO_val_{number}", "64", "64", *"abcd"]
        )
        lines.append("\t".join([*first, "2", *encoded]))
    return ["\n".join(lines).encode(), (lines[0] + "\n").encode()]


def check_tsv(layout: str, data: bytes, random: Random, folder: Path) -> None:
    """Regions are finite and each has a box; what is read can be written and read in place."""
    found = list(layouts.read(_written(folder, "features.tsv", data), layout))
    for _, features, boxes in found:
        assert np.isfinite(features).all(), "features that are no numbers"
        assert features.shape[0] == boxes.shape[0] == len(boxes), "regions without boxes"
    if found:
        write_features(folder / "again", found, layout=layout, overwrite=True)
        assert len(Features(folder / "again")) == len(found), "pictures are lost"


@cache
def _feature_files() -> list[bytes]:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "features"
        pictures = [(n, features, boxes / 64) for n, (features, boxes) in enumerate(_regions())]
        write_features(path, pictures, layout="test")
        return [path.read_bytes()]


def check_features(data: bytes, random: Random, folder: Path) -> None:
    """Every picture of a file that is opened can be read."""
    with Features(_written(folder, "features.safetensors", data)) as found:
        if len(found):
            features, mask, _ = found.batch(list(range(len(found))))
            assert features.shape[:2] == mask.shape


def vector_files() -> list[bytes]:
    return [b"der 0.5 1 -2\nHund 1e-3 2 3\n", b"2 3\nHund 1 2 3"]


def check_vectors(data: bytes, random: Random, folder: Path) -> None:
    """Vectors of the asked size for the words that were found."""
    vectors, found = read_vectors(_written(folder, "vectors", data), ["der", "Hund"], 3)
    assert vectors.shape == (2, 3)
    assert bool(found.any())


PICTURE_READERS = (
    Reader("questions.json", question_files, check_questions),
    Reader("annotations.json", annotation_files, check_annotations),
    Reader("results.json", result_files, check_results),
    *(
        Reader(f"features, {layout}", partial(tsv_files, layout), partial(check_tsv, layout))
        for layout in ("bottom-up", "lxmert")
    ),
    Reader("features.safetensors", _feature_files, check_features),
    Reader("text vectors", vector_files, check_vectors),
)

READERS = (
    Reader("text", texts, check_lines),
    Reader("parallel text", texts, check_parallel),
    Reader("gold links", pharaoh_files, check_gold),
    Reader("gold links, .wa", naacl_files, check_gold),
    Reader("predicted links", pharaoh_files, check_links),
    Reader("recipe", recipes, check_recipe),
    Reader("tokenizer.json", _tokenizers, check_tokenizer),
    *(
        Reader(f"checkpoint, {end}", partial(_checkpoint_files, end), partial(check_checkpoint, end))
        for end in ("current.json", "manifest.json", "progress.json", "model.safetensors")
    ),
    Reader("metrics.jsonl", histories, check_history),
    *PICTURE_READERS,
)


# Running


@dataclass(frozen=True)
class Failure:
    """What went wrong for a seed, and the smallest input for which it still does."""

    reader: str
    seed: int
    error: str
    data: bytes

    def __str__(self) -> str:
        shown = (
            repr(self.data) if len(self.data) <= 300 else f"{self.data[:300]!r}... ({len(self.data)} bytes)"
        )
        return f"{self.reader}, seed {self.seed}: {self.error}\n    {shown}"


@dataclass
class Tally:
    """How the inputs of one reader fared."""

    read: int = 0
    refused: int = 0
    slowest: float = 0.0
    failures: list[Failure] = field(default_factory=list)


def draw(reader: Reader, seed: int) -> bytes:
    """The input of a seed."""
    return hostile(Random(f"{reader.name} {seed}"), reader.valid())


def outcome(reader: Reader, data: bytes, seed: int, folder: Path) -> str:
    """`read`, `refused`, or what went wrong."""
    begun = time.perf_counter()
    try:
        reader.check(data, Random(seed), folder)
        result = "read"
    except LatentAlignError:
        result = "refused"
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a panic of compiled code is no Exception
        return f"{type(error).__name__}: {str(error)[:200]}"
    return result if time.perf_counter() - begun < SLOW else f"took over {SLOW:g} seconds"


def shrink(data: bytes, fails: Callable[[bytes], bool], attempts: int = 300) -> bytes:
    """A smaller input that still fails, by leaving out ever smaller pieces."""
    size = len(data) // 2
    while size and attempts > 0:
        start = 0
        while start < len(data) and attempts > 0:
            attempts -= 1
            shorter = data[:start] + data[start + size :]
            if fails(shorter):
                data = shorter
            else:
                start += size
        size //= 2
    return data


def fuzz(reader: Reader, seeds: range, folder: Path, *, limit: int = 5) -> Tally:
    """Try the inputs of many seeds; no more than `limit` failures are made minimal."""
    tally = Tally()
    for seed in seeds:
        data, begun = draw(reader, seed), time.perf_counter()
        result = outcome(reader, data, seed, folder)
        tally.slowest = max(tally.slowest, time.perf_counter() - begun)
        if result in ("read", "refused"):
            setattr(tally, result, getattr(tally, result) + 1)
            continue
        kind = result.split(":")[0]
        if len(tally.failures) < limit:
            data = shrink(data, lambda d: outcome(reader, d, seed, folder).split(":")[0] == kind)  # noqa: B023
        tally.failures.append(Failure(reader.name, seed, result, data))
    return tally


def main() -> None:
    """Fuzz all readers, or those whose name contains a word."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("arguments", nargs="*", metavar="[inputs] [word]")
    parser.add_argument("--seed", type=int, help="only the input of this seed, with its traceback")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    words = [argument for argument in options.arguments if not argument.isdecimal()]
    counts = [int(argument) for argument in options.arguments if argument.isdecimal()] or [2000]
    readers = [reader for reader in READERS if not words or any(word in reader.name for word in words)]
    failures: list[Failure] = []
    with tempfile.TemporaryDirectory() as name:
        for place, reader in enumerate(readers):
            if options.seed is not None:
                print(draw(reader, options.seed)[:2000])
                try:
                    reader.check(draw(reader, options.seed), Random(options.seed), Path(name))
                except Exception:
                    traceback.print_exc()
                continue
            share = counts[0] // len(readers) + (place < counts[0] % len(readers))
            tally = fuzz(reader, range(options.first, options.first + share), Path(name))
            failures += tally.failures
            print(
                f"{reader.name:<30} {share:>7} inputs: {tally.read:>6} read, {tally.refused:>6} refused, "
                f"{len(tally.failures):>4} failed; slowest {1000 * tally.slowest:.0f} ms",
                flush=True,
            )
    for failure in failures[:40]:
        print(failure)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
