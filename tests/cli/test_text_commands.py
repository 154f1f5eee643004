"""Translation from gzip files of pairs: every command reads them, and their JSON is what the schema says."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from latentalign.data import demo
from latentalign.tasks.nmt.schema import AlignedPair, AlignedTranslation, TranslationDetails
from support.commands import command
from support.nmt import SIZES

pytestmark = pytest.mark.slow

RECIPE = """
task = "nmt"
data.train.pairs = "train.tsv.gz"
data.valid.pairs = "valid.tsv"
data.test.pairs = "test.tsv.gz"
data.test.gold = "test.gold.gz"
tokenizer = { kind = "bpe", vocab_size = 500, lowercase = true }
training = { max_steps = 12, learning_rate = 1e-2 }
"""


def run(*arguments: object, stdin: bytes = b"", code: int = 0) -> str:
    done = command(*arguments, stdin=stdin)
    assert done.returncode == code, done.stderr.decode()
    return (done.stderr if code else done.stdout).decode()


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    demo.write(folder, train=200, valid=20, test=20)
    for split in ("train", "valid", "test"):
        sides = ((folder / f"{split}.{side}").read_text().splitlines() for side in ("de", "en"))
        text = "".join(f"{source}\t{target}\n" for source, target in zip(*sides, strict=True)).encode()
        (folder / f"{split}.tsv").write_bytes(text)
        (folder / f"{split}.tsv.gz").write_bytes(gzip.compress(text))
    (folder / "test.gold.gz").write_bytes(gzip.compress((folder / "test.gold").read_bytes()))
    (folder / "recipe.toml").write_text(RECIPE)
    return folder


@pytest.fixture(scope="module")
def model(files) -> Path:
    sizes = [f"--set={size}" for size in SIZES if "size" in size or "embedding" in size or "batch" in size]
    run("train", files / "recipe.toml", "--out", files / "run", *sizes)
    return files / "run"


def test_check_data_reads_pairs(files):
    found = json.loads(run("check-data", files / "recipe.toml", "--json"))
    assert [split["pairs"] for split in found["splits"].values()] == [200, 20, 20]
    assert not found["warnings"]
    (files / "bad.tsv").write_bytes(b"a\tb\nc\n")
    message = run("check-data", files / "recipe.toml", f"--set=data.valid.pairs={files / 'bad.tsv'}", code=2)
    assert f"{files / 'bad.tsv'}, line 2: no tab; expected two columns" in message


def test_evaluate_and_its_details_are_as_documented(model, tmp_path):
    details = tmp_path / "details.json"
    found = json.loads(run("evaluate", model, "--json", "--beam", 1, "--details", details, "--sentences", 3))
    assert found["sentences"] == 20
    assert found["aer_posterior"] is not None
    document = TranslationDetails.model_validate_json(details.read_bytes())
    assert len(document.alignments) == 3
    assert len(document.outputs) == 20
    assert "exists; add --overwrite" in run("evaluate", model, "--details", details, code=2)


def test_align_takes_words_and_offsets_from_the_input(model, files, tmp_path):
    source, target = "  Der HUND\u00a0schläft ,  İst  da .", "The  dog sleeps ."
    (tmp_path / "p.tsv").write_text(f"{source}\t{target}\n\t\n", encoding="utf-8")
    lines = run("align", model, "--pairs", tmp_path / "p.tsv", "--format", "json").splitlines()
    record, blank = (AlignedPair.model_validate_json(line, strict=True) for line in lines)
    assert record.source == source.split()
    assert [source[start:end] for start, end in record.source_spans] == record.source
    assert [target[start:end] for start, end in record.target_spans] == record.target == target.split()
    assert {link.target for link in record.links} == set(range(4))
    assert (blank.line, blank.source, blank.target_spans, blank.links) == (1, [], [], [])


def test_align_writes_into_a_file_and_never_over_one(model, files, tmp_path):
    text = ["--source", files / "test.de", "--target", files / "test.en"]
    printed = run("align", model, *text)
    assert run("align", model, *text, "-o", tmp_path / "links") == ""
    assert (tmp_path / "links").read_text() == printed
    assert "exists; add --overwrite" in run("align", model, *text, "-o", tmp_path / "links", code=2)
    run("align", model, *text, "-o", tmp_path / "links", "--overwrite", "--using", "prior")
    assert (tmp_path / "links").read_text() != printed


def test_symmetrize_needs_the_other_direction(model, files):
    message = run("align", model, "--pairs", files / "test.tsv", "--symmetrize", "union", code=2)
    assert "--symmetrize combines two directions; add --reverse" in message
    assert "--source and --target" in run("align", model, "--source", files / "test.de", code=2)


def test_every_entry_of_an_nbest_list_is_aligned(model, tmp_path):
    lines = ["Der  Hund schläft .", "", "Ein MANN läuft ."]
    (tmp_path / "in.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    options = ["--beam", 3, "--nbest", 2]
    files = ["-i", tmp_path / "in.gz", "-o", tmp_path / "out", "--alignments", tmp_path / "links"]
    assert run("translate", model, *options, *files) == ""
    texts = [line.split(" ||| ")[:2] for line in (tmp_path / "out").read_text().splitlines()]
    rows = (tmp_path / "links").read_text().splitlines()
    records = [AlignedTranslation.model_validate_json(row, strict=True) for row in rows]
    assert [(record.line, record.rank) for record in records] == [(0, 1), (0, 2), (1, 1), (2, 1), (2, 2)]
    assert [[str(record.line), record.text] for record in records] == texts
    for record in records:
        source = lines[record.line]
        assert [source[start:end] for start, end in record.source_spans] == record.source == source.split()
        assert [record.text[start:end] for start, end in record.target_spans] == record.target
        assert len(record.links) == len(record.entropy) == len(record.target)
    assert "links exists" in run("translate", model, "--alignments", tmp_path / "links", code=2)
    stdin = (tmp_path / "in.gz").read_bytes()
    assert run("translate", model, *options, stdin=stdin) == (tmp_path / "out").read_text()


def test_an_output_in_a_folder_that_does_not_exist_is_refused_before_any_work(model, tmp_path):
    message = run("translate", model, "-o", tmp_path / "absent" / "out", code=2)
    assert "does not exist" in message
