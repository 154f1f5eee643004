"""Seconds to encode a large corpus, the share of the tokenizers library, and peak memory, in two source trees.

    python benchmarks/encoding.py BEFORE AFTER --data FOLDER [--pairs 1000000] [--rounds 3] [--kind bpe]

BEFORE and AFTER are source trees (folders with `src/latentalign`). FOLDER holds `train.de` and `train.en`, which are
repeated until there are enough pairs. The trees take turns, because the speed of a machine changes while others use it,
and the medians are printed. Both trees must write the same bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

PROBE = """
import hashlib, json, resource, sys, time
from pathlib import Path
from latentalign.tasks.nmt import data
from latentalign.tasks.nmt.tokenizer import Tokenizer, TokenizerConfig

folder, kind, cache = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
learned = [folder / "learn.source", folder / "learn.target"]
tokenizer = Tokenizer.learn(TokenizerConfig(kind=kind, vocab_size=8000), *learned)
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
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start, processor = time.perf_counter(), time.process_time()
corpus = data.build_cache(tokenizer, split, cache, max_length=125)
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
digest = hashlib.sha256(b"".join((cache / name).read_bytes() for name in sorted(data.ARRAYS))).hexdigest()
print(json.dumps({
    "seconds": seconds, "processor": time.process_time() - processor, "library": library / seconds,
    "start_mb": before / 1024, "peak_mb": peak / 1024, "pairs": len(corpus), "sha256": digest,
}))
"""
"""Encodes a corpus with the code of a tree and prints what it cost."""


def main() -> None:
    """Measure both trees and print their medians."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("trees", nargs="+", type=Path, metavar="TREE")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kind", default="bpe")
    options = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_corpus(options.data, folder, options.pairs)
        found: dict[Path, list[dict[str, float]]] = {tree: [] for tree in options.trees}
        for number in range(options.rounds):
            for place, tree in enumerate(options.trees):
                found[tree].append(measure(tree, folder, options.kind, folder / f"cache-{number}-{place}"))
    digests = {round_["sha256"] for rounds in found.values() for round_ in rounds}
    print(f"{options.pairs:,} pairs, {options.kind}, medians of {options.rounds} rounds")
    for tree, rounds in found.items():
        middle = {key: statistics.median(r[key] for r in rounds) for key in rounds[0] if key != "sha256"}
        print(
            f"{tree}: {middle['seconds']:.1f} s ({middle['processor']:.1f} s of processor time), "
            f"library {middle['library']:.0%}, peak {middle['peak_mb']:.0f} MB (at the start {middle['start_mb']:.0f})"
        )
    print("the ids are identical" if len(digests) == 1 else "THE IDS DIFFER")
    sys.exit(len(digests) != 1)


def write_corpus(source: Path, folder: Path, pairs: int) -> None:
    """Write the text to learn from, and as many pairs as wanted."""
    for side, ending in (("source", "de"), ("target", "en")):
        text = (source / f"train.{ending}").read_bytes()
        (folder / f"learn.{side}").write_bytes(text)
        with open(folder / side, "wb") as file:
            file.writelines(islice(cycle(text.splitlines(keepends=True)), pairs))


def measure(tree: Path, folder: Path, kind: str, cache: Path) -> dict[str, float]:
    """One encoding in a process of its own, with one thread."""
    environment = {**os.environ, "PYTHONPATH": str(tree.absolute() / "src")}
    environment |= {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROBE, str(folder), kind, str(cache)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


if __name__ == "__main__":
    main()
