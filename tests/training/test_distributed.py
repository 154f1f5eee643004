"""Two processes are one process with batches twice as large; a lost process ends them all."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import safetensors.torch
import torch

from latentalign import config as recipes
from latentalign.tasks.nmt.task import TRANSLATION
from latentalign.training.run import Run

pytestmark = pytest.mark.slow

SIZES = [
    "tokenizer.kind=words", "tokenizer.joint=false", "model.embedding=8", "model.encoder_layers=1",
    "model.encoder_size=6", "model.decoder_layers=1", "model.decoder_size=8", "model.attention_size=6",
    "model.head_size=8", "inference.layers=1", "inference.size=6", "training.threads=1",
    "training.log_steps=1", "training.learning_rate=1e-2",
]  # fmt: skip
TRANSFORMER = [
    "model.backbone=transformer", "model.heads=2", "model.emission_state=lagged", "training.warmup_steps=5",
    "training.schedule=inverse-sqrt", "training.label_smoothing=0.1",
]  # fmt: skip
EXACT = ["model.dropout=0.0", "training.precision=float64", "training.max_steps=20", "training.epochs=9"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> list[str]:
    """41 pairs, of 3 and of 40 words: batches of eight leave one over, whose second half is empty."""
    folder = tmp_path_factory.mktemp("text")
    g = torch.Generator().manual_seed(0)
    for split, count in (("train", 41), ("valid", 5)):
        for side in ("source", "target"):
            lengths = [3 if i % 2 else 40 for i in range(count)]
            words = [torch.randint(20, (n,), generator=g).tolist() for n in lengths]
            text = "".join(" ".join(f"w{w}" for w in line) + "\n" for line in words)
            (folder / f"{split}.{side}").write_text(text)
    recipe = folder / "recipe.toml"
    recipe.write_text(
        "".join(
            f'[data.{s}]\nsource = "{folder / s}.source"\ntarget = "{folder / s}.target"\n'
            for s in ("train", "valid")
        )
    )
    return [str(recipe)]


def command(corpus, out, *options, processes=1):
    launcher = [sys.executable]
    if processes > 1:
        launcher += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    sets = [f"--set={option}" for option in (*SIZES, *options)]
    return [*launcher, "-m", "latentalign", "train", *corpus, "--out", str(out), *sets]


def train(corpus, out, *options, processes=1, more=()):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command(corpus, out, *options, processes=processes), *more],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return out


def alone(corpus, out, *options):
    """A training of this process."""
    config = recipes.load(corpus[0], TRANSLATION.recipe, [*SIZES, *options])
    TRANSLATION.train(config, Run(out), resume=False, overwrite=False)
    return out


def checkpoint_of(run: Path) -> dict[str, dict[str, torch.Tensor]]:
    save = run / "checkpoint" / json.loads((run / "checkpoint" / "current.json").read_text())["save"]
    return {f.stem: safetensors.torch.load_file(f) for f in save.glob("*.safetensors")}


def curve(run: Path, name: str) -> list[float]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [r[name] for r in records if r["kind"] == "training"]


@pytest.mark.parametrize(
    ("name", "backbone"), [("marginal", []), ("variational-enum", []), ("marginal", TRANSFORMER)]
)
def test_two_processes_equal_one_with_the_doubled_batch(name, backbone, corpus, tmp_path):
    options = [*EXACT, *backbone, f"objective.name={name}"]
    one = alone(corpus, tmp_path / "one", *options, "training.batch_sentences=8")
    two = train(corpus, tmp_path / "two", *options, "training.batch_sentences=4", processes=2)
    single, double = checkpoint_of(one)["module"], checkpoint_of(two)["module"]
    assert single.keys() == double.keys()
    for key in single:
        torch.testing.assert_close(double[key], single[key], rtol=1e-10, atol=1e-10)
    assert curve(two, "bound") == pytest.approx(curve(one, "bound"), rel=1e-10)
    assert curve(two, "tokens") == curve(one, "tokens")  # every example once an epoch
    if name == "variational-enum":
        assert curve(two, "kl") == pytest.approx(curve(one, "kl"), rel=1e-9)


def test_resuming_with_two_processes_is_exact(corpus, tmp_path):
    options = ("objective.name=variational-sample", "training.batch_sentences=4", "training.checkpoint_steps=7",
               "training.epochs=9", "model.dropout=0.3")  # fmt: skip
    whole = train(corpus, tmp_path / "whole", *options, "training.max_steps=12", processes=2)
    train(corpus, tmp_path / "part", *options, "training.max_steps=7", processes=2)
    parts = train(
        corpus, tmp_path / "part", *options, "training.max_steps=12", processes=2, more=["--resume"]
    )
    a, b = checkpoint_of(whole), checkpoint_of(parts)
    assert {"random", "random-1"} <= a.keys() == b.keys()
    for group in a:
        for key in a[group]:
            assert torch.equal(a[group][key], b[group][key]), (group, key)
    assert any(not torch.equal(a["random"][k], a["random-1"][k]) for k in a["random"])


def test_a_resumed_training_needs_as_many_processes(corpus, tmp_path):
    options = ("objective.name=soft", "training.batch_sentences=4", "training.max_steps=2")
    run = train(corpus, tmp_path / "run", *options, processes=2)
    done = subprocess.run([*command(corpus, run, *options), "--resume"], capture_output=True, text=True)
    assert done.returncode == 4
    assert "--nproc-per-node 2" in done.stderr


def test_when_a_process_is_killed_all_end_and_its_rank_is_named(corpus, tmp_path):
    arguments = command(
        corpus, tmp_path / "run", "objective.name=soft", "training.batch_sentences=4",
        "training.epochs=100000", "training.patience=100000", processes=2,
    )  # fmt: skip
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    deadline = time.time() + 90
    metrics = tmp_path / "run" / "metrics.jsonl"
    while time.time() < deadline and not (metrics.is_file() and metrics.stat().st_size):
        time.sleep(0.2)
    workers = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
    victim = next(
        int(p) for p in workers if b"RANK=1\x00" in Path(f"/proc/{p}/environ").read_bytes()
        and b"LOCAL_RANK=1\x00" in Path(f"/proc/{p}/environ").read_bytes()
    )  # fmt: skip
    os.kill(victim, signal.SIGKILL)
    _, errors = process.communicate(timeout=600)  # ends a hanging test
    assert process.returncode != 0
    assert "rank      : 1" in errors or "rank: 1" in errors or "local_rank: 1" in errors
