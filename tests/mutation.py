"""Changes one line of the source at a time and counts the changes that no test notices.

    python tests/mutation.py                        all targets, a sample of the large modules
    python tests/mutation.py search.py links.py     modules whose path contains a word
    python tests/mutation.py --sample 0 schedule    every mutant of a module
    python tests/mutation.py --again OUT.jsonl      only the survivors of an earlier run

It needs `pip install "latentalign[mutation]"`. Mutants are made by the operators of mutmut (support/mutants.py).
Each one runs in a process forked from this one, which has imported torch, on a copy of the project. Only tests that
execute the changed lines run, the fastest first, until one fails. `--out OUT.jsonl` stores the results.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import beartype  # noqa: F401  (imported once here and shared by all forked processes)
import scipy.stats  # noqa: F401
import torch
import torch._dynamo

from support.laboratory import Laboratory
from support.mutants import collect_changes, make
from support.mutation_targets import CONSTANTS, TARGETS

KILLED = ("killed", "timeout")


@dataclass(frozen=True)
class Result:
    """What became of a mutant: killed, timeout, survived, or uncovered by any test."""

    module: str
    line: int
    before: str
    after: str
    fate: str
    seconds: float


def try_module(
    lab: Laboratory, module: str, sample: int, seed: int, again: set | None
) -> tuple[int, list[Result]]:
    """The number of mutants of a module, and the results of a sample of them."""
    tree, changes = collect_changes((lab.package / module).read_text(encoding="utf-8"), CONSTANTS)
    chosen = list(range(len(changes)))
    if sample and len(changes) > sample and again is None:
        chosen = sorted(random.Random(f"{seed} {module}").sample(chosen, sample))
    results = []
    for number in chosen:
        mutant = make(tree, changes[number])
        if again is not None and (module, mutant.before, mutant.after) not in again:
            continue
        start, tests = time.perf_counter(), lab.tests_of(module, mutant)
        fate = lab.fate(module, mutant, tests)
        seconds = round(time.perf_counter() - start, 2)
        results.append(Result(module, mutant.first, mutant.before, mutant.after, fate, seconds))
        if fate != "killed":
            print(f"  {module}:{mutant.first} {fate} [{len(tests)} tests]", flush=True)
            print(f"    - {mutant.before}\n    + {mutant.after}", flush=True)
    return len(changes), results


def interval(killed: int, n: int) -> tuple[float, float]:
    """The 95 % interval of Wilson for a share."""
    z, p = 1.96, killed / n
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)


def summary(module: str, mutants: int, results: list[Result]) -> str:
    """One row of the table."""
    n, killed = len(results), sum(r.fate in KILLED for r in results)
    low, high = interval(killed, n) if n else (0.0, 0.0)
    share = f"{killed / max(1, n):.0%} ({low:.0%} to {high:.0%})"
    return f"| `{module}` | {mutants} | {n} | {killed} | {n - killed} | {share} |"


def parse_options() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*")
    parser.add_argument("--sample", type=int, default=40, help="mutants of a module; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slow", action="store_true", help="run slow tests too")
    parser.add_argument("--again", type=Path, help="try only the survivors of this file")
    parser.add_argument("--out", type=Path, help="results as JSON lines")
    return parser.parse_args()


def main() -> int:
    """Try the mutants of all chosen modules and print a table."""
    options = parse_options()
    torch.set_num_threads(1)
    again = None
    if options.again:
        records = [json.loads(line) for line in options.again.read_text().splitlines()]
        again = {(r["module"], r["before"], r["after"]) for r in records if r["fate"] not in KILLED}
    rows, done = [], set()
    with tempfile.TemporaryDirectory() as folder:
        lab = Laboratory(Path(folder).resolve() / "project", slow=options.slow)
        for files, patterns in TARGETS:
            modules = [m for p in patterns for m in sorted(lab.package.glob(p))]
            names = [m.relative_to(lab.package).as_posix() for m in modules]
            names = [n for n in names if n not in done]
            done |= set(names)
            names = [n for n in names if not options.words or any(w in n for w in options.words)]
            if again is not None:
                names = [n for n in names if any(n == a[0] for a in again)]
            if names:
                lab.observe(files)
                lab.serve(files)
            for name in names:
                mutants, results = try_module(lab, name, options.sample, options.seed, again)
                rows.append(summary(name, mutants, results))
                print(rows[-1], flush=True)
                if options.out:
                    with options.out.open("a") as file:
                        file.writelines(json.dumps(asdict(r)) + "\n" for r in results)
        lab.dismiss()
    print(
        "| module | mutants | tried | killed | survived | killed (95 % interval) |",
        "|---|---|---|---|---|---|",
        *rows,
        sep="\n",
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
