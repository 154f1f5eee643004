"""One look, several looks and two dependent looks: likelihood, accuracy by kind of question, and cost.

    python benchmarks/looks.py --out DIR [--tasks scenes,demo] [--looks 1,2,4,dependent] [--set training.epochs=8 ...]
    python benchmarks/looks.py --out DIR --cost

Trains every model with the objective `marginal`, one seed, in one thread, and evaluates it on the test split. Data are
generated into the working directory. Finished runs in DIR are kept, so the command can be repeated after an
interruption. The cost of an update is the median CPU time of a few updates on the first batch, user and system time.
With `--cost`, nothing else is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

RECIPES = {"scenes": "vqa/scenes", "demo": "nmt/demo", "demo-transformer": "nmt/demo-transformer"}
KINDS = ("attribute", "spatial", "existence", "counting", "comparison")


def read(name: str, looks: str, changes: list[str]) -> tuple[Any, Any]:
    """The task and the recipe of a model; its data are generated if they are not there."""
    from latentalign.config import read_recipe
    from latentalign.data.known import materialize
    from latentalign.tasks.registry import task_of_recipe

    source = read_recipe(RECIPES[name])
    task = task_of_recipe(source)
    fixed = [f"prior.looks={looks}", "objective.name=marginal", "training.threads=1"]
    config = source.build(task.recipe, [*fixed, *changes])
    materialize(task.required_file(config))
    return task, config


def update_seconds(task: Any, config: Any, *, rounds: int = 7) -> tuple[float, str]:
    """Median CPU seconds of an update on the first batch, and the size of the sum of that batch."""
    import torch

    from latentalign.training.distributed import World
    from latentalign.training.run import Run

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder) / "run")
        task.open_run(config, run, resume=False, overwrite=False)
        data = task.prepare(config, run, World())
        torch.manual_seed(0)
        model, objective = task.build_model(config, data.vocabulary).train(), config.objective.build()
        batch = data.load_batch(data.batch_keys(0)[0])
        optimiser, seconds = torch.optim.Adam(model.parameters()), []
        for _ in range(rounds + 1):
            start = time.process_time()
            latent = model.latent(batch)
            optimiser.zero_grad()
            objective(latent).loss().backward()
            optimiser.step()
            seconds.append(time.process_time() - start)
        shape = latent.prior.mask.shape
        return median(seconds[1:]), f"{shape[:-1].numel()} x {shape[-1]}"


def train(name: str, looks: str, out: Path, changes: list[str]) -> dict[str, Any]:
    """Train and evaluate one model in this process: figures, CPU seconds and updates."""
    from latentalign.tasks.base import EvaluationOptions
    from latentalign.training.run import Run

    task, config = read(name, looks, changes)
    update = update_seconds(task, config)[0]
    start = time.process_time()
    result = task.train(config, Run(out), resume=True, overwrite=False)
    seconds = time.process_time() - start
    trained = task.load(out)
    figures, _ = task.evaluate(trained, "test", EvaluationOptions())
    found = {"figures": figures, "training": result, "cpu_seconds": seconds, "update_seconds": update}
    found["parameters"] = sum(p.numel() for p in trained.model.parameters())
    if name == "scenes":
        found["nll_by_kind"] = nll_by_kind(trained)
    return found


def nll_by_kind(trained: Any) -> dict[str, float]:
    """Negative log-likelihood of the human answers in nats, by kind of question."""
    from latentalign.core.predictives import parse_predict
    from latentalign.tasks.vqa.evaluate import observed_batches
    from latentalign.tasks.vqa.recipe import open_split

    corpus, predictive = open_split(trained, "test"), parse_predict(trained.objective.predict)
    kinds = [example.annotation.question_type for example in corpus.examples]
    sums: dict[str, float] = defaultdict(float)
    for part, latent in observed_batches(trained, corpus):
        nll = -predictive.log_prob(latent).detach().double().cpu() * part.weight
        for index, value in zip(part.batch.index.tolist(), nll.tolist(), strict=True):
            sums[kinds[index]] += value
    counts = {kind: sum(kinds[i] == kind for i in corpus.answerable) for kind in sums}
    return {kind: total / counts[kind] for kind, total in sums.items()}


def run_all(options: argparse.Namespace) -> dict[tuple[str, str], dict[str, Any]]:
    """The results of every model, each from a process of its own unless it is finished."""
    found = {}
    for name in options.tasks.split(","):
        for looks in options.looks.split(","):
            folder: Path = options.out / f"{name}-{looks}"
            result = folder.with_suffix(".json")
            if not result.is_file():
                command = [sys.executable, __file__, f"--out={options.out}", f"--one={name}:{looks}"]
                command += [f"--set={change}" for change in options.set]
                subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
            found[name, looks] = json.loads(result.read_text(encoding="utf-8"))
    return found


def cost(results: dict[tuple[str, str], dict[str, Any]], name: str, looks: str) -> str:
    """CPU time per update as a multiple of that of one look."""
    if (name, "1") not in results:
        return "-"
    return f"{results[name, looks]['update_seconds'] / results[name, '1']['update_seconds']:.2f}"


def print_cost(options: argparse.Namespace) -> None:
    """CPU time of an update."""
    print(
        "| task | looks | queries x alignments | seconds | relative to the first row |\n" + "|---" * 5 + "|"
    )
    for name in options.tasks.split(","):
        first = None
        for looks in options.looks.split(","):
            seconds, size = update_seconds(*read(name, looks, options.set))
            first = first or seconds
            print(f"| {name} | {looks} | {size} | {seconds:.3f} | {seconds / first:.1f} |", flush=True)


def print_scenes(results: dict[tuple[str, str], dict[str, Any]]) -> None:
    """Accuracy and likelihood by kind of question."""
    rows = {looks: result for (name, looks), result in results.items() if name == "scenes"}
    print("\n| looks | NLL | accuracy | grounding | CPU per update | " + " | ".join(KINDS) + " |")
    print("|---" * (5 + len(KINDS)) + "|")
    for looks, result in rows.items():
        figures = result["figures"]
        by_kind = [
            f"{figures['by_question_type'][kind]['accuracy']:.1f} ({result['nll_by_kind'][kind]:.3f})"
            for kind in KINDS
        ]
        whole = [f"{figures['nll']:.3f}", f"{figures['accuracy']:.2f}"]
        whole += [f"{100 * figures['grounding_posterior']:.1f}", cost(results, "scenes", looks)]
        print(f"| {looks} | " + " | ".join([*whole, *by_kind]) + " |")


def print_translation(results: dict[tuple[str, str], dict[str, Any]], name: str) -> None:
    """Perplexity, BLEU and alignment error."""
    rows = {looks: result for (task, looks), result in results.items() if task == name}
    print(f"\n{name}\n\n| looks | perplexity | BLEU | AER of the posterior | parameters | CPU per update |")
    print("|---" * 6 + "|")
    for looks, result in rows.items():
        figures = result["figures"]
        whole = [f"{figures['ppl']:.4f}", f"{figures['bleu']:.1f}", f"{figures['aer_posterior']:.3f}"]
        whole += [f"{result['parameters']:,}", cost(results, name, looks)]
        print(f"| {looks} | " + " | ".join(whole) + " |")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tasks", default="scenes,demo")
    parser.add_argument("--looks", default="1,2,4,dependent")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--cost", action="store_true", help="measure the cost of an update alone")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.one:
        name, looks = options.one.split(":")
        folder = options.out / f"{name}-{looks}"
        found = train(name, looks, folder, options.set)
        folder.with_suffix(".json").write_text(json.dumps(found, indent=1), encoding="utf-8")
        return
    if options.cost:
        print_cost(options)
        return
    results = run_all(options)
    if any(name == "scenes" for name, _ in results):
        print_scenes(results)
    for name in dict.fromkeys(name for name, _ in results if name != "scenes"):
        print_translation(results, name)


if __name__ == "__main__":
    main()
