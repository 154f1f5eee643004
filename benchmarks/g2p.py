"""Spelling to sound: soft attention, latent alignment and chains on SIGMORPHON 2020 task 1, with several seeds.

    python benchmarks/g2p.py CORPORA OUT [--jobs 2] [--seeds 3] [--languages fre,hin] [--table]

CORPORA holds g2p/. Trains the recipe `nmt/g2p` for every row, language and seed on one thread each and evaluates it on
the test set. Runs whose results are in OUT are not repeated. --table only prints the tables of the results that exist.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

LANGUAGES = ("fre", "hin", "hun", "ice", "jpn")
ROWS = {
    "soft": ("soft", "independent"),
    "marginal": ("marginal", "independent"),
    "jump": ("marginal", "jump"),
    "monotone": ("marginal", "monotone"),
    "variational": ("variational-sample", "independent"),
}
TITLES = {
    "soft": "`soft`",
    "marginal": "`marginal`",
    "jump": "`marginal`, jump chain",
    "monotone": "`marginal`, monotone chain",
    "variational": "`variational-sample`",
}


def train(corpora: Path, out: Path, row: str, language: str, seed: int) -> None:
    """Train and evaluate one run, unless that was done before."""
    name = f"{row}-{language}-{seed}"
    result = out / f"{name}.json"
    if result.exists():
        return
    objective, kind = ROWS[row]
    files = [
        f"data.{split}.pairs={corpora / 'g2p' / f'{language}_{end}.tsv'}"
        for split, end in (("train", "train"), ("valid", "dev"), ("test", "test"))
    ]
    settings = [*files, f"prior.kind={kind}", f"training.seed={seed}", "training.threads=1"]
    command = [sys.executable, "-m", "latentalign", "-q"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    options = [f"--set={s}" for s in settings]
    subprocess.run(
        [*command, "train", "nmt/g2p", "--out", out / name, "--resume", "--objective", objective, *options],
        check=True, env=environment, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    done = subprocess.run(
        [*command, "evaluate", out / name, "--json"], check=True, env=environment, stdout=subprocess.PIPE
    )
    result.write_bytes(done.stdout)


def read(out: Path, row: str, language: str, seeds: int, figure: str) -> list[float]:
    paths = (out / f"{row}-{language}-{seed}.json" for seed in range(seeds))
    return [json.loads(path.read_text())[figure] for path in paths if path.exists()]


def print_table(out: Path, languages: list[str], seeds: int, figure: str) -> None:
    """Mean and standard deviation over seeds for every language, and the mean over languages."""
    print(f"\n| {figure.upper()} | {' | '.join(languages)} | mean | against `soft` |")
    print("|---|" + "---:|" * (len(languages) + 2))
    base = None
    for row, title in TITLES.items():
        found = [read(out, row, language, seeds, figure) for language in languages]
        cells = [
            f"{np.mean(f):.2f} ± {np.std(f, ddof=1) if len(f) > 1 else 0:.2f}" if f else "" for f in found
        ]
        mean = np.mean([np.mean(f) for f in found]) if all(found) else float("nan")
        base = mean if row == "soft" else base
        print(f"| {title} | {' | '.join(cells)} | {mean:.2f} | {100 * (mean / base - 1):+.1f} % |")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpora", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--languages", default=",".join(LANGUAGES))
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    languages = asked.languages.split(",")
    asked.out.mkdir(parents=True, exist_ok=True)
    if not asked.table:
        plan = [(row, lang, seed) for seed in range(asked.seeds) for lang in languages for row in ROWS]
        with ThreadPoolExecutor(asked.jobs) as pool:
            list(pool.map(lambda one: train(asked.corpora, asked.out, *one), plan))
    for figure in ("wer", "per", "ppl"):
        print_table(asked.out, languages, asked.seeds, figure)


if __name__ == "__main__":
    main()
