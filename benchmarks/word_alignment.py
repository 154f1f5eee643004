"""Word aligners on the same text in the same run: this project, eflomal and systran-align, with an ablation.

    python benchmarks/word_alignment.py CORPORA OUT [--ablation]
    python benchmarks/word_alignment.py CORPORA OUT --growth

CORPORA holds europarl-20k/ and gold-de-en/ (and iwslt14-part/ and multi30k/ for --growth). eflomal and systran-align
are installed from PyPI into OUT/tools; they are not dependencies of the project. All aligners learn from the Europarl
text and the gold sentences without their links, lowercased. Prints tables in Markdown. --growth trains on 25,000 to
200,000 pairs (all three corpora, shuffled; the largest size repeats them) and prints memory and time.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
import venv
from pathlib import Path

import numpy as np

from latentalign.links.formats import read_gold, read_links
from latentalign.links.scores import score
from latentalign.links.sets import Links, symmetrize
from latentalign.textfiles import read_lines

TOOLS = ("eflomal", "systran-align", "numpy")
ABLATION = {
    "all of it": [],
    "whole words only": ["aligner.prefixes=[]", "aligner.suffixes=[]"],
    "no suffixes": ["aligner.suffixes=[]"],
    "prefixes of five letters": ["aligner.prefixes=[5]"],
    "dense tables (0.1)": ["aligner.sparsity=0.1"],
    "jumps in full": ["aligner.jump_weight=1.0"],
    "counts only where both agree": ["aligner.own_share=0.0"],
    "counts in full where directions disagree": ["aligner.own_share=1.0"],
    "one pass with the chain": ["aligner.iterations=1"],
}
SYSTRAN = """
import sys, systran_align
folder = sys.argv[1]
systran_align.generate_alignment_probabilities(
    folder + "/both", folder + "/forward", folder + "/backward", favor_diagonal=True, optimize_tension=True,
    variational_bayes=True)
aligner = systran_align.Aligner(folder + "/forward", folder + "/backward")
for line in open(folder + "/both", encoding="utf-8"):
    source, _, target = line.rstrip("\\n").partition(" ||| ")
    links = aligner.align(source.split(), target.split())["alignments"]
    print(" ".join(f"{i}-{j}" for i, j in links))
"""


def run(*command: object, **options: object) -> str:
    done = subprocess.run([str(c) for c in command], check=True, stdout=subprocess.PIPE, text=True, **options)
    return done.stdout


def timed(*command: object) -> tuple[str, float, float]:
    """The output of a command, its wall time and its CPU time."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    output = run(*command)
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return output, wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def prepare(corpora: Path, out: Path) -> Path:
    """Write the training text: Europarl, then the gold sentences."""
    folder = out / "data"
    folder.mkdir(parents=True, exist_ok=True)
    for side in ("de", "en"):
        gold = list(read_lines(corpora / "gold-de-en" / f"test.{side}"))
        text = [*read_lines(corpora / "europarl-20k" / f"train.{side}"), *gold]
        (folder / f"all.{side}").write_text("".join(f"{line.lower()}\n" for line in text), encoding="utf-8")
    pairs = zip(read_lines(folder / "all.de"), read_lines(folder / "all.en"), strict=True)
    (folder / "both").write_text("".join(f"{a} ||| {b}\n" for a, b in pairs), encoding="utf-8")
    return folder


def install_tools(out: Path) -> Path:
    """A separate environment with the other aligners."""
    folder = out / "tools"
    if not (folder / "bin" / "eflomal-align").exists():
        venv.create(folder, with_pip=True)
        run(folder / "bin" / "pip", "install", "-q", *TOOLS)
    return folder / "bin"


def gold_part(links: list[Links], count: int) -> list[Links]:
    return links[-count:]


def run_eflomal(tools: Path, folder: Path, *options: object) -> tuple[dict[str, list[Links]], float, float]:
    forward, backward = folder / "eflomal.forward", folder / "eflomal.backward"
    _, wall, cpu = timed(
        tools / "python", tools / "eflomal-align", "--overwrite",
        "-s", folder / "all.de", "-t", folder / "all.en", "-f", forward, "-r", backward, *options,
    )  # fmt: skip
    one, two = read_links(forward), read_links(backward)
    both = [symmetrize(a, b, "intersection") for a, b in zip(one, two, strict=True)]
    return {"forward": one, "intersection": both}, wall, cpu


def run_systran(tools: Path, folder: Path) -> tuple[dict[str, list[Links]], float, float]:
    output, wall, cpu = timed(tools / "python", "-c", SYSTRAN, folder)
    path = folder / "systran.links"
    path.write_text(output, encoding="utf-8")
    return {"symmetrised": read_links(path)}, wall, cpu


def run_ours(folder: Path, settings: list[str], name: str) -> tuple[list[Links], float, float, Path]:
    """Train and align, as `latentalign align --source F --target F` does, with other settings if there are any."""
    command = [sys.executable, "-m", "latentalign"]
    out = folder / f"{name}.links"
    out.unlink(missing_ok=True)
    text = ["--source", folder / "all.de", "--target", folder / "all.en"]
    if not settings:
        _, wall, cpu = timed(*command, "-q", "align", *text, "-o", out)
        return read_links(out), wall, cpu, out
    run_folder = folder / name
    files = [f"data.train.source={folder / 'all.de'}", f"data.train.target={folder / 'all.en'}"]
    recipe = folder / "recipe.toml"
    recipe.write_text('task = "alignment"\n', encoding="utf-8")
    sets = [f"--set={s}" for s in (*files, *settings)]
    _, wall, cpu = timed(*command, "-q", "train", recipe, "--out", run_folder, "--overwrite", "--json", *sets)
    _, more_wall, more_cpu = timed(*command, "-q", "align", run_folder, *text, "-o", out)
    return read_links(out), wall + more_wall, cpu + more_cpu, out


def compare(ours: list[Links], theirs: list[Links], gold: list) -> float:
    """Share of bootstrap resamplings of the sentences in which our AER is lower."""
    generator = np.random.default_rng(0)
    counts = np.array(
        [
            (len(a & g.sure), len(a), len(b & g.sure), len(b), len(g.sure))
            for a, b, g in zip(ours, theirs, gold, strict=True)
        ]
    )
    drawn = counts[generator.integers(len(gold), size=(10_000, len(gold)))].sum(1)
    own, other = (1 - 2 * drawn[:, k] / (drawn[:, k + 1] + drawn[:, 4]) for k in (0, 2))
    return float((own < other).mean())


def main() -> None:
    corpora, out = Path(sys.argv[1]), Path(sys.argv[2])
    if "--growth" in sys.argv:
        growth(corpora, out)
        return
    folder, tools = prepare(corpora, out), install_tools(out)
    gold = read_gold(corpora / "gold-de-en" / "test.align")
    ours, wall, cpu, _ = run_ours(folder, [], "latentalign")
    mine = gold_part(ours, len(gold))
    rows = [("latentalign align", mine, wall, cpu)]
    for name, options in (
        ("eflomal", ()),
        ("eflomal, prefixes of 5", ("--source-prefix", 5, "--target-prefix", 5)),
    ):
        found, wall, cpu = run_eflomal(tools, folder, *options)
        rows += [(f"{name}, {kind}", gold_part(links, len(gold)), wall, cpu) for kind, links in found.items()]
    found, wall, cpu = run_systran(tools, folder)
    rows += [
        (f"systran-align, {kind}", gold_part(links, len(gold)), wall, cpu) for kind, links in found.items()
    ]
    print("| aligner | AER | 95 % | precision | recall | seconds | CPU seconds | ours is better in |")
    print("|---|---:|---|---:|---:|---:|---:|---:|")
    for name, links, wall, cpu in rows:
        s = score(gold, links)
        low, high = s.intervals["aer"]
        better = "" if links is mine else f"{100 * compare(mine, links, gold):.1f} %"
        print(
            f"| {name} | {s.aer:.3f} | {low:.3f} .. {high:.3f} | {s.precision:.3f} | {s.recall:.3f} "
            f"| {wall:.0f} | {cpu:.0f} | {better} |",
            flush=True,
        )
    if "--ablation" in sys.argv:
        print("\n| setting | AER | precision | recall |\n|---|---:|---:|---:|")
        for number, (name, settings) in enumerate(ABLATION.items()):
            links = mine if not settings else run_ours(folder, settings, f"ablation-{number}")[0]
            s = score(gold, gold_part(links, len(gold)), bootstrap=0)
            print(f"| {name} | {s.aer:.3f} | {s.precision:.3f} | {s.recall:.3f} |", flush=True)


GROWTH = """
import json, resource, sys, time
import torch
from latentalign.aligner import train_aligner
from latentalign.textfiles import read_parallel
torch.set_num_threads(1)
began = time.monotonic()
aligner = train_aligner(read_parallel(sys.argv[1], sys.argv[2]))
def anonymous():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": time.monotonic() - began, "peak_mb": peak, "after_mb": anonymous()}))
"""


def growth(corpora: Path, out: Path) -> None:
    """Memory and time for more and more pairs of three corpora together."""
    folder = out / "growth"
    folder.mkdir(parents=True, exist_ok=True)
    parts = ("iwslt14-part", "europarl-20k", "multi30k")
    text = {
        side: [line.lower() for part in parts for line in read_lines(corpora / part / f"train.{side}")]
        for side in ("de", "en")
    }
    order = np.random.default_rng(0).permutation(len(text["de"])).tolist()
    print("\n| pairs | seconds | peak memory, MB | memory at the end, MB |\n|---:|---:|---:|---:|")
    for count in (25_000, 50_000, 100_000, 200_000):
        files = []
        for side, lines in text.items():
            path = folder / f"{count}.{side}"
            repeated = [lines[order[i % len(order)]] for i in range(count)]  # the last size has pairs twice
            path.write_text("".join(f"{line}\n" for line in repeated), encoding="utf-8")
            files.append(path)
        found = json.loads(run(sys.executable, "-c", GROWTH, *files).splitlines()[-1])
        print(
            f"| {count:,} | {found['seconds']:.0f} | {found['peak_mb']:.0f} | {found['after_mb']:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
