"""Text that several processes encode: the same files and the same errors as one process."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from latentalign.errors import InputError, LostProcessError
from latentalign.tasks.nmt import encoder_pool, encoding
from latentalign.tasks.nmt.data import ARRAYS, HEADER, build_cache
from latentalign.tasks.nmt.encoder_pool import EncoderPool
from latentalign.tasks.nmt.splits import SplitConfig
from latentalign.tasks.nmt.tokenizer import Tokenizer, TokenizerConfig

WORDS = ["Haus", "häuser", "im\u2028Wald", "naïve", "</s>", "x" * 40, "日本語", "\r", "\u00a0", "a\x0bb", "Ω"]
WORDS += ["e\u0301"]


def write_text(folder: Path, lines: int) -> SplitConfig:
    """A text of odd lines: blank, long, with rare characters and with words that are like special tokens."""
    for side, name in enumerate(("de", "en")):
        text = []
        for number in range(lines):
            length = 0 if number % 11 == 3 + side else (number * 7 + side) % 9 if number % 29 else 60
            text.append(" ".join(WORDS[(number + k * k) % len(WORDS)] + str(k % 3) for k in range(length)))
        (folder / name).write_text("\n".join(text) + "\n", encoding="utf-8", newline="")
    return SplitConfig(source=folder / "de", target=folder / "en")


@pytest.fixture
def many_processes(monkeypatch):
    """Start processes for any corpus, and give each many small chunks."""
    monkeypatch.setattr(encoding, "LARGE", 1)
    monkeypatch.setattr(encoding, "CHUNK", 7)


def read_all(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ARRAYS}


def processes_of(pool: EncoderPool) -> list[int]:
    return [encoder.process.pid for encoder in pool.encoders]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("config", ["bpe", "words", "characters", "segmented", "two vocabularies"])
def test_processes_write_the_same_bytes_as_one(tmp_path, many_processes, config):
    split = write_text(tmp_path, 150)
    two = config == "two vocabularies"
    wanted = TokenizerConfig(kind="bpe" if two else config, vocab_size=400, joint=not two, lowercase=two)
    tokenizer = Tokenizer.learn(wanted, split.source, split.target)
    options = {"max_length": 50, "max_dropped": 0.9}
    alone = build_cache(tokenizer, split, tmp_path / "one", **options, processes=1)
    shared = build_cache(tokenizer, split, tmp_path / "many", **options, processes=3)
    assert read_all(tmp_path / "one") == read_all(tmp_path / "many")
    assert alone.dropped == shared.dropped
    assert alone.dropped["blank"] > 10
    assert alone.dropped["overlong"] > 0


def test_a_small_table_of_units_changes_nothing(tmp_path, many_processes, monkeypatch):
    split = write_text(tmp_path, 150)
    tokenizer = Tokenizer.learn(TokenizerConfig(vocab_size=400), split.source, split.target)
    options = {"max_length": 50, "max_dropped": 0.9}
    build_cache(tokenizer, split, tmp_path / "one", **options, processes=1)
    monkeypatch.setattr(encoder_pool, "LARGEST_TABLE", 4)
    build_cache(tokenizer, split, tmp_path / "many", **options, processes=2)
    assert read_all(tmp_path / "one") == read_all(tmp_path / "many")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lines", "max_length"),
    [
        ({20: b""}, None),  # blank where no line may be blank
        (
            {20: b"", 25: b"\xff"},
            None,
        ),  # two errors: the first one counts, even if the second is read before it
        ({20: b"\xff", 40: b""}, None),
        ({58: b"a \x00"}, 5),
        ({60: b"a\nb"}, 5),  # one line too many
    ],
)
def test_errors_are_those_of_one_process(tmp_path, many_processes, lines, max_length):
    text = [b"a b c"] * 60
    (tmp_path / "en").write_bytes(b"\n".join(text) + b"\n")
    source = [lines.get(number, line) for number, line in enumerate([*text, b""], start=1)]
    (tmp_path / "de").write_bytes(b"\n".join(source))
    split = SplitConfig(source=tmp_path / "de", target=tmp_path / "en")
    tokenizer = Tokenizer.learn(TokenizerConfig(kind="words"), split.target, split.target)
    messages = []
    for number in (1, 3):
        with pytest.raises(InputError) as caught:
            build_cache(tokenizer, split, tmp_path / str(number), max_length=max_length, processes=number)
        messages.append(str(caught.value))
        assert list((tmp_path / str(number)).iterdir()) == []
    assert messages[0] == messages[1]
    assert "line" in messages[0]


@pytest.fixture
def prepared(tmp_path):
    split = write_text(tmp_path, 60)
    return split, Tokenizer.learn(TokenizerConfig(kind="words"), split.source, split.target)


def test_a_small_corpus_starts_no_process(tmp_path, prepared, monkeypatch):
    monkeypatch.setattr(encoding, "LARGE", 61)
    monkeypatch.setattr(EncoderPool, "start", None)
    build_cache(prepared[1], prepared[0], tmp_path / "cache", max_length=50, max_dropped=0.9, processes=4)
    monkeypatch.setattr(encoding, "LARGE", 60)
    with pytest.raises(TypeError):  # now it would
        build_cache(prepared[1], prepared[0], tmp_path / "other", max_length=50, max_dropped=0.9, processes=4)


@pytest.mark.parametrize("program", ["/nowhere/python", "/bin/true", ""])
def test_one_process_does_everything_where_no_other_can_be_started(
    tmp_path, prepared, many_processes, monkeypatch, program
):
    build_cache(prepared[1], prepared[0], tmp_path / "one", max_length=50, max_dropped=0.9, processes=1)
    monkeypatch.setattr(sys, "executable", program)
    build_cache(prepared[1], prepared[0], tmp_path / "cache", max_length=50, max_dropped=0.9, processes=3)
    assert read_all(tmp_path / "one") == read_all(tmp_path / "cache")


@pytest.mark.slow
def test_a_killed_process_ends_everything_with_its_own_code(tmp_path, prepared, many_processes, monkeypatch):
    start, started = EncoderPool.start, []

    def start_and_kill(tokenizer, processes):
        pool = start(tokenizer, processes)
        started.extend(processes_of(pool))
        pool.encoders[0].process.kill()
        return pool

    monkeypatch.setattr(EncoderPool, "start", start_and_kill)
    with pytest.raises(LostProcessError, match=r"signal 9.*data\.processes = 1") as caught:
        build_cache(prepared[1], prepared[0], tmp_path / "cache", max_length=50, max_dropped=0.9, processes=3)
    assert caught.value.exit_code == 6
    assert not any(map(is_running, started))
    assert list((tmp_path / "cache").iterdir()) == []


def test_encoders_import_no_torch_and_end_with_their_parent():
    code = "import sys, latentalign.tasks.nmt.encoder_process; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"
    tokenizer = Tokenizer("words", False, *(['{"version":"1.0","model":{"type":"WordLevel","vocab":{"<unk>":0},'
                                             '"unk_token":"<unk>"}}'] * 2))  # fmt: skip
    with EncoderPool.start(tokenizer, 1) as pool:
        pool.encoders[0].commands.close()  # as if this process had ended
        assert pool.encoders[0].process.wait(timeout=20) == 0


COMMAND = """
import os, signal, sys
from latentalign.tasks.nmt import encoding
from latentalign.tasks.nmt.encoder_pool import EncoderPool
encoding.LARGE, encoding.CHUNK = 1, 7
start = EncoderPool.start
def start_and_stop(tokenizer, processes):
    pool = start(tokenizer, processes)
    for encoder in pool.encoders:
        os.kill(encoder.process.pid, signal.SIGSTOP)  # they never answer
    print("started", *(e.process.pid for e in pool.encoders), file=sys.stderr, flush=True)
    return pool
EncoderPool.start = start_and_stop
from latentalign.cli.main import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_all_processes_and_the_run_can_go_on(tmp_path, number, code):
    write_text(tmp_path, 200)
    files = "\n".join(f'[data.{s}]\nsource = "de"\ntarget = "en"' for s in ("train", "valid"))
    options = "[data]\nmax_dropped = 0.9\nprocesses = 2"
    (tmp_path / "recipe.toml").write_text(
        f'task = "nmt"\n{options}\n{files}\n[tokenizer]\nvocab_size = 300\n'
    )
    command = [sys.executable, "-c", COMMAND, "train", str(tmp_path / "recipe.toml")]
    command += ["--out", str(tmp_path / "run")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        line = ""
        while not line.startswith("started"):
            line = process.stderr.readline()
            assert line, "ended before its time"
        pids = [int(text) for text in line.split()[1:]]
        time.sleep(0.2)
        process.send_signal(number)
        rest = process.stderr.read()
    assert process.returncode == code
    assert len(pids) == 2
    assert not any(map(is_running, pids))
    assert "Traceback" not in rest
    assert re.search(r"ended by (Ctrl-C|SIGTERM); .*continue with\n.*--resume", rest, re.S)
    assert not list((tmp_path / "run").rglob(".building-*"))
    assert not list((tmp_path / "run").rglob(HEADER))
