"""How hard the demo language is: simple aligners on it, its links, its floor, and a model that cannot see the source.

    python benchmarks/demo_language.py OUT [--set training.epochs=4 ...]

Prints the AER of a diagonal aligner and of IBM model 1, the share of crossing and of possible links, the lowest
possible perplexity, and the perplexity of soft attention trained with its sources shuffled between sentences: what
any row must beat to have used the source at all.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

from latentalign.data import demo
from latentalign.nmt.baselines import diagonal_links, train_ibm1
from latentalign.nmt.links import Gold, score


def control(out: Path, splits: dict[str, list[demo.Pair]], overrides: list[str]) -> dict[str, float]:
    """Soft attention on pairs whose sources were dealt out anew."""
    folder = out / "shuffled"
    folder.mkdir(parents=True, exist_ok=True)
    for name, pairs in splits.items():
        sources = [" ".join(p.source) for p in pairs]
        random.Random(0).shuffle(sources)
        (folder / f"{name}.de").write_text("".join(f"{s}\n" for s in sources), encoding="utf-8")
        (folder / f"{name}.en").write_text(
            "".join(" ".join(p.target) + "\n" for p in pairs), encoding="utf-8"
        )
    recipe = folder / "recipe.toml"
    tables = [f'[data.{n}]\nsource = "{n}.de"\ntarget = "{n}.en"\n' for n in splits]
    recipe.write_text("\n".join(tables), encoding="utf-8")
    shipped = Path(demo.__file__).parents[1] / "recipes" / "nmt" / "demo.toml"
    recipe.write_text(
        recipe.read_text() + shipped.read_text(encoding="utf-8").split("[data.test]")[1].split("\n\n", 1)[1]
    )
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
