"""Figures of the rows of `latentalign reproduce` on a part of their test set, beside those on all of it.

    python benchmarks/part_of_test.py OUT --lines latentalign-data/iwslt14-filtered/test.lines

OUT is the folder of `reproduce`. The file holds the numbers of the lines to keep, counted from 1, as
`latentalign check-data --filtered` writes it. Nothing is computed again: the folder has the likelihood and the BLEU
statistics of every sentence. With several seeds, figures are means.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from latentalign.tasks.nmt.experiment import corpus_bleu

KEYS = ("ppl_soft", "ppl_exact", "ppl_kmax5", "entropy_prior")
DIGITS = (3, 3, 3, 2, 2)


def figures(details: dict[str, Any], rows: np.ndarray) -> list[float]:
    """Perplexities, entropy and BLEU of some sentences."""
    tokens = np.asarray(details["tokens"])[rows].sum()
    found = []
    for key in KEYS:
        if details["scores"].get(key) is None:  # mixtures have no K-max
            found.append(math.nan)
            continue
        mean = np.asarray(details["scores"][key])[rows].sum() / tokens
        found.append(float(mean) if key.startswith("entropy") else math.exp(-mean))
    return [*found, corpus_bleu(np.asarray(details["bleu_statistics"])[rows].sum(0))]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--lines", type=Path, required=True)
    options = parser.parse_args()
    kept = np.array([int(line) - 1 for line in options.lines.read_text(encoding="utf-8").split()])
    seeds: dict[str, list[Path]] = defaultdict(list)
    for path in sorted((options.out / "details").glob("*.json")):
        seeds[path.stem.rpartition("-")[0]].append(path)
    if not seeds:
        raise SystemExit(f"{options.out}: there are no details of rows")
    print("| row | test set | sentences | soft | exact | K-max 5 | entropy of p | BLEU |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for row, paths in seeds.items():
        each = [json.loads(path.read_bytes()) for path in paths]
        everything = np.arange(len(each[0]["tokens"]))
        for name, rows in (("all", everything), ("kept lines", kept)):
            means = map(fmean, zip(*(figures(details, rows) for details in each), strict=True))
            cells = [f"{value:.{digits}f}" for value, digits in zip(means, DIGITS, strict=True)]
            print("| " + " | ".join([row, name, f"{len(rows):,}", *cells]) + " |")


if __name__ == "__main__":
    main()
