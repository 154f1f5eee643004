"""Seconds and peak memory to encode large corpora: by size, by number of processes, and in several source trees.

    python benchmarks/encoding.py TREE... --data FOLDER... [--pairs 250000 500000 1000000] [--processes 1 2]
        [--new-words 0.02] [--rounds 3] [--kind bpe]

A TREE is a folder with `src/latentalign`, for example `.`. Each FOLDER holds `train.de` and `train.en`; all of them
together are repeated until there are enough pairs. A real corpus has new words everywhere, so a share of the words
(`--new-words`) differs in every repetition. All combinations take turns, because the speed of a machine changes while
others use it, and the medians are printed. All of them must write the same bytes. From three sizes on, a straight line
through the processor times gives an estimate for WMT17.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from itertools import count, islice, product
from pathlib import Path
from tempfile import TemporaryDirectory

WMT17_PAIRS = 5_900_000

PROBE = """
import hashlib, inspect, json, resource, sys, time
from pathlib import Path
from latentalign.tasks.nmt import data
from latentalign.tasks.nmt.tokenizer import Tokenizer

folder, processes, cache = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
tokenizer = Tokenizer.load(folder / "tokenizer.json")
library = 0.0

class Timed:
    def __init__(self, vocabulary):
        self.vocabulary = vocabulary

    def __getattr__(self, name):
        return getattr(self.vocabulary, name)

    def encode_batch_fast(self, *arguments, **options):
        global library
        start = time.perf_counter()
        try:
            return self.vocabulary.encode_batch_fast(*arguments, **options)
        finally:
            library += time.perf_counter() - start

for side in ("source", "target"):
    setattr(tokenizer, f"{side}_vocabulary", Timed(getattr(tokenizer, f"{side}_vocabulary")))
split = data.SplitConfig(source=folder / "source", target=folder / "target")

def used(who):
    found = resource.getrusage(who)
    return found.ru_utime + found.ru_stime, found.ru_maxrss / 1024

options = {"processes": processes} if "processes" in inspect.signature(data.build_cache).parameters else {}
before, memory = used(resource.RUSAGE_SELF)
start = time.perf_counter()
corpus = data.build_cache(tokenizer, split, cache, max_length=125, **options)
seconds = time.perf_counter() - start
own, own_peak = used(resource.RUSAGE_SELF)
others, other_peak = used(resource.RUSAGE_CHILDREN)
start = time.process_time()
data.build_cache(tokenizer, split, cache, max_length=125, **options)
again = time.process_time() - start
digest = hashlib.sha256(b"".join((cache / name).read_bytes() for name in sorted(data.ARRAYS))).hexdigest()
print(json.dumps({
    "seconds": seconds, "processor": own - before + others, "own": own - before, "library": library / seconds,
    "start_mb": memory, "peak_mb": own_peak, "other_peak_mb": other_peak, "again": again, "pairs": len(corpus),
    "sha256": digest,
}))
"""
"""Encodes a corpus with the code of a tree and prints what it cost."""

LEARN = """
import sys
from latentalign.tasks.nmt.tokenizer import Tokenizer, TokenizerConfig

source, target, kind, out = sys.argv[1:]
Tokenizer.learn(TokenizerConfig(kind=kind, vocab_size=8000), source, target).save(out)
"""

Measured = dict[str, float]


def main() -> None:
    """Measure all sizes, trees and numbers of processes, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("trees", nargs="+", type=Path, metavar="TREE")
    parser.add_argument("--data", nargs="+", type=Path, required=True)
    parser.add_argument("--pairs", nargs="+", type=int, default=[1_000_000])
    parser.add_argument("--processes", nargs="+", type=int, default=[1])
    parser.add_argument("--new-words", type=float, default=0.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kind", default="bpe")
    options = parser.parse_args()
    same = True
    lines: dict[tuple[Path, int], list[tuple[int, float]]] = {}
    for pairs in sorted(options.pairs):
        for key, middle in measure_size(pairs, options).items():
            same &= middle["digests"] == 1
            lines.setdefault(key, []).append((pairs, middle["processor"]))
    for (tree, processes), points in lines.items():
        if len(points) > 2:
            slope, start = statistics.linear_regression(*zip(*points, strict=True))
            estimate = start + slope * WMT17_PAIRS
            print(
                f"{tree}, processes {processes}: {start:.1f} s + {1e6 * slope:.1f} s per million pairs; "
                f"about {estimate:.0f} s of processor time for the {WMT17_PAIRS:,} pairs of WMT17"
            )
    print("the ids are identical" if same else "THE IDS DIFFER")
    sys.exit(not same)


def measure_size(pairs: int, options: argparse.Namespace) -> dict[tuple[Path, int], Measured]:
    """The medians of all trees and numbers of processes for one size."""
    keys = list(product(options.trees, options.processes))
    found: dict[tuple[Path, int], list[Measured]] = {key: [] for key in keys}
    with TemporaryDirectory() as name:
        folder = Path(name)
        words = write_corpus(options.data, folder, pairs, new_words=options.new_words)
        learned = [str(folder / "learn.source"), str(folder / "learn.target")]
        run(options.trees[-1], LEARN, *learned, options.kind, str(folder / "tokenizer.json"))
        for number in range(options.rounds):
            for place, (tree, processes) in enumerate(keys):
                cache = str(folder / f"cache-{number}-{place}")
                found[tree, processes].append(
                    json.loads(run(tree, PROBE, str(folder), str(processes), cache))
                )
    print(
        f"{pairs:,} pairs, {words / 1e6:.1f} million words, {options.kind}, medians of {options.rounds} rounds"
    )
    digests = {round_["sha256"] for rounds in found.values() for round_ in rounds}
    middles = {}
    for (tree, processes), rounds in found.items():
        middle = {key: statistics.median(r[key] for r in rounds) for key in rounds[0] if key != "sha256"}
        middles[tree, processes] = {**middle, "digests": len(digests)}
        print(f"  {tree}, processes {processes}: {describe(middle, processes)}")
    return middles


def describe(middle: Measured, processes: int) -> str:
    """One line about a measurement."""
    text = f"{middle['seconds']:.1f} s, {middle['processor']:.1f} s of processor time"
    if processes > 1:
        text += f" ({middle['own']:.1f} s in the process that reads)"
    else:
        text += f", library {middle['library']:.0%}"
    text += f"; peak {middle['peak_mb']:.0f} MB (at the start {middle['start_mb']:.0f})"
    if processes > 1:
        text += f" and up to {middle['other_peak_mb']:.0f} MB in each other process"
    return f"{text}; from the cache {middle['again']:.2f} s"


def write_corpus(folders: list[Path], folder: Path, pairs: int, *, new_words: float) -> int:
    """Write the text to learn from, and as many pairs as wanted; the number of words of both sides."""
    words = 0
    for side, ending in (("source", "de"), ("target", "en")):
        text = b"".join((data / f"train.{ending}").read_bytes() for data in folders)
        (folder / f"learn.{side}").write_bytes(text)
        with open(folder / side, "wb") as file:
            for line in islice(repeat_text(text.splitlines(), new_words), pairs):
                words += len(line.split())
                file.write(line + b"\n")
    return words


def repeat_text(lines: list[bytes], new_words: float) -> Iterator[bytes]:
    """All lines again and again. A share of the words gets the number of the repetition as its ending."""
    step = round(1 / new_words) if new_words else 0
    place = 0
    for number in count():
        for line in lines:
            words = line.split()
            if step and number:
                for index in range(-place % step, len(words), step):
                    words[index] += b"%d" % number
                place += len(words)
            yield b" ".join(words)


def run(tree: Path, code: str, *arguments: str) -> str:
    """The output of a program that uses a tree, with one thread."""
    environment = {**os.environ, "PYTHONPATH": str(tree.absolute() / "src")}
    environment |= {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    main()
