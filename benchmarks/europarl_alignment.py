"""AER on 100 Europarl pairs with human links after training on unlabelled text, one direction and symmetrised.

    python benchmarks/europarl_alignment.py CORPORA OUT [--set training.epochs=4 ...]

CORPORA holds europarl-20k/ and gold-de-en/. Trains one run per direction (or resumes it), aligns with the prior, the
posterior and its best path, and prints a table in Markdown. `de-en` or `en-de` as a third argument trains that
direction alone; the table then has no symmetrised links. `--ablation` trains German to English with one change at a
time instead. The gold links are used for these figures alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from latentalign.textfiles import read_lines

VALID = 300
ABLATION = {
    "the recipe": [],
    "head sees the state alone": ["model.emission=state"],
    "head sees the word alone": ["model.emission=word"],
    "independent alignments": ["prior.kind=independent"],
    "no NULL": ["prior.null=false"],
    "q alone: independent, no NULL, state": [
        "prior.kind=independent",
        "prior.null=false",
        "model.emission=state",
    ],
    "q from a network, one epoch of soft attention first": [
        "inference.kind=network",
        "objective.baseline=soft",
        "training.warm_start_objective=soft",
        "training.warm_start_epochs=1",
        "training.epochs=2",
    ],
}
"""What changes in each row of the ablation."""


def prepare(corpora: Path, out: Path) -> Path:
    """Write training text that includes the gold sentences without links, and a held-out part for validation."""
    folder = out / "data"
    folder.mkdir(parents=True, exist_ok=True)
    for side in ("de", "en"):
        text = list(read_lines(corpora / "europarl-20k" / f"train.{side}"))
        gold = list(read_lines(corpora / "gold-de-en" / f"test.{side}"))
        parts = {"train": [*text[:-VALID], *gold], "valid": text[-VALID:], "gold": gold}
        for name, lines in parts.items():
            (folder / f"{name}.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    keep = [i for i, pair in enumerate(zip(*(read_lines(folder / f"valid.{s}") for s in ("de", "en")), strict=True))
            if all(side.strip() for side in pair)]  # fmt: skip
    for side in ("de", "en"):
        lines = list(read_lines(folder / f"valid.{side}"))
        (folder / f"valid.{side}").write_text("".join(f"{lines[i]}\n" for i in keep), encoding="utf-8")
    return folder


def latentalign(*arguments: object) -> str:
    command = [sys.executable, "-m", "latentalign", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def train(folder: Path, run: Path, source: str, target: str, overrides: list[str]) -> dict[str, Any]:
    """Train one direction; the figures of the best model."""
    files = [
        f"data.{split}.{side}={folder / f'{name}.{language}'}"
        for split, name in (("train", "train"), ("valid", "valid"), ("test", "gold"))
        for side, language in (("source", source), ("target", target))
    ]
    options = [f"--set={o}" for o in (*files, *overrides)]
    return json.loads(
        latentalign("train", "nmt/europarl-align", "--out", run, "--resume", *options, "--json")
    )


def score_links(gold: Path, run: Path, options: list[object], path: Path) -> dict[str, float]:
    """AER, precision and recall, and the calibration of the probabilities."""
    path.write_text(latentalign("align", run, *options, "--format", "json"), encoding="utf-8")
    return json.loads(
        latentalign("aer", "--gold", gold, "--predicted", path, "--calibration", "--json", "--bootstrap", 0)
    )


def run_ablation(folder: Path, out: Path, gold: Path, text: list[object], overrides: list[str]) -> None:
    """Train German to English once for each row, and print perplexity and AER."""
    print(
        "| setting | perplexity | AER | precision | recall | ECE | minutes |\n|---|---:|---:|---:|---:|---:|---:|"
    )
    for number, (name, changes) in enumerate(ABLATION.items()):
        run = out / f"ablation-{number}"
        trained = train(folder, run, "de", "en", [*changes, *overrides])
        s = score_links(gold, run, text, out / f"ablation-{number}.jsonl")
        rates = " | ".join(f"{s[rate]:.3f}" for rate in ("aer", "precision", "recall"))
        minutes = sum(phase["minutes"] for phase in trained["phases"])
        ece = s["calibration"]["ece"]
        print(f"| {name} | {trained['ppl']:.1f} | {rates} | {ece:.3f} | {minutes:.1f} |", flush=True)


def main() -> None:
    corpora, out = Path(sys.argv[1]), Path(sys.argv[2])
    overrides = [a.removeprefix("--set=") for a in sys.argv[3:] if a != "--set" and "=" in a]
    only = next((a for a in sys.argv[3:] if a in ("de-en", "en-de")), None)
    folder = prepare(corpora, out) if not (out / "data" / "gold.en").exists() else out / "data"
    gold = corpora / "gold-de-en" / "test.align"
    text = ["--source", folder / "gold.de", "--target", folder / "gold.en"]
    if "--ablation" in sys.argv[3:]:
        run_ablation(folder, out, gold, text, overrides)
        return
    runs = {}
    for source, target in (("de", "en"), ("en", "de")):
        runs[source] = out / f"{source}-{target}"
        if only in (None, f"{source}-{target}"):
            print(source, target, train(folder, runs[source], source, target, overrides), file=sys.stderr)
    if only == "en-de":
        return
    directions: dict[str, list[object]] = {"de-en": []}
    if only is None:
        for method in ("intersection", "grow-diag-final-and"):
            directions[method] = ["--reverse", runs["en"], "--symmetrize", method]
    print("| links from | direction | AER | precision | recall | ECE |\n|---|---|---:|---:|---:|---:|")
    network = "inference.kind=network" in overrides
    for using in ("prior", *(["inferred"] if network else []), "posterior", "path"):
        for name, extra in directions.items():
            s = score_links(
                gold, runs["de"], [*text, "--using", using, *extra], out / f"{using}.{name}.jsonl"
            )
            # The probabilities are those of the first direction, so they say nothing about symmetrised links.
            ece = f"{s['calibration']['ece']:.3f}" if name == "de-en" else "-"
            rates = " | ".join(f"{s[rate]:.3f}" for rate in ("aer", "precision", "recall"))
            print(f"| {using} | {name} | {rates} | {ece} |")


if __name__ == "__main__":
    main()
