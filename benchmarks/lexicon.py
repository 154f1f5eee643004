"""What a lexicon does for translation and for alignment, measured on the demo language.

    python benchmarks/lexicon.py OUT [--run RUN] [--lines 1000] [--weights 0,5,10] [--pairs 1500] [--rows none,links-3]

First table: a lexicon that swaps the translations of frequent nouns, which no trained model would use. The run RUN (by
default one that is trained on the recipe `nmt/demo`) translates the test text with every weight. The references are
swapped in the same way, along the gold links. Second table: models that are trained on a few pairs, without and with a
dictionary of the demo language as evidence. Runs whose results are in OUT are not repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import sacrebleu

from latentalign.data import demo
from latentalign.tasks.nmt.task import TRANSLATION
from latentalign.tasks.nmt.translate import TranslationJob, TranslationSettings

SWAPS = 12
ROWS = {
    "none": [],
    "lexicon-1": ["evidence.lexicon={lexicon}", "evidence.weight=1"],
    "lexicon-3": ["evidence.lexicon={lexicon}", "evidence.weight=3"],
    "lexicon-10": ["evidence.lexicon={lexicon}", "evidence.weight=10"],
    "links-3": ["evidence.links={links}", "evidence.weight=3"],
}


def count_translations(pairs: list[demo.Pair]) -> dict[str, Counter[str]]:
    """For each source word, how often it is the only source of each target word."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for pair in pairs:
        for i, j in pair.sure:
            if sum(link[0] == i for link in pair.sure) == sum(link[1] == j for link in pair.sure) == 1:
                found[pair.source[i]][pair.target[j]] += 1
    return found


def dictionary(pairs: list[demo.Pair], least: int = 5) -> dict[str, list[str]]:
    """The translations that make up a fifth or more of the occurrences of a source word."""
    counted = count_translations(pairs)
    return {
        word: [t for t, n in seen.items() if n >= least and n >= seen.total() / 5]
        for word, seen in counted.items()
        if max(seen.values()) >= least
    }


def swapped_nouns(train: list[demo.Pair], test: list[demo.Pair]) -> dict[str, str]:
    """Frequent nouns with a single translation of one word, each with the translation of another one."""
    frequency = Counter(word for pair in test for word in pair.source)
    counted = count_translations(train)
    single = {
        word: next(iter(seen))
        for word, seen in counted.items()
        if len(seen) == 1 and word[0].isupper() and seen.total() >= 20
    }
    unique = [w for w in single if Counter(single.values())[single[w]] == 1 and frequency[w]]
    unique.sort(key=lambda word: (-frequency[word], word))
    chosen = unique[: 2 * SWAPS]
    return {
        a: single[b] for x, y in zip(chosen[::2], chosen[1::2], strict=False) for a, b in ((x, y), (y, x))
    }


def swap_references(test: list[demo.Pair], lexicon: dict[str, str]) -> list[str]:
    """The target text with the words that are linked to an entry replaced by its target."""
    found = []
    for pair in test:
        words = list(pair.target)
        for i, j in pair.sure:
            words[j] = lexicon.get(pair.source[i], words[j])
        found.append(" ".join(words))
    return found


def call(*arguments: object) -> bytes:
    """The output of a command of latentalign on one thread."""
    command = [sys.executable, "-m", "latentalign", "-q", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE).stdout


def print_decoding(out: Path, run: Path, splits: dict[str, list[demo.Pair]], weights: list[float]) -> None:
    """Satisfied share and BLEU of the test text by weight."""
    if not weights:
        return
    if not (run / "config.toml").exists():
        call("train", "nmt/demo", "--out", run, "--set", "training.threads=1")
    lexicon = swapped_nouns(splits["train"], splits["test"])
    path = out / f"swapped-{len(splits['test'])}.tsv"  # it depends on the lines
    path.write_text("".join(f"{s}\t{t}\n" for s, t in lexicon.items()), encoding="utf-8")
    references = swap_references(splits["test"], lexicon)
    lines, trained = [" ".join(pair.source) for pair in splits["test"]], TRANSLATION.load(run)
    print(f"\n{len(lexicon)} entries, {len(lines)} lines\n")
    print("| weight | satisfied | BLEU, swapped references | BLEU, plain references | log p per line |")
    print("|---:|---:|---:|---:|---:|")
    for weight in weights:
        job = TranslationJob(trained, lines, TranslationSettings(lexicon=path, lexicon_weight=weight))
        outputs = list(job.translate())
        summary = job.lexicon_summary(outputs)[0].split()
        texts = [best[0].text for best in outputs]
        plain = [" ".join(pair.target) for pair in splits["test"]]
        bleu = [sacrebleu.corpus_bleu(texts, [r], force=True).score for r in (references, plain)]
        share, mean = int(summary[1]) / int(summary[3]), sum(b[0].log_prob for b in outputs) / len(outputs)
        print(f"| {weight:g} | {share:.3f} | {bleu[0]:.2f} | {bleu[1]:.2f} | {mean:.2f} |", flush=True)


def print_alignment(out: Path, splits: dict[str, list[demo.Pair]], pairs: int, rows: list[str]) -> None:
    """AER and perplexity of models trained on few pairs, by evidence."""
    folder = out / f"few-{pairs}"
    folder.mkdir(parents=True, exist_ok=True)
    few = splits["train"][:pairs]
    lexicon, links = folder / "dictionary.tsv", folder / "links"
    known = dictionary(splits["train"])
    lexicon.write_text("".join(f"{s}\t{t}\n" for s, ts in known.items() for t in ts), encoding="utf-8")
    links.write_text("".join(" ".join(f"{i}-{j}" for i, j in sorted(p.sure)) + "\n" for p in few))
    for side, name in (("source", "de"), ("target", "en")):
        text = "".join(" ".join(getattr(pair, side)) + "\n" for pair in few)
        (folder / f"train.{name}").write_text(text, encoding="utf-8")
    print(f"\n{pairs} training pairs, {sum(map(len, known.values()))} entries\n")
    print("| evidence | AER posterior | AER prior | perplexity |\n|---|---:|---:|---:|")
    for row in rows:
        settings = [f"data.train.source={folder / 'train.de'}", f"data.train.target={folder / 'train.en'}"]
        settings += ["training.threads=1", "training.epochs=12", "training.warm_start_epochs=4"]
        settings += [s.format(lexicon=lexicon, links=links) for s in ROWS[row]]
        result = folder / f"{row}.json"
        if not result.exists():
            options = [option for s in settings for option in ("--set", s)]
            options += ["--objective", "marginal", "--resume"]
            call("train", "nmt/demo", "--out", folder / row, *options)
            result.write_bytes(call("evaluate", folder / row, "--no-bleu", "--json"))
        found = json.loads(result.read_text())
        figures = (found["aer_posterior"], found["aer_prior"], found["ppl"])
        print(f"| {row} | {' | '.join(f'{f:.3f}' for f in figures)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--weights", default="0,1,2,5,10,15,20,30")
    parser.add_argument("--lines", type=int, default=1000, help="lines of the test text to translate")
    parser.add_argument("--pairs", type=int, default=1500)
    parser.add_argument("--rows", default=",".join(ROWS))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    splits = demo.splits(10_000, 1_000, 1_000)
    weights = [float(weight) for weight in options.weights.split(",") if weight]
    splits["test"] = splits["test"][: options.lines]
    print_decoding(options.out, options.run or options.out / "demo", splits, weights)
    print_alignment(options.out, splits, options.pairs, [row for row in options.rows.split(",") if row])


if __name__ == "__main__":
    main()
