"""What a transformer's emission may know about the source: objectives side by side for every setting.

    python benchmarks/emission_states.py OUT [--recipe nmt/demo-transformer] [--steps 942] [--only full,lagged]
        [--objectives soft,marginal,variational-sample]

Trains each setting with each objective, one seed, one thread, with the settings of the recipe and the same number of
updates. q starts at the prior. Finished runs in OUT are kept. Prints a Markdown table: test perplexity, how much z
matters, and the CPU time of training relative to the first row.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

SETTINGS = {
    "full": ["model.emission_state=full"],
    "lagged": ["model.emission_state=lagged"],
    "fed": ["model.emission_state=full", "model.feed_expected=true"],
    "lagged-fed": ["model.emission_state=lagged", "model.feed_expected=true"],
    "bottleneck": ["model.emission_state=full", "model.emission_bottleneck=16"],
    "dropped": ["model.emission_state=full", "model.emission_drop=0.3"],
    "cross": ["model.emission_state=full", "model.cross_layers=1"],
    "cross-bottleneck": [
        "model.emission_state=full",
        "model.cross_layers=1",
        "model.emission_bottleneck=16",
    ],
}
"""The part of the recipe that each setting changes."""


def call(*arguments: str) -> tuple[dict[str, Any], float]:
    """The JSON object that a command prints, and its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "latentalign", *arguments, "--json"], check=True, stdout=subprocess.PIPE
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found: dict[str, Any] = json.loads(done.stdout)
    return found, seconds


def measure(name: str, objective: str, options: argparse.Namespace) -> dict[str, Any]:
    """The figures of one model, from its file if it is finished."""
    run: Path = options.out / f"{name}-{objective}"
    result = run.with_suffix(".json")
    if not result.is_file():
        common = [
            f"training.max_steps={options.steps}",
            "training.threads=1",
            "inference.start_at_prior=true",
        ]
        changes = [f"--set={change}" for change in (*SETTINGS[name], *common, *options.set)]
        _, seconds = call(
            "train", options.recipe, "--out", str(run), "--objective", objective, "--overwrite", *changes
        )
        figures, _ = call("evaluate", str(run))
        result.write_text(json.dumps({"figures": figures, "cpu_seconds": seconds}), encoding="utf-8")
    found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return found


def main() -> None:
    """Train what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--recipe", default="nmt/demo-transformer")
    parser.add_argument("--steps", type=int, default=942)
    parser.add_argument("--only", default=",".join(SETTINGS), help="comma-separated settings")
    parser.add_argument(
        "--objectives", default="soft,marginal,variational-sample", help="comma-separated names"
    )
    parser.add_argument("--set", action="append", default=[], help="table.key=value; repeatable")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    columns = ("ppl", "bleu", "mutual_information", "entropy_prior", "entropy_posterior", "aer_posterior")
    print(f"| emission | objective | {' | '.join(columns)} | CPU time |\n{'|---' * (len(columns) + 3)}|")
    plain = None
    for name in options.only.split(","):
        for objective in options.objectives.split(","):
            found = measure(name, objective, options)
            plain = plain or found["cpu_seconds"]
            figures = found["figures"]
            cells = [f"{figures[column]:.3f}" if column in figures else "-" for column in columns]
            ratio = f"{found['cpu_seconds'] / plain:.2f}"
            print(f"| {name} | {objective} | " + " | ".join(cells) + f" | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
