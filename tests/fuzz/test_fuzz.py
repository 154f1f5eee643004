"""No file, however damaged, makes a reader fail in any other way than with an error that says what is wrong."""

import json
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz import text_readers
from fuzz.fuzzer import Reader, draw, fuzz, outcome, shrink
from fuzz.readers import READERS
from fuzz.run_readers import reseal_tokenizer, tokenizer_files
from latentalign import config
from latentalign.config import Section
from latentalign.errors import CheckpointError, InputError
from latentalign.links.formats import read_gold, read_links
from latentalign.storage import fingerprint
from latentalign.tasks.nmt.recipe import NMTConfig
from latentalign.tasks.nmt.tokenizer import Tokenizer
from latentalign.textfiles import count_lines, read_lines
from latentalign.training.run import Run

BY_NAME = {reader.name: reader for reader in READERS}


@pytest.mark.parametrize("name", BY_NAME)
def test_damaged_files_are_read_or_refused(name, tmp_path, thorough):
    inputs, least = (170, 5) if thorough else (50, 1)
    tally = fuzz(BY_NAME[name], range(inputs), tmp_path, limit=2)
    assert not tally.failures, "\n".join(map(str, tally.failures))
    assert tally.read > least  # the damage is not so great that only refusals are tested
    assert tally.refused > least or name in ("metrics.jsonl", "text")


# Hypothesis: inputs built up instead of broken down.

ODD = "ab01-?pSP. \t\r\n\"'=[]{}:,#\\/\0\u0085\u2028\ufeff٣é𝟗\x1a\x7f"
ODD_TEXT = st.text(st.sampled_from(ODD) | st.characters(exclude_categories=["Cs"]))
ANY_BYTES = st.binary(max_size=80) | ODD_TEXT.map(str.encode)
NUMBERS = st.integers(-3, 12).map(str) | st.sampled_from(
    ["999999", "1000000", "9" * 18, "9" * 19, "9" * 300, "9" * 4400]
)


def lines(line: st.SearchStrategy[str], most: int = 5) -> st.SearchStrategy[bytes]:
    return st.lists(line, max_size=most).map("\n".join).map(str.encode)


def fields(field: st.SearchStrategy[str], least: int, most: int) -> st.SearchStrategy[str]:
    return st.lists(field, min_size=least, max_size=most).map(" ".join)


LINK = st.builds("{}{}{}".format, NUMBERS, st.sampled_from("-?p"), NUMBERS)
PHARAOH = lines(fields(LINK | ODD_TEXT, 0, 4))
PROBABILITIES = st.sampled_from(["0", "1", "0.5", ".25", "1e-3", "1.5", "-1", "nan", "1e999", ""])
PROBABLE_LINK = st.builds("{}-{}:{}".format, NUMBERS, NUMBERS, PROBABILITIES)
NAACL = lines(fields(NUMBERS | st.sampled_from(["S", "P", "0.5", "1e3", "x"]), 2, 6))

KEYS = ["data", "train", "valid", "source", "target", "training", "epochs", "objective", "name", "model", "x"]
KEY = st.lists(st.sampled_from(KEYS), min_size=1, max_size=3).map(".".join)
VALUES = [
    "1",
    "-1",
    "1.5",
    "nan",
    "true",
    '"a"',
    "[]",
    "{}",
    "[1, 2]",
    '{source = "a"}',
    "2024-01-01",
    "07:30:00",
]
VALUE = st.sampled_from([*VALUES, "0x" + "f" * 5000]) | ODD_TEXT
TOML = lines(st.builds("[{}]".format, KEY) | st.builds("{} = {}".format, KEY, VALUE), 6)

VALUE_OF_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
JSON = VALUE_OF_JSON.map(json.dumps)


def objects(*keys: str, **fixed: object) -> st.SearchStrategy[str]:
    """JSON objects with some of these keys, and always with the fixed ones."""
    always = {key: st.just(value) for key, value in fixed.items()}
    return st.fixed_dictionaries(always, optional=dict.fromkeys(keys, VALUE_OF_JSON)).map(json.dumps)


def unsealed(document: str) -> bytes:
    """An object without its last brace, after which a seal comes."""
    return document[:-1].encode()


def safetensors(header: str, rest: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header.encode() + rest


def joined(documents: list[str]) -> bytes:
    """JSON documents as one list."""
    return f"[{', '.join(documents)}]".encode()


def listed(key: str, *keys: str) -> st.SearchStrategy[bytes]:
    """An object whose key holds a list of objects."""
    entries = st.lists(objects(*keys), max_size=3).map(joined)
    return entries.map(lambda found: b'{"' + key.encode() + b'": ' + found + b"}")


TOKENIZER = objects(
    *("kind", "lowercase", "source", "target"), format="latentalign tokenizer", version=1, sha256="0"
)
LINK_ENTRIES = st.lists(objects("source", "target", "probability", "x"), max_size=3)
LINK_RECORD = LINK_ENTRIES.map(lambda entries: '{"links": [' + ", ".join(entries) + "]}")
PROBABLE = lines(fields(PROBABLE_LINK | LINK, 0, 4)) | lines(LINK_RECORD | objects("links", "posteriors"))

BUILT_UP = {
    "text": ANY_BYTES,
    "parallel text": ANY_BYTES,
    "gold links": PHARAOH,
    "gold links, .wa": NAACL,
    "predicted links": PHARAOH,
    "predicted links with probabilities": PROBABLE,
    "recipe": TOML,
    "tokenizer.json": TOKENIZER.map(str.encode),
    "checkpoint, current.json": objects("save", "manifest_sha256", "x").map(unsealed),
    "checkpoint, manifest.json": objects("format", "version", "files", "x").map(unsealed),
    "checkpoint, progress.json": JSON.map(str.encode),
    "checkpoint, model.safetensors": st.builds(safetensors, JSON, st.binary(max_size=30)),
    "metrics.jsonl": lines(JSON | ODD_TEXT),
    "questions.json": listed("questions", "question_id", "image_id", "question", "x"),
    "annotations.json": listed(
        "annotations", "question_id", "image_id", "answers", "regions", "question_type"
    ),
    "results.json": st.lists(objects("question_id", "answer"), max_size=3).map(joined),
    "features, bottom-up": lines(fields(NUMBERS | ODD_TEXT, 4, 8).map(lambda line: line.replace(" ", "\t"))),
    "features, lxmert": lines(fields(NUMBERS | ODD_TEXT, 8, 12).map(lambda line: line.replace(" ", "\t"))),
    "features.safetensors": st.builds(safetensors, JSON, st.binary(max_size=30)),
    "text vectors": lines(fields(NUMBERS | st.sampled_from(["der", "Hund", "nan", "1e999"]), 3, 5)),
}


def test_every_reader_has_inputs_of_both_kinds():
    assert BUILT_UP.keys() == BY_NAME.keys()


@pytest.mark.parametrize("name", BY_NAME)
def test_whatever_is_built_up_is_read_or_refused(name, tmp_path, thorough):
    @settings(
        max_examples=40 if thorough else 10, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    @given(BUILT_UP[name] | ANY_BYTES, st.integers(0, 99))
    def tried(data, seed):
        result = outcome(BY_NAME[name], data, seed, tmp_path)
        assert result in ("read", "refused"), result

    tried()


# The fuzzer itself


def test_the_same_seed_gives_the_same_input():
    for reader in READERS:
        inputs = [draw(reader, seed) for seed in range(20)]
        assert inputs == [draw(reader, seed) for seed in range(20)]
        assert len(set(inputs)) > 10


def test_the_fuzzer_notices_and_shrinks_what_is_planted(tmp_path):
    def careless(data: bytes, random: Random, folder: Path) -> None:
        if b"\0" in data:
            raise KeyError("oops")
        if b"\xff" in data:
            raise InputError("no text")

    tally = fuzz(Reader("planted", text_readers.texts, careless), range(400), tmp_path)
    assert tally.failures
    assert tally.refused
    assert tally.failures[0].data == b"\0"
    assert "KeyError" in str(tally.failures[0])
    assert f"seed {tally.failures[0].seed}" in str(tally.failures[0])
    assert shrink(b"abcXdefYgh", lambda data: b"X" in data and b"Y" in data) == b"XY"


def test_the_fuzzer_notices_broken_promises(tmp_path, monkeypatch):
    monkeypatch.setattr(
        text_readers, "read_lines", lambda path: iter(path.read_text("utf-8", "replace").splitlines())
    )
    errors = {failure.error for failure in fuzz(BY_NAME["text"], range(200), tmp_path, limit=0).failures}
    assert any("bad input is accepted" in error for error in errors)
    assert any("read wrongly" in error for error in errors)


# What was found


class Table(Section):
    pair: tuple[float, float] = (0.0, 1.0)


class Recipe(Section):
    table: Table = Table()


@pytest.mark.parametrize(
    ("text", "overrides", "expected"),
    [
        ("[table]\npair = [0.5]", [], "missing key table.pair.1"),
        ("", ["table.pair=[0.5]"], "missing key table.pair.1"),
        (f"x = {'9' * 5000}", [], "not valid TOML"),
        (f"x = 0x{'f' * 5000}", [], "thousands of digits"),
        (f"x = {'[' * 5000}{']' * 5000}", [], "nested too deeply"),
        (f"{'a.' * 1500}b = 1", [], "nested too deeply"),
        ("", [f"{'a.' * 1500}b=1"], "with --set: .*nested too deeply"),
        ("", [f"table.pair={'9' * 5000}"], "table.pair: expected a valid"),
        ("", [f"table.pair={'[' * 5000}"], "table.pair: expected a valid"),
    ],
)
def test_recipes_beyond_measure_are_refused(tmp_path, text, overrides, expected):
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=expected):
        config.load(path, Recipe, overrides)


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b", "x" * 5000])
def test_names_that_no_file_can_have_are_bad_input(name):
    with pytest.raises(InputError, match="no such file"):
        config.load(name, NMTConfig)
    if len(name) > 1000:
        return
    for read in (lambda path: list(read_lines(path)), count_lines, fingerprint, read_gold, read_links):
        with pytest.raises(InputError, match="no such file"):
            read(name)


def test_a_deeply_nested_tokenizer_is_damaged(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(b"[" * 100_000)
    with pytest.raises(CheckpointError, match="not JSON"):
        Tokenizer.load(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content | {"kind": "letters"},
        lambda content: content | {"source": content["source"].replace('"<unk>": 1', '"<unk>": 4000')},
        lambda content: content | {"source": content["source"].replace('"<pad>": 0', '"<pad": 0')},
        lambda content: (
            content | {"source": content["source"].replace('"unk_token": "<unk>"', '"unk_token": "x~"')}
        ),
    ],
)
def test_a_vocabulary_that_cannot_work_is_refused_even_if_its_checksum_fits(tmp_path, change):
    content = json.loads(tokenizer_files()[0])
    changed = change(content)
    assert changed != content
    path = tmp_path / "tokenizer.json"
    path.write_bytes(reseal_tokenizer(json.dumps(changed).encode()))
    with pytest.raises(CheckpointError, match=r"damaged|not as this program writes it"):
        Tokenizer.load(path)


def test_a_deeply_nested_line_of_metrics_is_no_record(tmp_path):
    run = Run(tmp_path)
    run.metrics.write_bytes(b"[" * 100_000 + b"\n")
    assert run.history() == []
