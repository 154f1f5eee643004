"""The command line as scripts use it: exit codes, one JSON object, N lines in and N out, no tracebacks."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from latentalign.data import demo
from support.commands import command

pytestmark = pytest.mark.slow

SIZES = [
    "model.embedding=16", "model.encoder_size=16", "model.decoder_size=24", "model.attention_size=16",
    "model.head_size=24", "inference.size=16", "training.batch_sentences=16", "training.threads=1",
]  # fmt: skip


def run(*arguments: object, stdin: bytes = b"", code: int | None = 0) -> subprocess.CompletedProcess[bytes]:
    done = command(*arguments, stdin=stdin)
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    if code is not None:
        assert done.returncode == code, done.stderr.decode()
    return done


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    demo.write(folder, train=300, valid=30, test=30)
    return folder


def options(folder: Path, *more: str) -> list[str]:
    data = [
        f"data.{split}.{key}={folder / f'{split}.{end}'}"
        for split in ("train", "valid", "test")
        for key, end in (("source", "de"), ("target", "en"), ("gold", "gold"))
    ]
    return [f"--set={o}" for o in (*data, *SIZES, *more)]


@pytest.fixture(scope="module")
def model(files, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "model"
    done = run(
        "train", "nmt/demo", "--out", out, "--objective", "variational-sample", "--json",
        *options(files, "training.max_steps=30", "training.learning_rate=1e-2"),
    )  # fmt: skip
    assert json.loads(done.stdout)["steps"] == 30
    return out


def test_evaluate_prints_exactly_one_json_object(model):
    result = json.loads(run("evaluate", model, "--json", "--predict", "exact", "--beam", 2).stdout)
    assert result["ppl"] == pytest.approx(result["ppl_exact"])
    assert result["bleu"] is not None
    assert result["aer_posterior"] is not None


def test_translate_keeps_every_line_in_place(model, files, tmp_path):
    lines = (files / "test.de").read_bytes().split(b"\n")[:6]
    stdin = b"\n".join([lines[0], b"", lines[1], "  \u2028 ".encode(), *lines[2:]]) + b"\n"
    out = run("translate", model, "--beam", 2, "--alignments", tmp_path / "a.jsonl", stdin=stdin).stdout
    assert out.count(b"\n") == stdin.count(b"\n")
    assert out.split(b"\n")[1] == b""
    records = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().split("\n")[:-1]]
    assert len(records) == stdin.count(b"\n")
    assert records[1]["links"] == []
    assert all(0 <= link["probability"] <= 1 + 1e-9 for r in records for link in r["links"])
    nbest = run("translate", model, "--beam", 3, "--nbest", 2, stdin=lines[0] + b"\n").stdout.decode()
    scores = [float(line.split(" ||| ")[2]) for line in nbest.strip().split("\n")]
    assert len(scores) == 2
    assert scores == sorted(scores, reverse=True)


def test_nothing_in_is_nothing_out(model):
    assert run("translate", model, stdin=b"").stdout == b""


@pytest.mark.parametrize("using", ["prior", "inferred", "posterior"])
def test_align_writes_one_line_a_pair_and_aer_scores_it(model, files, tmp_path, using):
    out = run(
        "align", model, "--source", files / "test.de", "--target", files / "test.en", "--using", using
    ).stdout
    assert out.count(b"\n") == 30
    (tmp_path / "links").write_bytes(out)
    scores = json.loads(
        run("aer", "--gold", files / "test.gold", "--predicted", tmp_path / "links", "--json").stdout
    )
    assert 0 <= scores["aer"] <= 1
    assert scores["intervals"]["aer"][0] <= scores["aer"] <= scores["intervals"]["aer"][1]


def test_both_directions_join(model, files, tmp_path):
    turned = tmp_path / "turned"
    data = [
        f"--set=data.{s}.{k}={files / f'{s}.{e}'}"
        for s in ("train", "valid")
        for k, e in (("source", "en"), ("target", "de"))
    ]
    more = [f"--set={o}" for o in (*SIZES, "training.max_steps=5")]
    text = "[data.train]\nsource='a'\ntarget='b'\n[data.valid]\nsource='a'\ntarget='b'\n[tokenizer]\nkind='words'\n"
    (tmp_path / "r.toml").write_text(text)
    run("train", tmp_path / "r.toml", "--out", turned, *data, *more)
    pair = ["--source", files / "test.de", "--target", files / "test.en", "--reverse", turned]
    counts = {}
    for method in ("intersection", "grow-diag-final-and", "union"):
        out = run("align", model, *pair, "--symmetrize", method).stdout
        assert out.count(b"\n") == 30
        counts[method] = len(out.split())
    assert counts["intersection"] <= counts["grow-diag-final-and"] <= counts["union"]
    both = json.loads(run("align", model, *pair, "--format", "json").stdout.split(b"\n")[0])
    assert {"source", "target", "links", "entropy"} <= both.keys()


def bad(folder: Path, tmp: Path, what: str) -> list[str]:
    """A copy of the data with one fault, as options for train."""
    for path in folder.iterdir():
        shutil.copy(path, tmp)
    source = tmp / "train.de"
    lines = source.read_bytes().split(b"\n")[:-1]
    faults = {
        "unequal": lambda: lines[:-1],
        "bad-utf8": lambda: [*lines[:4], b"\xff\xfe kaputt", *lines[5:]],
        "nul": lambda: [*lines[:2], b"a\0b", *lines[3:]],
        "mostly-blank": lambda: [b""] * 200 + lines[200:],
        "overlong": lambda: [b"wort " * 5000] * 60 + lines[60:],
        "empty": list,
    }
    source.write_bytes(b"".join(line + b"\n" for line in faults[what]()))
    if what == "empty":
        (tmp / "train.en").write_bytes(b"")
    return options(tmp)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("unequal", "has 299 lines"),
        ("bad-utf8", "train.de, line 5: not UTF-8"),
        ("nul", "train.de, line 3"),
        ("mostly-blank", "200 with a blank side"),
        ("overlong", "60 longer than 125 tokens"),
        ("empty", "no text"),
    ],
)
def test_bad_text_is_named_with_file_and_line(files, tmp_path, what, message):
    done = run("train", "nmt/demo", "--out", tmp_path / "run", *bad(files, tmp_path, what), code=2)
    assert message in done.stderr.decode()


def test_crlf_byte_order_marks_and_u2028_train_as_if_they_were_not_there(files, tmp_path):
    shutil.copytree(files, tmp_path / "data")
    for name in ("train.de", "train.en"):
        lines = (files / name).read_bytes().split(b"\n")[:-1]
        lines[3] += "\u2028ende".encode()
        (tmp_path / "data" / name).write_bytes(b"\xef\xbb\xbf" + b"".join(line + b"\r\n" for line in lines))
    more = options(tmp_path / "data", "training.max_steps=1")
    run("train", "nmt/demo", "--out", tmp_path / "run", *more)
    assert json.loads((tmp_path / "run" / "card.json").read_text())["pairs"]["train"] == 300


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "training.learnig_rate=1"], "training.learning_rate"),
        (["--set", "training.learning_rate=fast"], "training.learning_rate"),
        (["--objective", "variational-smaple"], "variational-sample"),
        (["--set", "objective.temprature=1", "--objective", "gumbel"], "temperature"),
        (["--set", "data.train.source=/no/such/file"], "/no/such/file: no such file"),
    ],
)
def test_bad_configuration_is_named_with_the_nearest_key(files, tmp_path, arguments, message):
    done = run("train", "nmt/demo", "--out", tmp_path / "run", *options(files), *arguments, code=2)
    assert message in done.stderr.decode()


def test_unknown_recipe_and_missing_run_are_named(tmp_path):
    assert b"nmt/dmeo" in run("train", "nmt/dmeo", "--out", tmp_path / "x", code=2).stderr
    assert b"no such run" in run("evaluate", tmp_path / "nothing", code=4).stderr
    assert run("translate", code=2).returncode == 2


def test_a_truncated_model_is_refused(model, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    path = copy / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    done = run("translate", copy, stdin=b"x\n", code=4)
    assert b"model.safetensors" in done.stderr
    assert b"checksum mismatch" in done.stderr


def test_bad_predict_and_bad_input_lines_are_refused(model):
    assert b"kmax" in run("translate", model, "--predict", "kmx:3", stdin=b"x\n", code=2).stderr
    assert b"line 2" in run("translate", model, stdin=b"x\n\xff\n", code=2).stderr
    assert b"--using" in run("align", model, "--source", "a", "--target", "b", "--using", "q", code=2).stderr


def test_sigterm_saves_and_ends_with_143(files, tmp_path):
    started = [
        sys.executable, "-m", "latentalign", "train", "nmt/demo", "--out", str(tmp_path / "run"),
        *options(files, "training.epochs=1000", "training.patience=1000"),
    ]  # fmt: skip
    process = subprocess.Popen(started, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while not (tmp_path / "run" / "checkpoint" / "current.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143
    assert b"--resume" in errors
    assert b"Traceback" not in errors


def test_known_corpora_come_from_a_local_copy_and_are_checked(tmp_path, corpora):
    run("data", "multi30k", "--from", corpora / "multi30k", "--out", tmp_path / "m")
    assert len((tmp_path / "m" / "train.de").read_bytes().split(b"\n")) == 29_001
    assert (
        run("data", "multi30k", "--from", corpora / "multi30k", "--out", tmp_path / "m", code=2).returncode
        == 2
    )
    damaged = tmp_path / "damaged"
    shutil.copytree(tmp_path / "m", damaged)
    (damaged / "valid.en").write_text("other\n")
    done = run("data", "multi30k", "--from", damaged, "--out", tmp_path / "n", code=2)
    assert b"sha256" in done.stderr


def test_a_failed_row_does_not_lose_the_others(tmp_path, files):
    shutil.copytree(files, tmp_path / "out" / "data")
    small = [f"--set={o}" for o in (*SIZES, "training.max_steps=3", "search.beam=2")]
    (tmp_path / "out" / "runs" / "marginal-0").mkdir(parents=True)
    (tmp_path / "out" / "runs" / "marginal-0" / "tokenizer.json").write_text("damaged")
    done = run("reproduce", "--out", tmp_path / "out", "--rows", "marginal,soft", *small, code=4)
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [r["objective"] for r in results] == ["soft"]
    assert b"failed" in done.stderr
    assert "tokenizer.json" in (tmp_path / "out" / "tables.md").read_text(), (
        "the row and its reason stand there too"
    )


def test_reproduce_trains_rows_writes_tables_and_never_trains_twice(tmp_path, files):
    small = [f"--set={o}" for o in (*SIZES, "training.max_steps=3", "search.beam=2")]
    shutil.copytree(files, tmp_path / "out" / "data")
    arguments = ["reproduce", "--out", tmp_path / "out", "--rows", "soft,marginal", "--jobs", 2, *small]
    shown = run(*arguments).stdout.decode()
    assert "brackets are gold links" in shown
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [r["objective"] for r in results] == ["soft", "marginal"]
    assert "Gradient variance against time" in (tmp_path / "out" / "report.html").read_text()
    assert results[1]["ppl"] == pytest.approx(results[1]["ppl_exact"], rel=1e-5)
    assert b"finished before" in run(*arguments).stderr
    assert "| marginal |" in (tmp_path / "out" / "tables.md").read_text()


def test_serve_says_where_it_listens_and_what_is_wrong(model, tmp_path):
    pytest.importorskip("uvicorn")
    refused = run("serve", model, "--features", tmp_path / "f", code=2)
    assert b"--features applies only to question answering" in refused.stderr
    assert b"run directory" in run("serve", tmp_path / "none", code=4).stderr
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert (
            b"cannot listen on 127.0.0.1, port %d" % port
            in run("serve", model, "--port", port, code=2).stderr
        )
    command = [sys.executable, "-m", "latentalign", "serve", model, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            said = process.stderr.readline().decode()
            address = re.search(r"open (http://127.0.0.1:\d+) in a browser", said)[1]
            with urllib.request.urlopen(f"{address}/api/about", timeout=60) as answer:
                assert json.load(answer)["objective"] == "variational-sample"
            stranger = urllib.request.Request(address, headers={"Host": "elsewhere.example"})
            with pytest.raises(urllib.error.HTTPError, match="400"):
                urllib.request.urlopen(stranger, timeout=60)
            long = json.dumps({"source": ["Hund " * 390] * 100, "beam": 50}).encode()
            asking = urllib.request.Request(
                f"{address}/api/translate", long, {"Content-Type": "application/json"}
            )
            threading.Thread(target=suppressed, args=(asking,)).start()
            time.sleep(2)  # a computation of minutes is under way
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
            assert process.stderr.read() == b""
        finally:
            process.kill()


def suppressed(request: urllib.request.Request) -> None:
    """Ask, whatever comes of it."""
    with suppress(OSError, http.client.HTTPException):
        urllib.request.urlopen(request, timeout=60)
