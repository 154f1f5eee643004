"""Speed beside other programs, all measured in turns in one run: JoeyNMT and plain PyTorch.

    python benchmarks/peers.py OUT [--batch 192] [--rounds 5] [--seconds 4] [--threads 2] [--without-joeynmt]
        [--only training]

JoeyNMT is installed from PyPI into OUT/joeynmt; it is no dependency of the project. Every program trains a model of
the same sizes on the same random sentences (those of `latentalign bench`) and translates the same sources. Prints
medians over rounds and ratios in Markdown. Run it on a quiet machine.

The models are as alike as their programs allow. Each has one recurrent layer of 256 units per side, or three layers of
256 with tied embeddings. JoeyNMT has an end of sentence on the source and, for LSTMs, one more layer in its attention.
Untrained models hardly ever end a sentence: ours stops at the length of each source, the others at that of the longest
of a batch. Batches hold sentences of similar length.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
import venv
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from latentalign.bench.rows import parse_row
from latentalign.bench.sentences import evenly_spaced
from latentalign.bench.subjects import Decoding, Training
from latentalign.bench.worker import Child
from latentalign.bench.workload import PRESETS, Preset, RandomData
from latentalign.tasks.nmt.inference_network import InferenceConfig
from latentalign.tasks.nmt.model import ModelConfig
from latentalign.tasks.nmt.tokenizer import EOS
from peer_pytorch import LSTMPeer, TransformerPeer, pad

JOEYNMT = "joeynmt==2.3.0"
IMPORTED = ("importlib_metadata", "matplotlib", "numpy", "packaging", "pyyaml", "sacrebleu", "sacremoses")
IMPORTED += ("sentencepiece", "subword-nmt", "tensorboard")
"""What JoeyNMT imports. Its package also asks for linters, plotting and data sets, which it does not need here."""
SIZE, LAYERS, HEADS, DROPOUT = 256, 3, 4, 0.3
BATCHES, SOURCES = 4, 64


def transformer_preset(batch: int) -> Preset:
    """Our transformer at the sizes of the peers."""
    config = ModelConfig(
        backbone="transformer", embedding=SIZE, joint_embedding=True, encoder_layers=LAYERS,
        decoder_layers=LAYERS, heads=HEADS, dropout=DROPOUT,
    )  # fmt: skip
    return Preset(config, InferenceConfig(layers=1, size=SIZE // 2), batch=batch)


def write_problem(preset: Preset, path: Path, threads: int) -> dict[str, Any]:
    """The sentences and sizes that every program gets, also as a file."""
    corpus = preset.corpus()
    data = RandomData(corpus, preset.batch)
    lengths = corpus.lengths("source")
    keys = sorted(data.batch_keys(0), key=lambda key: float(lengths[key].mean()))
    batches = [
        ([corpus.source(i).tolist() for i in key], [corpus.target(i).tolist() for i in key])
        for key in evenly_spaced(keys, BATCHES)
    ]
    sources = sorted((corpus.source(i).tolist() for i in range(len(corpus))), key=len)
    problem = {
        "vocabulary": preset.vocabulary, "size": SIZE, "layers": LAYERS, "heads": HEADS, "dropout": DROPOUT,
        "threads": threads, "batches": batches, "sources": evenly_spaced(sources, SOURCES),
    }  # fmt: skip
    path.write_text(json.dumps(problem), encoding="utf-8")
    return problem


class Plain:
    """A plain PyTorch model with fused Adam."""

    def __init__(self, path: Path, kind: str) -> None:
        problem = json.loads(path.read_text(encoding="utf-8"))
        torch.set_num_threads(problem["threads"])
        torch.manual_seed(0)
        if kind == "transformer":
            sizes = {"layers": problem["layers"], "heads": problem["heads"]}
            self.model: Any = TransformerPeer(problem["vocabulary"], SIZE, DROPOUT, **sizes)
        else:
            self.model = LSTMPeer(problem["vocabulary"], SIZE, DROPOUT, exact=kind == "exact")
        self.adam = torch.optim.Adam(self.model.parameters(), lr=1e-9, fused=True)
        self.batches = [(pad(s), pad([[*t, EOS] for t in targets])) for s, targets in problem["batches"]]
        self.sources = problem["sources"]
        self.update(*self.batches[0])

    def update(self, source: torch.Tensor, target: torch.Tensor) -> int:
        tokens = int((target != 0).sum())
        (self.model.loss(source, target) / tokens).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.adam.step()
        self.adam.zero_grad()
        return tokens

    def turn(self, seconds: float) -> float:
        """Target tokens per second."""
        self.model.train()
        tokens, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds or not tokens:
            tokens += sum(self.update(*batch) for batch in self.batches)
        return tokens / (time.perf_counter() - start)

    def speed(self, beam: int, batch: int) -> float:
        """Sentences per second."""
        self.model.eval()
        sources = evenly_spaced(self.sources, 16 * batch)
        groups = [sources[i : i + batch] for i in range(0, len(sources), batch)]
        start = time.perf_counter()
        for group in groups:
            self.model.translate(pad(group), beam)
        return sum(map(len, groups)) / (time.perf_counter() - start)


class JoeyNMT:
    """JoeyNMT in its own process and environment."""

    def __init__(self, out: Path, problem: Path, kind: str) -> None:
        python = install_joeynmt(out)
        script = Path(__file__).with_name("peer_joeynmt.py")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([python, script, problem, kind], **pipes)  # type: ignore[call-overload]

    def ask(self, **command: float) -> float:
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("JoeyNMT ended; its message is above")
        return float(line)


def install_joeynmt(out: Path) -> Path:
    """The interpreter of an environment that has JoeyNMT and the PyTorch of this one."""
    python = out / "joeynmt" / "bin" / "python"
    if not python.exists():
        venv.create(out / "joeynmt", with_pip=True)
        pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        version = torch.__version__.partition("+")[0]
        subprocess.run([*pip, f"torch=={version}"], check=True)
        subprocess.run([*pip, *IMPORTED], check=True)
        subprocess.run([*pip, "--no-deps", JOEYNMT], check=True)
    return python


def measure(ways: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The median of every way, measured in turns."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, work in ways.items():
            found[name].append(work())
    return {name: median(values) for name, values in found.items()}


def print_table(title: str, unit: str, found: dict[str, float], pairs: dict[str, str]) -> None:
    """Speeds, and those of ours relative to the peer of the same model."""
    print(f"\n### {title}\n\n| program | {unit} | ours relative to it |\n|---|---:|---:|")
    for name, value in found.items():
        ours = pairs.get(name)
        print(f"| {name} | {value:,.0f} | {f'{found[ours] / value:.2f}' if ours else ''} |")


def main() -> None:
    """Start all programs, let them take turns, print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--batch", type=int, default=192)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--without-joeynmt", action="store_true")
    parser.add_argument("--only", choices=["training", "decoding"], help="measure one of them")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    presets = {
        "LSTM": Preset(PRESETS["multi30k"].model, PRESETS["multi30k"].inference, batch=asked.batch),
        "transformer": transformer_preset(asked.batch),
    }
    problems = {}
    for name, preset in presets.items():
        problems[name] = asked.out / f"{name}.json"
        write_problem(preset, problems[name], asked.threads)
    if asked.only != "decoding":
        training(asked, presets, problems)
    if asked.only != "training":
        decoding(asked, presets, problems)


def training(asked: argparse.Namespace, presets: dict[str, Preset], problems: dict[str, Path]) -> None:
    """Tokens per second of training."""
    ours = {"soft": "LSTM", "marginal": "LSTM", "soft ": "transformer"}
    children: dict[str, Any] = {}
    for row, kind in ours.items():
        name = f"latentalign, {kind}, {row.strip()}"
        make = partial(Training, presets[kind], parse_row(row), threads=asked.threads, batches=BATCHES)
        children[name] = Child(name, make)
    plain = {"soft": "LSTM", "exact": "LSTM", "transformer": "transformer"}
    for kind, model in plain.items():
        name = f"plain PyTorch, {model}, {'marginal' if kind == 'exact' else 'soft'}"
        children[name] = Child(name, partial(Plain, problems[model], kind))
    for child in children.values():
        child.ready()
    ways: dict[str, Callable[[], float]] = {
        name: partial(child.ask, "turn", asked.seconds) for name, child in children.items()
    }
    if not asked.without_joeynmt:
        for model in problems:
            joey = JoeyNMT(asked.out, problems[model], model.lower())
            ways[f"JoeyNMT, {model}, soft"] = partial(joey.ask, train=asked.seconds)
    found = measure(ways, asked.rounds)
    pairs = {name: "latentalign, " + name.partition(", ")[2] for name in found if "latentalign" not in name}
    print_table(f"Training, batches of {asked.batch}", "target tokens/s", found, pairs)
    for child in children.values():
        child.close()


def decoding(asked: argparse.Namespace, presets: dict[str, Preset], problems: dict[str, Path]) -> None:
    """Sentences per second of beam search."""
    ours = {
        name: Child(name, partial(Decoding, preset, threads=asked.threads, sentences=SOURCES))
        for name, preset in presets.items()
    }
    plain = {kind: Child(kind, partial(Plain, problems["LSTM"], kind)) for kind in ("soft", "exact")}
    joey = {} if asked.without_joeynmt else {m: JoeyNMT(asked.out, problems[m], m.lower()) for m in problems}
    for child in (*ours.values(), *plain.values()):
        child.ready()
    for batch in (2, 32):
        ways: dict[str, Callable[[], float]] = {}
        for name, child in ours.items():
            for how in ("soft", "exact"):
                ways[f"latentalign, {name}, {how}"] = partial(child.ask, "speed", how, 10, batch)
        for how, child in plain.items():
            ways[f"plain PyTorch, LSTM, {how}"] = partial(child.ask, "speed", 10, batch)
        for name, peer in joey.items():
            ways[f"JoeyNMT, {name}, soft"] = partial(peer.ask, beam=10, batch=batch)
        found = measure(ways, asked.rounds)
        pairs = {n: "latentalign, " + n.partition(", ")[2] for n in found if "latentalign" not in n}
        print_table(f"Beam search, beam 10, batches of {batch}", "sentences/s", found, pairs)
    for child in (*ours.values(), *plain.values()):
        child.close()


if __name__ == "__main__":
    main()
