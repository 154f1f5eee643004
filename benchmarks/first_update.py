"""Seconds from the start of the process to the first update of training, in two source trees.

    python benchmarks/first_update.py BEFORE AFTER --data FOLDER [--rounds 3] [--recipe nmt/multi30k-small]

BEFORE and AFTER are source trees (folders with `src/latentalign`), each optionally followed by `=PYTHON`, the
interpreter to use for it. FOLDER holds `train.de`, `train.en`, `valid.de`, `valid.en`, `test.de` and `test.en`. The
trees take turns, because the speed of a machine changes while others use it. The medians are compared. Both trees must
write the same `tokenizer.json` and have the same parameters after the first update.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

PROBE = """
import hashlib, json, os, runpy, time
import torch

fused_adam = torch._fused_adam_

def report(parameters, *arguments, **options):
    fused_adam(parameters, *arguments, **options)
    seconds = time.time() - float(os.environ["STARTED"])
    digests = sorted(hashlib.sha256(p.detach().numpy().tobytes()).hexdigest() for p in parameters)
    digest = hashlib.sha256("".join(digests).encode()).hexdigest()
    print(json.dumps({"seconds": seconds, "cpu": time.process_time(), "parameters": digest}), flush=True)
    os._exit(0)

torch._fused_adam_ = report
runpy.run_module("latentalign", run_name="__main__", alter_sys=True)
"""
"""Runs the command line of a tree and ends it after the first update."""


@dataclass(frozen=True)
class Tree:
    """A source tree and the interpreter that runs it."""

    folder: Path
    python: str

    @classmethod
    def parse(cls, text: str) -> Tree:
        """A tree from `FOLDER` or `FOLDER=PYTHON`."""
        folder, _, python = text.partition("=")
        return cls(Path(folder).absolute(), python or sys.executable)


@dataclass(frozen=True)
class FirstUpdate:
    """When the first update ended, and its result."""

    seconds: float
    cpu: float
    """Seconds of processor time, which depend less on other work of the machine."""
    parameters: str
    tokenizer: str


def measure(tree: Tree, recipe: str, data: Path) -> FirstUpdate:
    """Start training in a new directory and wait for the first update."""
    keys = [f"{split}.{side}" for split in ("train", "valid", "test") for side in ("source", "target")]
    files = [data / f"{split}.{code}" for split in ("train", "valid", "test") for code in ("de", "en")]
    settings = [f"--set=data.{key}={file}" for key, file in zip(keys, files, strict=True)]
    with TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        environment = os.environ | {"PYTHONPATH": str(tree.folder / "src"), "STARTED": repr(time.time())}
        done = subprocess.run(
            [tree.python, "-c", PROBE, "train", recipe, "--out", str(run), *settings],
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"{tree.folder}: training failed\n{done.stderr}")
        tokenizer = hashlib.sha256((run / "tokenizer.json").read_bytes()).hexdigest()
    return FirstUpdate(**json.loads(done.stdout.splitlines()[-1]), tokenizer=tokenizer)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Tree.parse)
    parser.add_argument("after", type=Tree.parse)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--recipe", default="nmt/multi30k-small")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    data = options.data.absolute()
    rounds: list[tuple[FirstUpdate, FirstUpdate]] = []
    for number in range(options.rounds):
        before, after = (measure(tree, options.recipe, data) for tree in (options.before, options.after))
        rounds.append((before, after))
        processor = f"processor {before.cpu:.2f} s and {after.cpu:.2f} s"
        print(
            f"round {number + 1}: {before.seconds:.2f} s and {after.seconds:.2f} s, {processor}", flush=True
        )
    for name in ("seconds", "cpu"):
        old, new = (statistics.median(getattr(both[i], name) for both in rounds) for i in (0, 1))
        print(f"median {name}: before {old:.2f}, after {new:.2f}, ratio {new / old:.3f}")
    for name in ("tokenizer", "parameters"):
        same = len({getattr(one, name) for both in rounds for one in both}) == 1
        print(f"{name}: {'identical' if same else 'DIFFERENT'}")


if __name__ == "__main__":
    main()
