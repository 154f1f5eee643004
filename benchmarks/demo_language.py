"""Difficulty of the demo language: simple aligners, link statistics, and a model that cannot use the source.

    python benchmarks/demo_language.py OUT [--set training.epochs=4 ...]

Prints the AER of a diagonal aligner and of IBM model 1, the share of crossing and of possible links, the lowest
possible perplexity, and the perplexity of soft attention trained with sources shuffled between sentences. A model that
uses the source must have a lower perplexity than that.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

from latentalign import config as recipes
from latentalign.data import demo
from latentalign.links.scores import score
from latentalign.links.sets import Gold
from latentalign.tasks.nmt.baselines import diagonal_links, train_ibm1
from latentalign.tasks.nmt.recipe import NMTConfig


def control(out: Path, splits: dict[str, list[demo.Pair]], overrides: list[str]) -> dict[str, float]:
    """Metrics of soft attention trained on pairs with shuffled sources."""
    folder = out / "shuffled"
    folder.mkdir(parents=True, exist_ok=True)
    for name, pairs in splits.items():
        sources = [" ".join(p.source) for p in pairs]
        random.Random(0).shuffle(sources)
        (folder / f"{name}.de").write_text("".join(f"{s}\n" for s in sources), encoding="utf-8")
        (folder / f"{name}.en").write_text(
            "".join(" ".join(p.target) + "\n" for p in pairs), encoding="utf-8"
        )
    files = [
        f"data.{n}.{k}={folder / n}.{e}" for n in splits for k, e in (("source", "de"), ("target", "en"))
    ]
    config = recipes.load("nmt/demo", NMTConfig, files)
    without_gold = {n: getattr(config.data, n).model_copy(update={"gold": None}) for n in splits}
    config = config.model_copy(update={"data": config.data.model_copy(update=without_gold)})
    recipe = folder / "recipe.toml"
    recipe.write_text(recipes.dump(config), encoding="utf-8")
    options = [f"--set={o}" for o in overrides]
    command = [sys.executable, "-m", "latentalign"]
    train = [
        *command,
        "train",
        str(recipe),
        "--out",
        str(out / "control"),
        "--objective",
        "soft",
        "--resume",
        *options,
    ]
    subprocess.run(train, check=True, stdout=subprocess.DEVNULL)
    evaluate = [*command, "evaluate", str(out / "control"), "--no-bleu", "--json"]
    return json.loads(subprocess.run(evaluate, check=True, stdout=subprocess.PIPE).stdout)


def main() -> None:
    out = Path(sys.argv[1])
    overrides = [a.removeprefix("--set=") for a in sys.argv[2:] if a != "--set"]
    splits = demo.splits(10_000, 1_000, 1_000)
    test = splits["test"]
    gold = [Gold(p.sure, p.possible) for p in test]
    ibm = train_ibm1([(p.source, p.target) for p in splits["train"][:5000]])
    aligners = {
        "diagonal": [frozenset(diagonal_links(len(p.source), len(p.target))) for p in test],
        "IBM 1 (5,000 pairs)": [frozenset(ibm.align(p.source, p.target)) for p in test],
    }
    for name, links in aligners.items():
        print(f"AER of {name}: {score(gold, links, bootstrap=0).aer:.3f}", flush=True)
    facts = demo.statistics(test)
    print(f"crossing links: {facts.crossing_share:.3f}, possible links: {facts.possible_share:.3f}")
    print(f"floor of perplexity: {facts.floor_perplexity:.3f}", flush=True)
    print(f"soft attention with shuffled sources: perplexity {control(out, splits, overrides)['ppl']:.3f}")


if __name__ == "__main__":
    main()
